"""What a run looks like at one moment: frozen values for live views, taken a few times a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.runtime.reporting.report import Event


@dataclass(frozen=True, slots=True)
class InstanceSnapshot:
    id: str
    pid: int
    state: str
    keeper: bool
    load: float
    queued: int
    held: int
    blocked_by: str | None
    waiting_for: tuple[str, ...]
    silent_s: float
    """Since its last status; several periods mean that it is stuck or starved of CPU."""
    incarnation: int = 1
    """How many processes it has had, this one included."""
    groups: int = 0
    """Key groups owned."""
    hot: tuple[tuple[int, float], ...] = ()
    """The hottest key groups and their shares of its load, hottest first."""
    host: str = ""
    """On which it is; empty: the run has one host."""
    copies: tuple[str, ...] = ()
    """Other hosts with complete copies of its journal."""
    lacks: str = ""
    """What is missing of them."""


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """Rates are tuples per second over about the last second; `load` is the mean of instances."""

    name: str
    kind: str
    instances: int
    rate_in: float
    rate_out: float
    load: float
    queued: int
    held: int
    tuples_in: int
    tuples_out: int
    dead: int
    joins: int
    leaves: int
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    progress: float | None
    """Sources: share read, 0 to 1; None if the size of the input is not known."""
    service_address: str
    """Where the service of this end listens; empty if it has none."""
    members: tuple[InstanceSnapshot, ...]
    deaths: int = 0
    """Processes that died; the instances went on in new ones."""
    policy: str = ""
    """The name of the policy that decides; empty if none does."""
    rate_to: Mapping[str, float] = field(default_factory=dict)
    """Of each stream, by downstream operator."""
    offered: float | None = None
    """Of a paced source, what should be read."""
    waiting: float = 0.0
    """Tuples that wait for it, here and further up; of a paced source: due and not read."""
    cpu_s: float = 0.0
    """Processor time of the instances that are there."""
    pinned: int | None = None
    """How many instances a user has asked for; None: the policy decides."""


@dataclass(frozen=True, slots=True)
class ControllerSnapshot:
    """What a controller has planned last: instances by operator, and hosts, None if it plans none.
    `at_s`: when, on a monotonic clock. `failed`: why it decides nothing any more."""

    name: str
    operators: tuple[str, ...]
    wanted: Mapping[str, int] = field(default_factory=dict)
    hosts: int | None = None
    why: str = ""
    at_s: float | None = None
    failed: str = ""


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """`phase`: starting, running, ending (its input has been ended), closing or ended."""

    pipeline: str
    phase: str
    seconds: float
    operators: tuple[OperatorSnapshot, ...]
    idle: int
    """Warm processes that wait."""
    pids: tuple[int, ...]
    """Every process of the run on this host."""
    events: tuple[Event, ...]
    """The latest, oldest first."""
    host_busy: float | None = None
    """Share of the host's processors that is in use, by whomever; None if that is not known."""
    away: tuple[str, ...] = ()
    """Other hosts from which nothing comes just now, though instances of the run are there: the
    run waits for them."""
    controllers: tuple[ControllerSnapshot, ...] = ()
    drained: tuple[str, ...] = ()
    """Hosts that instances leave, and on which none are made."""
    ending: Mapping[str, int] = field(default_factory=dict)
    """By host, instances that have ended and whose processes are still there."""
    given_up: Mapping[str, str] = field(default_factory=dict)
    """Hosts without which the run goes on, and by whom each was given up: `user` or `majority`."""

    def operator(self, name: str) -> OperatorSnapshot:
        """Raises `KeyError` for an unknown name."""
        for operator in self.operators:
            if operator.name == name:
                return operator
        raise KeyError(name)
