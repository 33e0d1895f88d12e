"""What a run sends to the agent of another host on which it wants to have instances, and what its
own agent sends to it.

    run process                                agent of the other host
    (greeting and proof, as a command)
    HostRun ─────────────────────────────────▶
            ◀───────────────────────────────── BundleWanted, if it lacks this version
    the bundle, as one frame ────────────────▶
            ◀───────────────────────────────── HostReady, or RequestFailed
    frames ◀════════ relayed as they are ════▶ the run's worker there
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from anabranch.runtime.hosts.host import Address, Name, Word
from anabranch.runtime.hosts.requests import AgentMessage
from anabranch.runtime.hosts.roles import AGENT

EPOCH_BYTES = 8
RELAYED_BYTES_MAX = 96 * 2**10
"""Of a frame between a run and its worker: a piece of a message, or a greeting with the paths of
folders."""
ALIVE = "alive"

RunId = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]


class HostRun(AgentMessage, frozen=True, tag="host_run"):
    """Have a worker of this run. `run`: the same as long as the run is resumed. `epoch`: of the
    process that carries it out. `home`: its host. `anabranch`: the version of the runtime, whose
    instances talk to each other. `version`: of the pipeline, the SHA-256 of its bundle."""

    role: ClassVar[str] = AGENT
    run: RunId
    epoch: Annotated[bytes, Meta(min_length=EPOCH_BYTES, max_length=EPOCH_BYTES)]
    home: Name
    anabranch: Word
    version: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class BundleWanted(AgentMessage, frozen=True, tag="bundle_wanted"):
    pass


class HostReady(AgentMessage, frozen=True, tag="host_ready"):
    """`began`: a new worker; otherwise the one that was there already."""

    pid: int
    began: bool


class HostOffer(msgspec.Struct, frozen=True, array_like=True):
    """A host as the agent of a run has it. `state`: as in `HostLine`. `latency_s`: how long its
    probes of other hosts take, as far as that is known."""

    name: str
    address: Address
    region: str
    labels: dict[str, str]
    cores: int
    memory_mb: int
    anabranch: str
    state: str
    latency_s: dict[str, float] = {}
    drained: bool = False

    @property
    def is_live(self) -> bool:
        return self.state in (ALIVE, "suspected")


class Home(msgspec.Struct, frozen=True, array_like=True):
    """What a run needs of itself to be on other hosts. `bundle`: the file; "" if its agent
    has none. `tls`: the folder of the agent's certificate; "" without one. `hosts_max`: how many
    hosts there may be, if the agent opens some; 0: those that there are. `refused`: why there are
    fewer than were asked for."""

    host: str
    run: str
    anabranch: str
    version: str
    bundle: str
    tls: str = ""
    hosts_max: int = 0
    refused: str = ""
