"""T1, rolling top-k, and T2, sentiment: what their operators cost, and the streams between them.

Costs are fits to the profiling records that the authors have published; hosts have four cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from anabranch.runtime.policies.elysium.allocating import (
    Allocate,
    PoolPlan,
    allocated,
    even,
    placeables,
)
from anabranch.runtime.policies.elysium.costs import HostCost, InstanceCost
from anabranch.runtime.policies.elysium.rates import RatedStream, input_rates
from anabranch.runtime.policies.elysium.sizing import CoreBounds, sized

CORES, HOSTS = 4, 4
MICROSECOND = 1e-6


@dataclass(frozen=True, slots=True)
class ProfiledChain:
    """Operators in a row. `selectivities`: of the streams between them, in order."""

    costs: dict[str, InstanceCost]
    selectivities: tuple[float, ...]
    host: HostCost

    @property
    def source(self) -> str:
        return next(iter(self.costs))

    def rates(self, offered: float) -> dict[str, float]:
        streams = [
            RatedStream(above, below, each)
            for (above, below), each in zip(pairwise(self.costs), self.selectivities, strict=True)
        ]
        return input_rates({self.source: offered}, streams)

    def sizes(
        self, offered: float, bounds: CoreBounds, present: dict[str, int] | None = None
    ) -> dict[str, int]:
        return {
            name: sized(
                self.costs[name].cores, rate, bounds, None if present is None else present[name]
            )
            for name, rate in self.rates(offered).items()
        }

    def plan(
        self, offered: float, bounds: CoreBounds, allocate: Allocate = even
    ) -> tuple[dict[str, int], PoolPlan]:
        """Both stages, from one instance of each."""
        sizes, rates = self.sizes(offered, bounds), self.rates(offered)
        cores = {name: self.costs[name].cores(rates[name], p) for name, p in sizes.items()}
        return sizes, allocated(placeables(sizes, cores), HOSTS, self.host, allocate=allocate)


def _costs(**base_and_us: tuple[float, float]) -> dict[str, InstanceCost]:
    return {
        name.replace("_", "-"): InstanceCost(base, us * MICROSECOND)
        for name, (base, us) in base_and_us.items()
    }


T1 = ProfiledChain(
    _costs(
        tweetReader=(0.02, 133),
        wordGenerator=(0.01, 571),
        stopWordFilter=(0.03, 81.5),
        counter=(0.03, 64.8),
        intermediateRanker=(0.005, 15.7),
        finalRanker=(0.002, 0),
    ),
    (1.0, 17.86, 0.68, 0.41, 0.01),
    HostCost(0.11, 2.11, CORES),
)
T2 = ProfiledChain(
    _costs(
        tweet_reader=(0.04, 207),
        tokenizer=(0.02, 258),
        preprocessor=(0.015, 209),
        pos_tagger=(0.06, 1595),
        feature_generation=(0.02, 300),
        svm=(0.015, 177),
    ),
    (1.0,) * 5,
    HostCost(0.23, 2.53, CORES),
)
