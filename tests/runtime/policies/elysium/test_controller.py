"""ELYSIUM as a controller of what instances report: EL7 to EL10 on looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest

import anabranch as ab
from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.elysium.controller import Elysium, ElysiumMemory
from anabranch.runtime.policies.look_and_plan import (
    HostLook,
    Look,
    OperatorLook,
    Plan,
    PoolLook,
    Seen,
)
from anabranch.runtime.policies.policy import Scale

COSTS = {"lines": 0.0001, "split": 0.004, "out": 0.0005}
CHAIN = {"lines": ((), ("split",)), "split": (("lines",), ("out",)), "out": (("split",), ())}
SPLITS = 2.0


class Plant:
    """A pipeline of three operators with these costs, on hosts, as instances would report it."""

    def __init__(self, hosts: int = 0, host_busy: float | None = None) -> None:
        self.now_s = 0.0
        self.n = dict.fromkeys(COSTS, 1)
        self.hosts = hosts
        self.host_busy = host_busy
        self._totals: dict[str, list[float]] = {}

    def look(self, load: float, after_s: float = 1.0) -> Look:
        self.now_s += after_s
        rates = {"lines": load, "split": load, "out": SPLITS * load}
        operators, where = {}, {}
        for name, (up, down) in CHAIN.items():
            rate, seen = min(1 / COSTS[name], rates[name] / self.n[name]), []
            for number in range(self.n[name]):
                totals = self._totals.setdefault(f"{name}.{number}", [0.0, 0.0])
                totals[0] += rate * after_s
                totals[1] += COSTS[name] * rate * after_s
                where[f"{name}.{number}"] = "home"
                seen.append(Seen(f"{name}.{number}", self._reading(name, totals, load, down)))
            scale = Scale(max_instances=8) if name == "split" else Scale(max_instances=1)
            operators[name] = OperatorLook(
                name=name, scale=scale, upstream=up, downstream=down, instances=tuple(seen),
                processed_total=sum(s.reading.processed_total for s in seen),
            )  # fmt: skip
        hosts = tuple(HostLook(f"host{n}", 1.0) for n in range(self.hosts))
        pool = PoolLook(hosts, 4, where) if hosts else None
        return Look(self.now_s, operators, ("split",), pool)

    def _reading(
        self, name: str, totals: list[float], load: float, down: tuple[str, ...]
    ) -> Reading:
        done, busy_s = totals
        sent = {below: round(done * (SPLITS if name == "split" else 1)) for below in down}
        return Reading(
            now_s=self.now_s, instances=self.n[name], instances_changed_s=0.0, covered_s=9.0,
            processed_total=done, busy_total_s=busy_s, cpu_total_s=busy_s, sent_to=sent,
            demand_per_s=load if name == "lines" else None, host_busy=self.host_busy,
        )  # fmt: skip


def course(
    policy: Elysium, plant: Plant, load: float, seconds: int, memory: ElysiumMemory | None = None
) -> tuple[list[Plan], ElysiumMemory]:
    """Plans are carried out at once."""
    memory = memory or policy.born({}, plant.now_s)
    plans = []
    for _ in range(seconds):
        plan, memory = policy.assess(plant.look(load), memory, Random(0))
        if plan is not None:
            plans.append(plan)
            plant.n |= plan.wanted
    return plans, memory


def test_it_plans_what_the_load_needs_at_once() -> None:
    plans, _ = course(Elysium(every_s=12), Plant(), 500, 40)
    # A core does 250/s; of 65 % of it four are needed.
    assert [dict(plan.wanted) for plan in plans] == [{"split": 4}] * 3
    assert "split 500/s, 50% of a core each at 4" in plans[0].why


def test_it_says_nothing_before_a_period_has_passed() -> None:
    plans, _ = course(Elysium(every_s=60), Plant(), 500, 59)
    assert plans == []


def test_it_keeps_within_its_bounds_and_comes_down_again() -> None:
    plant, policy = Plant(), Elysium(every_s=12)
    _, memory = course(policy, plant, 5_000, 30)
    assert plant.n["split"] == 8
    course(policy, plant, 50, 60, memory)
    assert plant.n["split"] == 1


def test_only_operators_that_have_chosen_it_are_named() -> None:
    plans, _ = course(Elysium(every_s=12), Plant(), 1_500, 20)
    assert {name for plan in plans for name in plan.wanted} == {"split"}


@pytest.mark.parametrize(("load", "hosts"), [(100, 1), (300, 3), (5_000, 4)])
def test_it_plans_hosts_for_the_cores_of_all_instances(load: float, hosts: int) -> None:
    """EL9: split 0.4 cores at 100/s; 1.2 and out 0.3 at 300/s; more than four hosts have."""
    plans, _ = course(Elysium(every_s=12), Plant(hosts=1), load, 40)
    assert plans[-1].hosts == hosts
    assert ("too few" in plans[-1].why) == (load == 5_000)


def test_without_a_pool_it_plans_no_hosts() -> None:
    plans, _ = course(Elysium(every_s=12), Plant(), 300, 40)
    assert plans[-1].hosts is None


def test_what_it_learnt_survives_it() -> None:
    policy, plant = Elysium(every_s=12), Plant()
    _, memory = course(policy, plant, 100, 60)
    left = policy.heritage(memory, plant.now_s)
    again = policy.born(left, 0.0)
    assert policy.heritage(again, 0.0) == left
    assert again.evidence.costs()["split"](100.0) == pytest.approx(0.4, rel=0.01)


def test_an_instance_that_began_anew_teaches_nothing_wrong() -> None:
    policy, plant = Elysium(every_s=12), Plant()
    _, memory = course(policy, plant, 100, 12)
    plant._totals.clear()
    plans, _ = course(policy, plant, 100, 24, memory)
    assert [dict(plan.wanted) for plan in plans] == [{"split": 1}] * len(plans) != []


def test_a_wait_for_a_processor_is_no_need_for_instances() -> None:
    """Busy all the time, half of which the host had no processor for it."""

    def waiting(look: Look) -> Look:
        split = look.operators["split"]
        seen = tuple(
            replace(s, reading=replace(s.reading, cpu_wait=0.3, busy_total_s=0.8 * look.now_s,
                                       cpu_total_s=0.5 * look.now_s))
            for s in split.instances
        )  # fmt: skip
        operators: Mapping[str, OperatorLook] = {
            **look.operators, "split": replace(split, instances=seen)
        }  # fmt: skip
        return replace(look, operators=operators)

    policy, plant, plans = Elysium(every_s=12), Plant(), []
    memory = policy.born({}, 0.0)
    for _ in range(30):
        plan, memory = policy.assess(waiting(plant.look(100)), memory, Random(0))
        plans += [plan] if plan is not None else []
    assert [dict(plan.wanted) for plan in plans] == [{"split": 1}] * len(plans) != []


def test_a_forecast_load_counts_before_it_comes() -> None:
    """EL7: a sine is learnt in its first periods, and foreseen from then on."""

    def loads(period: int) -> float:
        return 300.0 + 200.0 * (1 if period % 12 >= 6 else -1)

    found = {}
    for ahead in (0, 2):
        policy, plant = Elysium(every_s=6, ahead=ahead), Plant()
        memory, course_of = policy.born({}, 0.0), []
        for period in range(96):
            for _ in range(6):
                plan, memory = policy.assess(plant.look(loads(period)), memory, Random(0))
                plant.n |= plan.wanted if plan is not None else {}
            course_of.append((period, plant.n["split"]))
        found[ahead] = course_of
    # The last periods before the load rises.
    before = [period for period in range(60, 96) if period % 12 == 5]
    assert all(n == 1 for period, n in found[0] if period in before)
    assert all(n == 4 for period, n in found[2] if period in before)


def test_operators_of_a_pipeline_scale_as_their_costs_say() -> None:
    pipeline = ab.Pipeline("chain")
    scale = ab.Scale(max_instances=8, period_s=1.0, policy=ab.policies.Elysium(every_s=6))
    numbers = pipeline.source("numbers", ab.generate(lambda n: n, count=9_000, rate=300))
    checked = numbers.map("check", abs, scale=scale)
    checked.map("work", abs, scale=scale).sink("out", ab.discard())
    load, capacity = "step:before=10,after=70,at_s=20", {"check": 50.0, "work": 25.0}
    found = ab.testing.scaled(pipeline, load, capacity=capacity, seconds=45)
    courses = {name: found.courses[name].instances for name in ("check", "work")}
    assert courses["check"][15] == courses["work"][15] == 1
    assert (courses["check"][-1], courses["work"][-1]) == (3, 5)
