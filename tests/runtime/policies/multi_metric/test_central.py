"""The central planner of the multi-metric rule beside what instances find by themselves."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.runtime.policies.control import Sight
from anabranch.runtime.policies.decision import Resize
from anabranch.runtime.policies.look_and_plan import OperatorLook, Plan
from anabranch.runtime.policies.multi_metric.central import MultiMetricCentral
from anabranch.runtime.policies.multi_metric.policy import MultiMetric
from anabranch.runtime.policies.policy import Policy, Scale
from tests.runtime.policies.looks import SCALE, look, seen

WINDOW = st.tuples(st.integers(0, 400), st.floats(0, 5.0), st.integers(0, 2000))
"""Of one instance: tuples, seconds of work on them, tuples that wait."""
RNG = random.Random(1)


@given(st.integers(1, 20), st.lists(WINDOW, min_size=1, max_size=6))
def test_on_even_loads_it_plans_what_instances_say_by_themselves(
    n: int, windows: list[tuple[int, float, int]]
) -> None:
    """MM-D2 acts as (a) on even loads."""
    central, alone = MultiMetricCentral(window_s=5), MultiMetric(window_s=5)
    planner, memory = central.begin(), alone.begin()
    processed, busy_s = 0.0, 0.0
    for index, (tuples, work_s, waiting) in enumerate([(0, 0.0, 0), *windows]):
        processed, busy_s = processed + tuples, busy_s + work_s
        now_s = 5.0 * index + 0.1
        mine = seen(
            0, now_s=now_s, instances=n, queued=waiting, processed_total=processed,
            busy_total_s=busy_s,
        )  # fmt: skip
        at = look(now_s, [mine] * n, processed_total=n * processed, busy_total_s=n * busy_s)
        said, memory = alone.decide(mine.reading, SCALE, memory, RNG)
        plan, planner = central.assess(at, planner, RNG)
        wanted = plan.wanted["work"] if plan is not None else n
        assert wanted == (said.n if isinstance(said, Resize) else n)


def test_another_incarnation_knows_how_long_a_tuple_takes_without_load() -> None:
    central = MultiMetricCentral(window_s=5)
    _, memory = central.assess(look(0.0, 1), central.begin(), RNG)
    at = look(5.0, 1, processed_total=100.0, busy_total_s=2.0)
    plan, memory = central.assess(at, memory, RNG)
    assert plan is not None
    assert plan == Plan({"work": 1}, plan.why)
    assert "work stable: delta" in plan.why or "work underloaded: delta" in plan.why
    assert central.heritage(memory, 5.0) == {"work": 0.02}
    assert central.born({"work": 0.02}, 9.0)["work"].unloaded_s == 0.02


@given(st.lists(st.floats(0, 0.24), min_size=8, max_size=8), st.floats(0.75, 0.95))
def test_when_readings_come_makes_no_difference_to_a_steady_load(
    ages: list[float], busy: float
) -> None:
    """A reading is up to a quarter of a second old when the planner looks."""
    planner = MultiMetricCentral(window_s=0.5, of_utilisation=1.0, of_queue=0.0, of_slowdown=0.0)
    sight, memory = Sight([OperatorLook(name="work", scale=SCALE)]), planner.begin()
    plans = []
    for k, age_s in enumerate(ages):
        now_s = 0.5 * k + 0.1
        at_s = now_s - age_s
        told = seen(0, now_s=at_s, processed_total=100 * at_s, busy_total_s=busy * at_s)
        plan, memory = planner.assess(
            sight.look(now_s, {"work": [told]}, {}).of(("work",)), memory, RNG
        )
        plans.append(plan and plan.wanted["work"])
    assert plans == [None, 1] + [2] * 6


def courses(policy: Policy[object]) -> list[list[int]]:
    pipeline = ab.Pipeline("chain")
    scale = Scale(max_instances=12, policy=policy)
    stream = pipeline.source("numbers", ab.items([1])).map("work", str, scale=scale)
    stream.map("more", str, scale=scale).sink("out", ab.discard())
    load, capacity = "step:before=8,after=24,at_s=10", {"work": 10.0, "more": 20.0}
    found = ab.testing.scaled(pipeline, load, capacity=capacity, seconds=50)
    return [found.courses[name].instances for name in ("work", "more")]


def test_in_virtual_time_both_come_to_about_the_same() -> None:
    by_load = {"window_s": 2.0, "of_utilisation": 1.0, "of_queue": 0.0, "of_slowdown": 0.0}
    for central, alone in zip(
        courses(MultiMetricCentral(**by_load)), courses(MultiMetric(**by_load)), strict=True  # type: ignore[arg-type]
    ):  # fmt: skip
        near = sum(abs(a - b) <= 1 for a, b in zip(central, alone, strict=True))
        assert near / len(central) > 0.9
        assert central[-1] > 1
