"""The predictive controller as a policy: every instance solves the same problem, from the sums that
a neighbour tells all of them, and does its part of the result.

Without the sums of a slot it takes its own figures for those of each sibling (`told`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from anabranch.runtime.policies.decision import Decision, Hold, Resize
from anabranch.runtime.policies.policy import Heritage, Policy, setting
from anabranch.runtime.policies.predictive import controller
from anabranch.runtime.policies.predictive.controller import HORIZON_MAX, Settings
from anabranch.runtime.policies.predictive.forecast import LEVEL, TREND, Holt
from anabranch.runtime.policies.predictive.queueing import LOAD_MAX, Feedback, Load
from anabranch.runtime.policies.predictive.rebalancing import Evenness, own_move
from anabranch.runtime.policies.predictive.told import last_slot, slot_of

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.policies.reading import Reading
    from anabranch.runtime.scale import Scale


@dataclass(frozen=True, slots=True)
class Memory:
    """`slot`: the last one that was looked at. `known`: of the controller, None before the
    first slot. `evenness`: of an operator by key."""

    slot: int = -1
    known: controller.Memory | None = None
    evenness: Evenness = field(default_factory=Evenness)


@dataclass(frozen=True)
class Predictive(Policy[Memory]):
    """Hold a mean latency of the operator with as few instances as needed: forecast its load,
    predict the latency of each number of instances, take the first step of the cheapest course."""

    source: ClassVar[str] = "De Matteis & Mencagli 2017, decentralised"
    in_concert: ClassVar[bool] = True

    latency_ms: float = setting(
        250.0, "mean latency to hold, from arrival to result of one operator", unit="ms", above=0
    )
    horizon: int = setting(1, "periods looked ahead", unit="periods", least=1, most=HORIZON_MAX)
    qos_weight: float = setting(3.0, "what latency costs", least=0)
    instance_weight: float = setting(0.5, "what an instance costs", least=0)
    change_weight: float = setting(0.4, "what the square of a change costs", least=0)
    level: float = setting(LEVEL, "weight of the newest period in the level", least=0, most=1)
    trend: float = setting(TREND, "weight of the newest period in the trend", least=0, most=1)
    load_max: float = setting(LOAD_MAX, "highest load of an instance", above=0, below=1)
    rebalance: bool = setting(True, "whether instances of an operator by key even out their loads")

    def decide(
        self, reading: Reading, scale: Scale, memory: Memory, rng: Random
    ) -> tuple[Decision, Memory]:
        figures = last_slot(reading, scale, memory.slot)
        if isinstance(figures, str):
            return Hold(figures), memory
        settings = self._settings(scale)
        evenness = memory.evenness.after(figures) if reading.keyed else Evenness()
        slot = replace(slot_of(figures, scale), uneven=evenness.uneven)
        known, found = controller.step(settings, memory.known or self._new(settings), slot)
        stays = max(found.target, scale.min_instances) == figures.instances
        moves = evenness.moves(scale) if self.rebalance and stays else {}
        if moves:
            after = Memory(figures.slot, known, evenness.moved)
            return own_move(moves, reading) or Hold("siblings even out their loads"), after
        return Resize(found.target, found.why), Memory(figures.slot, known, evenness)

    def begin(self) -> Memory:
        return Memory()

    def heritage(self, memory: Memory, now_s: float) -> Heritage:
        known = memory.known
        if known is None:
            return {}
        factors = {f"factor_{i}": f for i, f in enumerate(known.feedback.factors)}
        last = known.last
        of_last = {} if last is None else {name: getattr(last, name) for name in LOAD}
        demand = known.demand
        of_demand = {"level": demand.level, "trend": demand.trend, "seen": float(demand.seen)}
        return of_demand | factors | of_last

    def born(self, heritage: Heritage, now_s: float) -> Memory:
        if "seen" not in heritage:
            return Memory()
        seen = int(heritage["seen"])
        demand = Holt(heritage["level"], heritage["trend"], seen, self.level, self.trend)
        factors = tuple(heritage[n] for i in range(seen) if (n := f"factor_{i}") in heritage)
        last = Load(*(heritage[name] for name in LOAD)) if LOAD[0] in heritage else None
        return Memory(known=controller.Memory(demand, Feedback(factors), last))

    def _settings(self, scale: Scale) -> Settings:
        own = {name: value for name, value in self.settings.items() if name != "rebalance"}
        return Settings(instances_max=scale.max_instances, **own)

    def _new(self, settings: Settings) -> controller.Memory:
        return controller.Memory.of(settings)


LOAD = ("rate", "work_s", "arrivals_cv2", "work_cv2")
"""Of the newest known load, as a newcomer inherits it."""
