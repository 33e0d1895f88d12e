"""ELYSIUM as a controller of a running pipeline: EL10 on what instances report.

    looks ─▶ samples ─▶ evidence ─▶ profile ┐
    offered or forecast load ───────────────┴─▶ stage 1: instances ─▶ stage 2: hosts ─▶ plan

There is no time of learning before it begins. An operator that has processed nothing yet stays as
it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from anabranch.runtime.policies.controller import Controller
from anabranch.runtime.policies.elysium.allocating import even, first_fit
from anabranch.runtime.policies.elysium.assessing import (
    AssessmentRules,
    PoolProfile,
    Target,
    assess,
    placed,
)
from anabranch.runtime.policies.elysium.costs import HostCost
from anabranch.runtime.policies.elysium.evidence import Evidence
from anabranch.runtime.policies.elysium.rates import expected_load
from anabranch.runtime.policies.elysium.sampling import TakenReadings, readings_of, sample
from anabranch.runtime.policies.elysium.sizing import CoreBounds
from anabranch.runtime.policies.look_and_plan import Look, Plan
from anabranch.runtime.policies.policy import Heritage
from anabranch.runtime.policies.settings import setting

if TYPE_CHECKING:
    from random import Random

SAMPLES = 6
"""In the time between two assessments."""
FORECASTS_AFTER = 30
"""Periods of load that a forecast is learnt from at least."""


@dataclass(frozen=True, slots=True)
class ElysiumMemory:
    """`before`: the last sample; `offered`: loads of the sources in this period, a sample each;
    `due_s`: of the next assessment."""

    due_s: float
    evidence: Evidence = field(default_factory=Evidence)
    before: TakenReadings | None = None
    offered: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Elysium(Controller[ElysiumMemory]):
    """Instances of all operators at once, and the hosts for them, from profiles of what tuples
    cost and from the load of the sources, as it is or as it is forecast."""

    source: ClassVar[str] = "Lombardi, Aniello, Bonomi & Querzoni 2018"
    ascending: ClassVar[tuple[str, ...]] = ("core_min", "core_max")

    core_min: float = setting(
        0.25, "share of a core under which an instance may leave", least=0, below=1
    )
    core_max: float = setting(
        0.65, "share of a core that an instance should use at most", above=0, most=1
    )
    cpu_max: float = setting(
        0.8, "share of its cores that a host should use at most", above=0, most=1
    )
    every_s: float = setting(60.0, "time between two assessments", unit="s", above=0)
    ahead: int = setting(
        0, "assessments ahead whose load is forecast; 0: the present load", least=0, most=5
    )
    allocation: str = setting(
        "first-fit", "how instances are dealt to hosts when these are counted",
        one_of=("first-fit", "even"),
    )  # fmt: skip

    overhead: bool = setting(
        False, "learn what hosts use beside instances; for hosts without other programs"
    )

    def born(self, heritage: Heritage, now_s: float) -> ElysiumMemory:
        return ElysiumMemory(now_s + self.every_s, Evidence.of(heritage))

    def heritage(self, memory: ElysiumMemory, now_s: float) -> Heritage:
        return memory.evidence.heritage

    def assess(
        self, look: Look, memory: ElysiumMemory, rng: Random
    ) -> tuple[Plan | None, ElysiumMemory]:
        if memory.before is None:
            return None, replace(memory, before=readings_of(look))
        if look.now_s < memory.before.at_s + self.every_s / SAMPLES:
            return None, memory
        seen = sample(memory.evidence, memory.before, look)
        offered = {
            name: (*memory.offered.get(name, ()), load) for name, load in seen.offered.items()
        }
        after = replace(memory, evidence=seen.evidence, before=readings_of(look), offered=offered)
        if look.now_s < memory.due_s:
            return None, after
        means = {name: sum(loads) / len(loads) for name, loads in offered.items()}
        evidence = after.evidence
        for name, load in means.items():
            evidence = evidence.with_load(name, load)
        due_s = look.now_s + self.every_s
        after = replace(after, due_s=due_s, evidence=evidence, offered={})
        return self._plan(look, evidence, self._expected(means, evidence)), after

    def _expected(self, means: Mapping[str, float], evidence: Evidence) -> dict[str, float]:
        return {
            name: expected_load(load, self._forecast(evidence.loads[name]), self.ahead)
            for name, load in means.items()
        }

    def _forecast(self, loads: Sequence[float]) -> list[float]:
        if not self.ahead or len(loads) < FORECASTS_AFTER or max(loads) <= 0:
            return []
        from anabranch.runtime.policies.elysium.forecasting import load_predictor  # has NumPy

        predictor = load_predictor(loads)
        return [min(each, predictor.highest) for each in predictor.predict(loads)]

    def _plan(self, look: Look, evidence: Evidence, expected: Mapping[str, float]) -> Plan:
        streams, costs = evidence.selectivities(), evidence.costs()
        cores = look.pool.cores if look.pool else 1.0
        host = evidence.host(cores) if self.overhead else HostCost(0.0, 1.0, cores)
        profile = PoolProfile(costs, streams, host)
        rates = profile.rates(expected)
        known = [n for n in look.operators if n in rates and n in costs and evidence.used[n].weight]
        present = {n: max(1, look.operators[n].n + look.operators[n].coming) for n in known}
        rules = self._rules(look)
        own = {n: p for n, p in present.items() if n in look.controlled}
        sizes = assess(profile, rules, expected, own).sizes
        wanted = {n: max(p, look.operators[n].scale.min_instances) for n, p in sizes.items()}
        words = [
            f"{n} {rates[n]:.0f}/s, {costs[n](rates[n] / p):.0%} of a core each at {p}"
            for n, p in wanted.items()
        ]
        if look.pool is None or not wanted:
            return Plan(wanted, "; ".join(words) or "nothing is known yet")
        target = placed(
            PoolProfile(evidence.cores(), streams, host), rules, rates, {**present, **wanted}
        )
        return Plan(wanted, "; ".join([*words, _of_hosts(target, look)]), hosts=target.hosts)

    def _rules(self, look: Look) -> AssessmentRules:
        return AssessmentRules(
            cpu_most=self.cpu_max,
            hosts_max=look.pool.hosts_max if look.pool else 1,
            allocate=even if self.allocation == "even" else first_fit,
            bounds_of={
                name: CoreBounds(self.core_min, self.core_max, operator.scale.max_instances)
                for name, operator in look.operators.items()
            },
        )


def _of_hosts(target: Target, look: Look) -> str:
    told = f"{target.hosts} hosts" if target.hosts > 1 else "1 host"
    if not target.feasible:
        told += ", all that there may be, and too few"
    if look.pool is not None and look.pool.refused:
        told += f" (refused: {look.pool.refused})"
    return told
