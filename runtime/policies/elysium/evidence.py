"""What a controller has seen of a running pipeline, as sums that fade (EL12).

A profile is learnt once, in a time of varying load, as published. A live pipeline has no such time,
so here each sample counts, and what is long ago counts less. What is left to another incarnation is
a map from texts to numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.runtime.policies.elysium.costs import HostCost, InstanceCost
from anabranch.runtime.policies.elysium.rates import RatedStream
from anabranch.runtime.policies.policy import Heritage

FADES = 0.98
"""What is left of a sample when the next one comes: about fifty count."""
IDLE = 0.1
"""For so much of what was seen, it is also taken as seen that without tuples nothing is used. A
load that never changes gives a slope then."""
HISTORY = 480
"""Loads of each source that are kept."""
BASE_MOST = 0.5
"""The share of a host that its profile may say is used without tuples: the rest of a busy host is
not by this pipeline."""
HOST = "host"


@dataclass(frozen=True, slots=True)
class FadingSums:
    """Of pairs (x, y), with the weight that each has left."""

    weight: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def after(self, pairs: Iterable[tuple[float, float]]) -> FadingSums:
        """Those of one sample."""
        some = list(pairs)
        if not some:
            return self
        share, left = 1 / len(some), FADES
        return FadingSums(
            left * self.weight + 1,
            left * self.x + share * sum(x for x, _ in some),
            left * self.y + share * sum(y for _, y in some),
            left * self.xx + share * sum(x * x for x, _ in some),
            left * self.xy + share * sum(x * y for x, y in some),
        )

    @property
    def line(self) -> tuple[float, float]:
        """Base and slope, neither below 0."""
        n = self.weight * (1 + IDLE)
        spread = n * self.xx - self.x * self.x
        slope = max(0.0, (n * self.xy - self.x * self.y) / spread) if spread > 0 else 0.0
        return (max(0.0, (self.y - slope * self.x) / n) if n > 0 else 0.0), slope


@dataclass(frozen=True, slots=True)
class Evidence:
    """`used`, `cpu`: by operator, shares of the time and of a core of an instance by its rate;
    `streams`: tuples that came in and results that went out; `hosts`: cores of the instances on a
    host, and all that it uses; `loads`: of each source, a mean for each period, the newest last."""

    used: Mapping[str, FadingSums] = field(default_factory=dict)
    cpu: Mapping[str, FadingSums] = field(default_factory=dict)
    streams: Mapping[tuple[str, str], FadingSums] = field(default_factory=dict)
    hosts: FadingSums = field(default_factory=FadingSums)
    loads: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def with_load(self, source: str, load: float) -> Evidence:
        before = self.loads.get(source, ())
        return replace(self, loads={**self.loads, source: (*before, load)[-HISTORY:]})

    def costs(self) -> dict[str, Callable[[float], float]]:
        """Shares of a core that instances fill, whether they compute or wait."""
        return {name: InstanceCost(*sums.line).cores for name, sums in self.used.items()}

    def cores(self) -> dict[str, Callable[[float], float]]:
        """Cores that instances take; of those whose processor time is not known, what they fill."""
        known = {name: sums for name, sums in self.cpu.items() if sums.y > 0}
        some = {**self.used, **known}
        return {name: InstanceCost(*sums.line).cores for name, sums in some.items()}

    def selectivities(self) -> list[RatedStream]:
        """Of the streams in which something has been."""
        return [
            RatedStream(above, below, sums.y / sums.x)
            for (above, below), sums in sorted(self.streams.items())
            if sums.x > 0
        ]

    def host(self, cores: float) -> HostCost:
        """Without a measure of hosts, instances are all that they use."""
        if self.hosts.weight <= 0:
            return HostCost(0.0, 1.0, cores)
        base, times = self.hosts.line
        return HostCost(min(base, BASE_MOST * cores), max(1.0, times), cores)

    @property
    def heritage(self) -> Heritage:
        found: Heritage = {}
        for name, sums in self.used.items():
            found |= _told(f"used {name}", sums)
        for name, sums in self.cpu.items():
            found |= _told(f"cpu {name}", sums)
        for (above, below), sums in self.streams.items():
            found |= _told(f"stream {above} {below}", sums)
        if self.hosts.weight > 0:
            found |= _told(HOST, self.hosts)
        for source, loads in self.loads.items():
            found |= {f"load {source} {at}": load for at, load in enumerate(loads)}
        return found

    @classmethod
    def of(cls, heritage: Heritage) -> Evidence:
        """From what `heritage` gives; what it does not contain is left out."""
        sums: dict[tuple[str, ...], dict[str, float]] = {}
        loads: dict[str, list[tuple[int, float]]] = {}
        for text, value in heritage.items():
            *what, last = text.split(" ")
            if len(what) == 2 and what[0] == "load" and last.isdecimal():
                loads.setdefault(what[1], []).append((int(last), value))
            elif last in FadingSums.__slots__:
                sums.setdefault(tuple(what), {})[last] = value
        found = {what: FadingSums(**some) for what, some in sums.items()}
        return cls(
            used={w[1]: s for w, s in found.items() if len(w) == 2 and w[0] == "used"},
            cpu={w[1]: s for w, s in found.items() if len(w) == 2 and w[0] == "cpu"},
            streams={(w[1], w[2]): s for w, s in found.items() if len(w) == 3},
            hosts=found.get((HOST,), FadingSums()),
            loads={name: [v for _, v in sorted(some)][-HISTORY:] for name, some in loads.items()},
        )


def _told(what: str, sums: FadingSums) -> Heritage:
    return {f"{what} {name}": getattr(sums, name) for name in FadingSums.__slots__}
