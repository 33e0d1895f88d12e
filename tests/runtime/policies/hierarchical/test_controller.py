"""The hierarchy as a controller of what instances report: HI4 to HI19 on looks."""

from __future__ import annotations

from random import Random

import pytest

import anabranch as ab
from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.hierarchical.controller import Hierarchy
from anabranch.runtime.policies.hierarchical.inheriting import heritage_of, inherited
from anabranch.runtime.policies.hierarchical.learning import RegionLearner, RegionView
from anabranch.runtime.policies.hierarchical.managers import HierarchyMemory
from anabranch.runtime.policies.look_and_plan import (
    HostLook,
    Look,
    OperatorLook,
    Plan,
    PoolLook,
    Seen,
)
from anabranch.runtime.policies.policy import Scale

WORK_S = 0.01
SCALE = Scale(max_instances=6)


class Plant:
    """A source and an operator of which an instance works 10 ms for a tuple, on hosts of two slots,
    as they would report it. Plans are carried out at once."""

    def __init__(self, hosts: int, hosts_max: int = 5) -> None:
        self.now_s = 0.0
        self.n = 1
        self.hosts, self.hosts_max = hosts, hosts_max
        self.refused = ""
        self.coming = 0
        self._done = [0.0] * 99
        self._read = 0.0

    def look(self, load: float) -> Look:
        self.now_s += 1.0
        self._read += load
        rate, seen = min(1 / WORK_S, load / self.n), []
        late = load / self.n > 1 / WORK_S
        for number in range(self.n):
            self._done[number] += rate
            done = self._done[number]
            seen.append(
                Seen(f"work.{number}", Reading(
                    now_s=self.now_s, instances=self.n, instances_changed_s=0.0, covered_s=9.0,
                    processed_total=done, busy_total_s=WORK_S * done, capacity=1 / WORK_S,
                    here_total_s=done * (3.0 if late else 0.02), received_per_s=rate,
                ))
            )  # fmt: skip
        source = Seen("lines.0", Reading(
            now_s=self.now_s, instances=1, instances_changed_s=0.0, covered_s=9.0,
            processed_total=self._read, sent_to={"work": round(self._read)}, demand_per_s=load,
        ))  # fmt: skip
        where = {f"work.{n}": f"host{min(n // 2, self.hosts - 1)}" for n in range(self.n)}
        pool = PoolLook(
            tuple(HostLook(f"host{h}", 2.0) for h in range(self.hosts)), self.hosts_max,
            where | {"lines.0": "host0"}, self.refused,
        )  # fmt: skip
        operators = {
            "lines": OperatorLook(name="lines", downstream=("work",), instances=(source,)),
            "work": OperatorLook(
                name="work", scale=SCALE, upstream=("lines",), instances=tuple(seen),
                coming=self.coming,
            ),
        }  # fmt: skip
        return Look(self.now_s, operators, ("work",), pool if self.hosts_max else None)


def course(
    policy: Hierarchy, plant: Plant, load: float, seconds: int, memory: HierarchyMemory | None
) -> tuple[list[Plan], HierarchyMemory]:
    memory = memory or policy.born({}, plant.now_s)
    plans = []
    for _ in range(seconds):
        plan, memory = policy.assess(plant.look(load), memory, Random(0))
        if plan is not None:
            plans.append(plan)
            plant.n = plan.wanted["work"]
            plant.hosts = plan.hosts or plant.hosts
    return plans, memory


BY_RULES = Hierarchy(operators="threshold", hosts="simple", every_s=2, idle=1)


def test_by_thresholds_it_grows_by_one_as_far_as_the_load_asks_and_comes_down_again() -> None:
    """HI4: above 75 % of use one more; one less where the others would be used less than 56 %."""
    plant = Plant(hosts=2)
    plans, memory = course(BY_RULES, plant, 220, 30, None)
    sizes = [plan.wanted["work"] for plan in plans]
    assert sizes[:3] == [2, 3, 3]
    assert set(sizes[3:]) == {3}
    course(BY_RULES, plant, 20, 20, memory)
    assert plant.n == 1


def test_simple_hosts_keep_so_many_idle() -> None:
    """HI5."""
    plant = Plant(hosts=1)
    _, memory = course(BY_RULES, plant, 250, 40, None)
    assert (plant.n, plant.hosts) == (4, 3)
    course(BY_RULES, plant, 20, 40, memory)
    assert (plant.n, plant.hosts) == (1, 2)


def test_without_a_free_slot_an_instance_is_refused() -> None:
    """HI16, and its reason is in the plan."""
    plant, fixed = Plant(hosts=1), Hierarchy(operators="threshold", hosts="fixed", every_s=2)
    plans, _ = course(fixed, plant, 400, 12, None)
    assert [plan.wanted["work"] for plan in plans[-2:]] == [2, 2]
    assert "work +1 no free slot" in plans[-1].why
    assert plans[-1].hosts is None


