"""What two hosts send in one exchange of gossip.

    one that asks                      one that answers
    Probe ──────────────────────────▶
          ◀────────────────────────── Answer (with `have`, if the tables differ)
    Rows (what the other one lacks, and what is wanted) ─▶
          ◀────────────────────────── Rows (what was wanted)

    AskOther ───────────────────────▶ (probes a third host)
          ◀────────────────────────── ProbeOutcome

`Rows` may also come first: a host that leaves announces it. For `Answer` there may be `Refused`, or
`Busy`: a host that has sent enough for now.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from anabranch.runtime.hosts.host import (
    Address,
    HostInfo,
    HostState,
    HostStatement,
    Incarnation,
    Name,
)

FRAME_BYTES_MAX = 8 * 2**10
HASH_BYTES = 4
HOSTS_MAX = 500
"""Rows of a table, with those of hosts that are gone."""

Hashes = Annotated[bytes, Meta(max_length=HASH_BYTES * HOSTS_MAX)]
Digest = Annotated[bytes, Meta(min_length=8, max_length=8)]


class Frame(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pass


class Opinion(Frame, frozen=True):
    """What the sender's table has on the name of the receiver."""

    key: bytes
    incarnation: Incarnation
    state: HostState


class Probe(Frame, frozen=True, tag=1):
    """`to`: the name that should be at this address; empty if it is not known."""

    name: Name
    key: bytes
    incarnation: Incarnation
    to: str
    digest: Digest
    opinion: Opinion | None


class Answer(Frame, frozen=True, tag=2):
    """`have`: the first bytes of the hash of each row of the sender's table; None if the tables
    are equal, or if there is no room for it; then `some` of the rows, drawn at random, let the
    other one ask elsewhere."""

    name: Name
    key: bytes
    incarnation: Incarnation
    opinion: Opinion | None
    have: Hashes | None
    some: Annotated[list[HostStatement], Meta(max_length=HOSTS_MAX)]


class Refused(Frame, frozen=True, tag=3):
    """The name belongs to another live host, at this address; or the table is full."""

    holder: Address | None


class Rows(Frame, frozen=True, tag=4):
    rows: Annotated[list[HostStatement], Meta(max_length=HOSTS_MAX)]
    wanted: Hashes


class AskOther(Frame, frozen=True, tag=5):
    target: HostInfo


class ProbeOutcome(Frame, frozen=True, tag=6):
    reached: bool


class Busy(Frame, frozen=True, tag=7):
    pass


AnyFrame = Probe | Answer | Refused | Rows | AskOther | ProbeOutcome | Busy
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyFrame] = msgspec.msgpack.Decoder(AnyFrame)


def encode(frame: Any) -> bytes:
    return _encoder.encode(frame)


def decode(body: bytes) -> AnyFrame:
    """Raises `msgspec.DecodeError` for what is no frame of this version."""
    return _decoder.decode(body)
