"""Predictive control as a policy: what instances make of the sums that they are told."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.measuring.reading import Figures, Reading
from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.policies.decision import Decision, Hold, Resize
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.policies.predictive.policy import Predictive
from anabranch.runtime.policies.predictive.steps import StepMemory

SCALE = Scale(max_instances=16)
POLICY = Predictive(latency_ms=100)


def sums(rate: float, work_s: float = 0.01) -> SlotSums:
    return SlotSums(seconds=1.0, arrived=rate, processed=rate, busy_s=rate * work_s)


def reading(slot: int, after_s: float = 0.2, **changes: Any) -> Reading:
    """Of one of two siblings, so long after the end of a slot."""
    seen = Reading(
        now_s=slot + 1 + after_s, instances=2, instances_changed_s=0.0, covered_s=50.0, rank=1
    )
    return replace(seen, **{"own": Figures(slot, 1, sums(150.0))} | changes)


def decided(seen: Reading, memory: StepMemory | None = None) -> tuple[Decision, StepMemory]:
    return POLICY.decide(seen, SCALE, memory or POLICY.begin(), random.Random(1))


def test_siblings_that_are_told_the_same_sums_say_the_same_number() -> None:
    told = Figures(9, 2, sums(700.0))
    mine, yours = (reading(9, operator=told, own=Figures(9, 1, sums(r))) for r in (10.0, 690.0))
    one, other = decided(mine)[0], decided(yours)[0]
    assert isinstance(one, Resize)
    assert one == other
    assert one.n > 7


def test_a_sibling_that_has_seen_another_one_leave_says_the_same_number_too() -> None:
    told = reading(9, operator=Figures(9, 4, sums(100.0)))
    early, late = (decided(replace(told, instances=n))[0] for n in (4, 3))
    assert isinstance(early, Resize)
    assert early == late
    assert early.n == 3


def test_it_waits_for_the_sums_and_then_goes_by_its_own_figures() -> None:
    waits, memory = decided(reading(9, after_s=0.2))
    assert isinstance(waits, Hold)
    decision, memory = decided(reading(9, after_s=0.6), memory)
    assert decision == decided(reading(9, operator=Figures(9, 2, sums(300.0))))[0]
    again, _ = decided(reading(9, after_s=0.7), memory)
    assert isinstance(again, Hold)


def test_sums_of_an_earlier_slot_do_not_count() -> None:
    assert isinstance(decided(reading(9, operator=Figures(8, 2, sums(700.0))))[0], Hold)


@pytest.mark.parametrize(
    "changes", [{"instances_changed_s": 9.5}, {"own": Figures(9, 1, SlotSums(seconds=0.4))}]
)
def test_without_sums_an_uneven_slot_decides_nothing(changes: dict[str, Any]) -> None:
    assert isinstance(decided(reading(9, after_s=0.6, **changes))[0], Hold)


def test_a_newcomer_inherits_filter_feedback_and_load() -> None:
    memory = POLICY.begin()
    for slot, rate in enumerate([300.0, 320.0, 360.0], 9):
        _, memory = decided(reading(slot, operator=Figures(slot, 2, sums(rate))), memory)
    child = POLICY.born(POLICY.heritage(memory, 12.0), 99.0)
    assert child.known == memory.known
    assert POLICY.born({}, 0.0) == POLICY.begin()


def test_a_capacity_that_is_given_wins_over_the_measured_one() -> None:
    told = Figures(9, 2, sums(300.0, work_s=0.001))
    given = replace(SCALE, capacity=50.0)
    seen = reading(9, operator=told)
    slow, _ = POLICY.decide(seen, given, POLICY.begin(), random.Random(1))
    fast, _ = decided(seen)
    assert isinstance(slow, Resize)
    assert isinstance(fast, Resize)
    assert slow.n > fast.n


def pipeline_of(policy: ab.policies.Policy[Any]) -> ab.Pipeline:
    made = ab.Pipeline("made")
    scale = ab.Scale(max_instances=12, policy=policy)
    made.source("lines", ab.items([1])).map("work", str, scale=scale).sink("out", ab.discard())
    return made


def test_in_virtual_time_sums_reach_all_siblings_in_almost_every_period() -> None:
    told: list[bool] = []

    @dataclass(frozen=True)
    class Watched(Predictive):
        def decide(
            self, reading: Reading, scale: Scale, memory: StepMemory, rng: random.Random
        ) -> tuple[Decision, StepMemory]:
            decision, after = super().decide(reading, scale, memory, rng)
            if after.slot != memory.slot:
                told.append(reading.operator is not None and reading.operator.slot == after.slot)
            return decision, after

    ab.testing.scaled(pipeline_of(Watched()), 200, capacity={"work": 50}, seconds=30)
    assert len(told) > 100
    assert sum(told) / len(told) > 0.95


def test_it_grows_at_once_to_what_a_step_needs_and_holds_the_bound() -> None:
    load = "step:before=50,after=350,at_s=10"
    policy = Predictive(latency_ms=250, horizon=2)
    found = ab.testing.scaled(pipeline_of(policy), load, capacity={"work": 50}, seconds=30)
    work, out = found.courses["work"], found.courses["out"]
    late = [p for t, p in zip(found.t, out.p50_ms, strict=True) if t > 15 and p is not None]
    assert max(late) < 250
    assert min(n for t, n in zip(found.t, work.instances, strict=True) if t > 15) >= 7