def test_learnt_hosts_open_where_instances_are_refused_and_close_when_they_are_idle() -> None:
    """HI6 to HI13: a refusal costs more than a host."""
    plant = Plant(hosts=1)
    policy = Hierarchy(operators="threshold", every_s=1)
    _, memory = course(policy, plant, 250, 60, None)
    assert (plant.n, plant.hosts) == (4, 2)
    plans, _ = course(policy, plant, 20, 60, memory)
    assert (plant.n, plant.hosts) == (1, 1)
    assert "Q of 0 " in plans[-1].why


def test_learnt_operators_leave_the_size_that_is_too_slow() -> None:
    """HI14."""
    plant, policy = Plant(hosts=3), Hierarchy(hosts="fixed", every_s=1, response_ms=500)
    course(policy, plant, 250, 120, None)
    assert plant.n >= 3


def test_tokens_bound_the_changes() -> None:
    """HI16: one at once, and one more after four assessments."""
    plant = Plant(hosts=3)
    slow = Hierarchy("threshold", "fixed", every_s=1, tokens=1, tokens_each=0.25)
    plans, _ = course(slow, plant, 500, 10, None)
    assert [plan.wanted["work"] for plan in plans[:6]] == [2, 2, 2, 2, 3, 3]


def test_a_host_that_was_asked_for_is_not_asked_for_twice() -> None:
    plant, memory = Plant(hosts=1), BY_RULES.born({}, 0.0)
    asked = []
    for _ in range(20):
        plan, memory = BY_RULES.assess(plant.look(20), memory, Random(0))
        asked += [plan.hosts] if plan else []
    assert set(asked) == {2}
    plant.refused = "no power"
    plans, _ = course(BY_RULES, plant, 20, 2, memory)
    assert "(refused: no power)" in plans[-1].why


def test_without_a_pool_it_plans_instances_only() -> None:
    plans, _ = course(BY_RULES, Plant(hosts=1, hosts_max=0), 220, 12, None)
    assert {plan.hosts for plan in plans} == {None}
    assert plans[-1].wanted == {"work": 3}


def test_what_was_learnt_is_left_and_taken_again() -> None:
    policy, plant = Hierarchy(every_s=1, response_ms=500), Plant(hosts=1)
    _, memory = course(policy, plant, 250, 100, None)
    left = policy.heritage(memory, plant.now_s)
    again = policy.born(left, plant.now_s)
    assert policy.heritage(again, plant.now_s) == left
    _, again = course(policy, plant, 250, 2, again)
    known, new = memory.operators["work"].learnt, again.operators["work"].learnt
    assert known is not None
    assert new is not None
    assert (known.tables.costs == new.tables.costs).all()
    assert left.keys() <= policy.heritage(again, plant.now_s).keys()


def test_inherited_tables_have_the_costs_and_counts_and_the_q_that_follows() -> None:
    """HI9: sweeps converge to what would be found from the same costs and counts."""
    learner = RegionLearner(hosts_max=4)
    learnt = learner.begin()
    rng = Random(3)
    for _ in range(400):
        view = RegionView(rng.randint(0, 4), rng.randint(0, 1), 0, rng.random(), rng.randint(0, 1))
        _, learnt = learner.decide(view, learnt)
    left = heritage_of("(hosts)", learnt)
    found = inherited("(hosts)", left, learner.form, learner.weights)
    for name in ("costs", "levels", "flags"):
        assert (getattr(found.tables, name) == getattr(learnt.tables, name)).all()
    settled = found.tables.values()
    for _ in range(300):
        learnt.tables.sweep()
    assert learnt.tables.values() == pytest.approx(settled, abs=0.5)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_damaged_numbers_and_those_of_other_settings_are_left_out(value: float) -> None:
    learner = RegionLearner(hosts_max=4)
    _, learnt = learner.decide(RegionView(1, 0, 0, 0.5, 1), learner.begin())
    _, learnt = learner.decide(RegionView(1, 0, 0, 0.6, 1), learnt)
    left = heritage_of("(hosts)", learnt)
    assert left
    fresh = learner.begin().tables
    damaged = dict.fromkeys(left, value) | {"(hosts)": 1.0, "(hosts) what costs x": 1.0}
    other = RegionLearner(hosts_max=4, w_d=0.5)
    for heritage, of in ((damaged, learner), (left, other)):
        found = inherited("(hosts)", heritage, of.form, of.weights).tables
        assert (found.costs == fresh.costs).all()
        assert (found.levels == fresh.levels).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hosts": "none"}, "one of 'learn', 'simple', 'fixed'"),
        ({"refusal_weight": 1.5}, "0 to 1"),
        ({"every_s": 0}, "above 0"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ab.PipelineError, match=message):
        Hierarchy(**settings)  # type: ignore[arg-type]
