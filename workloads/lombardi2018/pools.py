"""What runs on one pool of hosts: the operators of one application or of both, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from anabranch.runtime.policies.elysium.assessing import PoolProfile
from anabranch.runtime.policies.elysium.costs import HostCost
from anabranch.runtime.policies.elysium.rates import RatedStream
from anabranch.runtime.policies.elysium.sizing import CoreBounds
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.lombardi2018.applications import CORES, T1, T2, ProfiledChain

APPLICATIONS = {"T1": T1, "T2": T2}
ACKED_AT = {"T1": "counter", "T2": "svm"}
"""Where a tweet counts as done: at the first windowed operator, or at the sink (EL-G19)."""
ALONE = {"finalRanker": CoreBounds(instances_max=1)}
INSTANCES_MAX = 4


@dataclass(frozen=True)
class Pool:
    """`names`: of applications, whose hosts take what those of the dearest of them do."""

    names: tuple[str, ...]

    @property
    def chains(self) -> list[ProfiledChain]:
        return [APPLICATIONS[name] for name in self.names]

    @cached_property
    def operators(self) -> list[str]:
        return [operator for chain in self.chains for operator in chain.costs]

    @property
    def sources(self) -> dict[str, str]:
        """The source of each application."""
        return {name: APPLICATIONS[name].source for name in self.names}

    @property
    def host(self) -> HostCost:
        return max((chain.host for chain in self.chains), key=lambda host: host.times)

    @cached_property
    def streams(self) -> list[RatedStream]:
        return [
            RatedStream(above, below, each)
            for chain in self.chains
            for (above, below), each in zip(pairwise(chain.costs), chain.selectivities, strict=True)
        ]

    @cached_property
    def before(self) -> NDArray[np.int64]:
        """The index of each operator's predecessor; -1 for a source."""
        above = {stream.below: self.operators.index(stream.above) for stream in self.streams}
        return np.array([above.get(name, -1) for name in self.operators])

    @cached_property
    def selectivity(self) -> FloatArray:
        """Of the stream into each operator; 1 for a source."""
        known = {stream.below: stream.selectivity for stream in self.streams}
        return np.array([known.get(name, 1.0) for name in self.operators])

    @cached_property
    def per_tweet(self) -> FloatArray:
        """Tuples that each operator gets for a tweet."""
        rates: dict[str, float] = {}
        for chain in self.chains:
            rates |= chain.rates(1.0)
        return np.array([rates[name] for name in self.operators])

    @cached_property
    def base(self) -> FloatArray:
        return np.array([cost.base for chain in self.chains for cost in chain.costs.values()])

    @cached_property
    def per_tuple(self) -> FloatArray:
        costs = (cost.per_tuple for chain in self.chains for cost in chain.costs.values())
        # What costs nothing is done at once.
        found: FloatArray = np.maximum(np.array([*costs]), 1e-9)
        return found

    @cached_property
    def reads(self) -> NDArray[np.int64]:
        """The index of each source."""
        return np.array([self.operators.index(source) for source in self.sources.values()])

    @cached_property
    def acks(self) -> NDArray[np.int64]:
        return np.array([self.operators.index(ACKED_AT[name]) for name in self.names])

    @cached_property
    def per_ack(self) -> FloatArray:
        """Tuples of a tweet where it counts as done."""
        found: FloatArray = self.per_tweet[self.acks]
        return found

    @cached_property
    def into(self) -> FloatArray:
        """The selectivity of the stream into each operator; 0 for a source."""
        return np.where(self.before < 0, 0.0, self.selectivity)

    def known(self) -> PoolProfile:
        """The true profile, instead of a learnt one."""
        costs = {name: cost.cores for chain in self.chains for name, cost in chain.costs.items()}
        return PoolProfile(costs, self.streams, HostCost(self.host.base, self.host.times, CORES))
