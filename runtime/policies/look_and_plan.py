"""What a controller gets of a pipeline, and what it returns: looks and plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anabranch.runtime.measuring.reading import Figures, Reading
from anabranch.runtime.measuring.slot_meter import added
from anabranch.runtime.policies.policy import Scale


@dataclass(frozen=True, slots=True)
class Seen:
    """An active instance, named as in reports (`split.3`). `reading`: its last; of one that has not
    sent any yet, an empty one (`covered_s` is 0)."""

    id: str
    reading: Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorLook:
    """One operator. `upstream`, `downstream`: names of its neighbours in the graph. `instances`:
    the active ones in the order of their ids, so that the youngest is the last; one that leaves is
    no longer among them. `coming`: instances on their way. `processed_total`: tuples,
    `busy_total_s`, `blocked_total_s`: seconds, of all instances that the operator has had, as far
    as they have sent it; `told_total_s`: instance-seconds between their first and last readings,
    which these totals cover.
    """

    name: str
    scale: Scale = field(default=Scale(max_instances=1))
    keyed: bool = False
    upstream: tuple[str, ...] = ()
    downstream: tuple[str, ...] = ()
    instances: tuple[Seen, ...] = ()
    coming: int = 0
    processed_total: float = 0.0
    busy_total_s: float = 0.0
    blocked_total_s: float = 0.0
    told_total_s: float | None = None

    @property
    def n(self) -> int:
        """Active instances."""
        return len(self.instances)

    @property
    def received_per_s(self) -> float:
        """Tuples per second, of all instances; of a paced source, what it should read."""
        readings = [seen.reading for seen in self.instances]
        return sum(r.received_per_s if r.demand_per_s is None else r.demand_per_s for r in readings)

    @property
    def waiting(self) -> float:
        """Tuples that wait for its instances, here and further up (`Reading.waiting`)."""
        return sum(s.reading.waiting for s in self.instances)

    @property
    def busy(self) -> float:
        """Mean share of the time in which its instances were busy; 0 if there are none."""
        return sum(s.reading.busy for s in self.instances) / self.n if self.n else 0.0

    @property
    def capacity(self) -> float | None:
        """Tuples per busy second of one instance; None while unknown."""
        if self.scale.capacity is not None:
            return self.scale.capacity
        known = [s.reading.capacity for s in self.instances if s.reading.capacity is not None]
        return sum(known) / len(known) if known else None

    @property
    def figures(self) -> Figures | None:
        """Sums of all instances over the last slot (`Reading.own`); None until all have sent it."""
        told = [s.reading.own for s in self.instances]
        whole = [figures for figures in told if figures is not None]
        if not whole or len(whole) < len(told) or len({f.slot for f in whole}) > 1:
            return None
        return added(whole)


@dataclass(frozen=True, slots=True)
class HostLook:
    """A host that the run may use, and how many cores it offers. `drained`: instances leave it, and
    none come."""

    name: str
    cores: float
    drained: bool = False


@dataclass(frozen=True, slots=True)
class PoolLook:
    """The hosts of a run. `hosts_max`: how many there may be. `where`: the host of each instance.
    `refused`: why there are fewer than a plan has asked for; empty if there are as many, or may
    be soon."""

    hosts: tuple[HostLook, ...]
    hosts_max: int
    where: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""

    @property
    def cores(self) -> float:
        """Of the smallest of them; 1 without any."""
        return max(0.1, min((host.cores for host in self.hosts), default=1.0))


@dataclass(frozen=True, slots=True)
class Look:
    """All operators of a pipeline by name, as they were reported until `now_s` (seconds on a
    monotonic clock). `controlled`: names of those whose scale has chosen the controller that looks.
    `pool`: the hosts; None where there is one, and never another."""

    now_s: float
    operators: Mapping[str, OperatorLook]
    controlled: tuple[str, ...] = ()
    pool: PoolLook | None = None

    def of(self, controlled: tuple[str, ...]) -> Look:
        return replace(self, controlled=controlled)


def operator_of(instance: str) -> str:
    """Of the name of an instance: `split` of `split.3`."""
    return instance.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class Shift:
    """The instance `giver` should give key groups with about this `share` of its load, above 0 and
    at most 1, to its sibling `receiver`; both by their names (`Seen.id`)."""

    giver: str
    receiver: str
    share: float


@dataclass(frozen=True, slots=True)
class Plan:
    """How many instances operators should have. Those that are not named stay as they are.

    A plan describes what should be, not what should be done, so it holds until the next one: what
    is missing at a later look is asked for again. `why`: for reports. `shifts` of load are ordered
    once, where neither instance has an operation open. `hosts`: how many hosts there should be;
    None: as there are.
    """

    wanted: Mapping[str, int] = field(default_factory=dict)
    why: str = ""
    shifts: tuple[Shift, ...] = ()
    hosts: int | None = None
