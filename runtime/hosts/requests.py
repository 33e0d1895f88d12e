"""What a command and the agent of a host send to each other.

    command                                    agent
    greeting ────────────────────────────────▶
             ◀──────────────────────────────── Challenge
    Proof ───────────────────────────────────▶
             ◀──────────────────────────────── Welcome
    request ─────────────────────────────────▶
             ◀──────────────────────────────── reply, or RequestFailed

Both prove that they have the secret in the data folder of the agent, which only its user can read:
another user of the machine can reach the agent too. The secret itself does not travel, and a proof
is for one pair of nonces only. A command that does not have it may ask for what any user may see.

With TLS both have proved their identity before the greeting, which is answered by an empty Welcome.
The roles in the certificate of the command determine what it may ask for.
"""

from __future__ import annotations

import hmac
from typing import ClassVar

import msgspec

from anabranch.runtime.hosts.host import HostInfo
from anabranch.runtime.hosts.roles import OPERATE, VIEW

GREETING = b"anabranch requests 1"
NONCE_BYTES = 16
FIRST_BYTES_MAX = 8 * 2**10
"""Of a frame before the other end is known."""


class AgentMessage(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """`role`: what a certificate must allow for this request; the most, unless it names less."""

    role: ClassVar[str] = OPERATE


class Challenge(AgentMessage, frozen=True, tag="challenge"):
    """`token_file`: where the secret is, on the agent's machine."""

    nonce: bytes
    host: str
    version: str
    token_file: str


class Proof(AgentMessage, frozen=True, tag="proof"):
    """`mac`: empty if the command does not have the secret."""

    nonce: bytes
    mac: bytes


class Welcome(AgentMessage, frozen=True, tag="welcome"):
    mac: bytes


class RequestFailed(AgentMessage, frozen=True, tag="failed"):
    """`wrong`: the request makes no sense; otherwise it could not be done."""

    message: str
    wrong: bool = True


class AskHosts(AgentMessage, frozen=True, tag="hosts"):
    role: ClassVar[str] = VIEW


class HostLine(msgspec.Struct, frozen=True):
    """`state`: alive, suspected, dead, or left; `for_s`: since when, by the table of the agent.
    `probe_s`: how long a probe of it takes, smoothed; None: the agent has not probed it."""

    host: HostInfo
    state: str
    for_s: float
    probe_s: float | None = None


class HostsKnown(AgentMessage, frozen=True, tag="hosts_known"):
    """`me`: the host of the agent. `name_taken`: another host has its name, and the others refuse
    this one. `refused`: how often the agent has refused others, by reason, since it began."""

    me: str
    hosts: list[HostLine]
    name_taken: bool
    refused: dict[str, int] = {}


class MarkDrained(AgentMessage, frozen=True, tag="drain"):
    """Instances leave the host of this agent, and none come, until it is taken back."""

    drained: bool


class HostDrained(AgentMessage, frozen=True, tag="drained"):
    """`stays`: pipelines that run there because they were submitted to it, which stay. `homes`:
    hosts of whose pipelines there may be instances."""

    host: str
    drained: bool
    stays: list[str]
    homes: list[str]


def mac_of(secret: bytes, side: str, mine: bytes, other: bytes) -> bytes:
    """What one side sends to prove that it has the secret. `mine`: its own nonce."""
    return hmac.digest(secret, side.encode() + mine + other, "sha256")


def is_proved(secret: bytes, side: str, proof: bytes, its: bytes, mine: bytes) -> bool:
    return hmac.compare_digest(mac_of(secret, side, its, mine), proof)
