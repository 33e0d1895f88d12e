"""Seeds of worlds of all kinds, those with Spark at the ends included."""

from __future__ import annotations

from anabranch.runtime.world.drawn_trial import Trial
from anabranch.runtime.world.lapse_list import LAPSES, lapse_named
from anabranch.runtime.world.lapses import Lapse
from anabranch.runtime.world.swarm import Seeds
from anabranch.spark_bridge.world.drawing import drawn


class SeedsWithSpark(Seeds):
    def drawn(self, seed: int) -> Trial:
        return drawn(seed, self.scene, size=self.size, crashes=self.crashes)

    @property
    def broken(self) -> Lapse | None:
        return lapse_named(self.lapse, all_lapses()) if self.lapse else None


def all_lapses() -> tuple[Lapse, ...]:
    """Those of the gateway only where PyArrow is, which it needs."""
    try:
        from anabranch.spark_bridge.world import lapses
    except ImportError:
        return LAPSES
    return (*LAPSES, *lapses.LAPSES)
