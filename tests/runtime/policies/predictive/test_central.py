"""The predictive controller for several operators beside what instances find in concert."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.runtime.measuring.reading import Figures
from anabranch.runtime.measuring.slot_meter import added
from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.policies.decision import Decision, Move, Resize
from anabranch.runtime.policies.look_and_plan import Look, Plan, Seen
from anabranch.runtime.policies.policy import Policy, Scale
from anabranch.runtime.policies.predictive.central import PredictiveCentral
from anabranch.runtime.policies.predictive.policy import Predictive
from tests.runtime.policies.looks import SCALE, look, seen

RNG = random.Random(1)
CENTRAL, ALONE = PredictiveCentral(latency_ms=100), Predictive(latency_ms=100)


def sums(load: float) -> SlotSums:
    """Of tuples of 1 ms."""
    return SlotSums(1.0, 1000 * load, 1000 * load, load)


def told(slot: int, loads: list[float], *, keyed: bool) -> list[Seen]:
    """Instances that had these loads in a slot, as each of them knows it."""
    own = [Figures(slot, 1, sums(load)) for load in loads]
    return [
        seen(
            rank, now_s=slot + 1.2, instances=len(loads), rank=rank, keyed=keyed, own=own[rank],
            operator=added(own),
        )
        for rank in range(len(loads))
    ]  # fmt: skip


def at(slot: int, instances: list[Seen], *, keyed: bool) -> Look:
    return look(slot + 1.2, instances, keyed=keyed)


loads = st.lists(st.floats(0.01, 1.5), min_size=1, max_size=8)


@given(st.lists(loads, min_size=1, max_size=5), st.booleans())
def test_it_plans_what_instances_find_in_concert(slots: list[list[float]], keyed: bool) -> None:
    planner, memory = CENTRAL.begin(), ALONE.begin()
    for slot, of in enumerate(slots):
        instances = told(slot, of, keyed=keyed)
        plan, planner = CENTRAL.assess(at(slot, instances, keyed=keyed), planner, RNG)
        said: list[Decision] = []
        for one in instances:
            decision, after = ALONE.decide(one.reading, SCALE, memory, RNG)
            said.append(decision)
        memory = after
        assert plan is not None
        moves = {i: d for i, d in enumerate(said) if isinstance(d, Move)}
        shifts = {s.giver: (s.receiver, s.share) for s in plan.shifts}
        assert shifts == {
            f"work.{i}": (f"work.{move.to_rank}", move.share) for i, move in moves.items()
        }
        resized = {d.n for d in said if isinstance(d, Resize)}
        assert resized in ({plan.wanted["work"]}, set())


def test_a_slot_that_not_all_have_told_yet_plans_nothing() -> None:
    instances = told(9, [0.5, 0.6], keyed=False)
    late = replace(instances[1].reading, own=Figures(8, 1, sums(0.6)))
    plan, _ = CENTRAL.assess(
        at(9, [instances[0], Seen("work.1", late)], keyed=False), CENTRAL.begin(), RNG
    )
    assert plan is None


def test_another_incarnation_inherits_filter_feedback_and_load_of_each_operator() -> None:
    memory = CENTRAL.begin()
    for slot, load in enumerate([0.5, 0.6, 0.8]):
        instances = told(slot, [load, load], keyed=False)
        _, memory = CENTRAL.assess(at(slot, instances, keyed=False), memory, RNG)
    new_owner = CENTRAL.born(CENTRAL.heritage(memory, 3.0), 99.0)
    assert new_owner["work"].known == memory["work"].known


def instances_of(policy: Policy[Any]) -> list[int]:
    pipeline = ab.Pipeline("step")
    scale = Scale(max_instances=12, policy=policy)
    numbers = pipeline.source("numbers", ab.items([1]))
    numbers.map("work", str, scale=scale).sink("out", ab.discard())
    load = "step:before=10,after=70,at_s=10"
    found = ab.testing.scaled(pipeline, load, capacity={"work": 10}, seconds=30)
    return found.courses["work"].instances


def test_in_virtual_time_it_follows_a_step() -> None:
    course = instances_of(PredictiveCentral(latency_ms=400))
    assert course[30] <= 4
    assert min(course[-40:]) >= 6  # even arrivals leave no reason for a reserve above seven


def test_a_plan_without_steps_is_no_plan() -> None:
    assert CENTRAL.assess(look(1.0, 0), CENTRAL.begin(), RNG)[0] is None
    assert Plan() == Plan({}, "", ())
