"""What is made of the slots of an operator, one after the other: by each of its instances alike, or
by a controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from anabranch.runtime.policies.policy import Heritage
from anabranch.runtime.policies.predictive import controller
from anabranch.runtime.policies.predictive.controller import HORIZON_MAX, Settings
from anabranch.runtime.policies.predictive.forecast import LEVEL, Holt
from anabranch.runtime.policies.predictive.queueing import LOAD_MAX, Feedback, QueueLoad
from anabranch.runtime.policies.predictive.rebalancing import Evenness
from anabranch.runtime.policies.predictive.told import slot_of
from anabranch.runtime.policies.settings import setting

if TYPE_CHECKING:
    from anabranch.runtime.measuring.reading import Figures
    from anabranch.runtime.policies.policy import Scale

LOAD = ("rate", "work_s", "arrivals_cv2", "work_cv2")
"""Of the newest known load, as it is inherited."""
OWN = ("rebalance",)
"""Settings that are none of the controller's."""


@dataclass(frozen=True, slots=True)
class StepMemory:
    """`slot`: the last one that was looked at. `known`: of the controller, None before the
    first slot. `evenness`: of an operator by key."""

    slot: int = -1
    known: controller.ControllerMemory | None = None
    evenness: Evenness = field(default_factory=Evenness)


@dataclass(frozen=True, slots=True)
class ForecastStep:
    """`target`: instances of the next slot. `moves`: which instances, by rank, give which share of
    their load to which others; then the number stays."""

    target: int
    why: str
    moves: Mapping[int, tuple[int, float]]


@dataclass(frozen=True)
class ForecastSteps:
    """The settings, and what follows from a slot with them.

    Three defaults are not the published ones (`qos_weight` 3, `trend` 0.26, changes always by their
    number), with which a peak is paid for long after it has passed.
    """

    latency_ms: float = setting(
        250.0, "mean latency to hold, from arrival to result of one operator", unit="ms", above=0
    )
    horizon: int = setting(1, "periods looked ahead", unit="periods", least=1, most=HORIZON_MAX)
    qos_weight: float = setting(1.5, "what latency costs", least=0)
    instance_weight: float = setting(0.5, "what an instance costs", least=0)
    change_weight: float = setting(0.4, "what the square of a change costs", least=0)
    level: float = setting(LEVEL, "weight of the newest period in the level", least=0, most=1)
    trend: float = setting(0.1, "weight of the newest period in the trend", least=0, most=1)
    load_max: float = setting(LOAD_MAX, "highest load of an instance", above=0, below=1)
    relative_above: int = setting(
        4, "instances above which a change costs by its share of them, not by its number",
        unit="instances", least=1,
    )  # fmt: skip
    rebalance: bool = setting(True, "whether instances of an operator by key even out their loads")

    def after(
        self, figures: Figures, scale: Scale, memory: StepMemory, *, keyed: bool
    ) -> tuple[ForecastStep, StepMemory]:
        """At a slot's border. `figures`: of all instances; `keyed`: state is by key."""
        settings = self._of(scale)
        evenness = memory.evenness.after(figures) if keyed else Evenness()
        slot = replace(slot_of(figures, scale), uneven=evenness.uneven)
        known = memory.known or controller.ControllerMemory.of(settings)
        known, found = controller.step(settings, known, slot)
        stays = max(found.target, scale.min_instances) == figures.instances
        moves = evenness.moves(scale) if self.rebalance and stays else {}
        after = StepMemory(figures.slot, known, evenness.moved if moves else evenness)
        return ForecastStep(found.target, found.why, moves), after

    def left(self, memory: StepMemory) -> Heritage:
        """Filter, feedback and newest load, as numbers."""
        known = memory.known
        if known is None:
            return {}
        factors = {f"factor_{i}": f for i, f in enumerate(known.feedback.factors)}
        last = known.last
        of_last = {} if last is None else {name: getattr(last, name) for name in LOAD}
        demand = known.demand
        of_demand = {"level": demand.level, "trend": demand.trend, "seen": float(demand.seen)}
        return of_demand | factors | of_last

    def inherited(self, heritage: Heritage) -> StepMemory:
        """From what `left` gives."""
        if "seen" not in heritage:
            return StepMemory()
        seen = int(heritage["seen"])
        demand = Holt(heritage["level"], heritage["trend"], seen, self.level, self.trend)
        factors = tuple(heritage[n] for i in range(seen) if (n := f"factor_{i}") in heritage)
        last = QueueLoad(*(heritage[name] for name in LOAD)) if LOAD[0] in heritage else None
        return StepMemory(known=controller.ControllerMemory(demand, Feedback(factors), last))

    def _of(self, scale: Scale) -> Settings:
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in OWN}
        return Settings(instances_max=scale.max_instances, **own)
