"""The hierarchy of managers as a controller of a running pipeline (HI4 to HI19).

    looks ─▶ managers of operators ─▶ that of the pipeline ─┐
               hosts ─▶ manager of hosts ───────────────────┴─▶ plan

All of them are at the agent of the run, and those of operators see what their instances report.
The hosts of a run are one region.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from anabranch.runtime.policies.controller import Controller
from anabranch.runtime.policies.policy import Heritage
from anabranch.runtime.policies.settings import setting

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.policies.hierarchical.managers import HierarchyMemory, ManagedRules
    from anabranch.runtime.policies.look_and_plan import Look, Plan


@dataclass(frozen=True)
class Hierarchy(Controller["HierarchyMemory"]):
    """One instance more or fewer of an operator, one host more or fewer, as managers of both
    propose that learn what their changes cost; one grants what operators ask for."""

    source: ClassVar[str] = "Russo Russo, Nardelli, Cardellini & Lo Presti 2018"

    operators: str = setting("learn", "how operators are managed", one_of=("learn", "threshold"))
    hosts: str = setting(
        "learn", "how hosts are managed; fixed: they stay as they are",
        one_of=("learn", "simple", "fixed"),
    )  # fmt: skip
    every_s: float = setting(60.0, "time between two assessments", unit="s", above=0)
    response_ms: float = setting(
        1000.0, "response time of all operators together that learners keep below", unit="ms",
        above=0,
    )  # fmt: skip
    refusal_weight: float = setting(
        0.7, "of hosts that learn: what a refused instance counts, against hosts", least=0, most=1
    )
    idle: int = setting(2, "hosts without an instance that simple hosts keep", least=0)
    slots: int = setting(
        0, "instances of a host; 0: as many as it has cores", unit="instances", least=0
    )
    tokens: int = setting(
        0, "changes of instances that may be made at once; 0: any number", least=0
    )
    tokens_each: float = setting(1.0, "changes more that each assessment allows", above=0)

    def born(self, heritage: Heritage, now_s: float) -> HierarchyMemory:
        from anabranch.runtime.policies.hierarchical.managers import begin  # has NumPy

        return begin(heritage, now_s + self.every_s)

    def heritage(self, memory: HierarchyMemory, now_s: float) -> Heritage:
        from anabranch.runtime.policies.hierarchical.managers import left_by

        return left_by(memory)

    def assess(
        self, look: Look, memory: HierarchyMemory, rng: Random
    ) -> tuple[Plan | None, HierarchyMemory]:
        from anabranch.runtime.policies.hierarchical.managers import first_look, managed

        if memory.before is None:
            return None, first_look(look, memory)
        if look.now_s < memory.due_s:
            return None, memory
        return managed(self._rules, look, memory, look.now_s + self.every_s)

    @property
    def _rules(self) -> ManagedRules:
        from anabranch.runtime.policies.hierarchical.managers import ManagedRules

        return ManagedRules(
            operators_learn=self.operators == "learn",
            hosts=self.hosts,
            response_s=self.response_ms / 1000,
            w_d=self.refusal_weight,
            idle=self.idle,
            slots=self.slots,
            tokens=self.tokens,
            tokens_each=self.tokens_each,
        )
