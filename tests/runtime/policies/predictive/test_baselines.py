"""The baselines of predictive control as policies (PL12): rules, and all there may be."""

from __future__ import annotations

import random
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.measuring.reading import Figures, Reading
from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.policies.decision import Decision, Hold, Resize
from anabranch.runtime.policies.policy import Policy, Scale
from anabranch.runtime.policies.predictive.baselines import LatencyRules, Peak, Rules
from anabranch.runtime.values.checks import PipelineError

SCALE = Scale(max_instances=12)
WORK_S = 0.01


def reading(n: int, load: float, *, waiting: float = 0.0, wait_s: float = 0.0) -> Reading:
    """Of one of `n` siblings that each had this load in slot 9; tuples waited for `wait_s`."""
    rate = n * load / WORK_S
    busy_s = rate * WORK_S
    sums = SlotSums(1.0, rate, rate, busy_s, queue_s=rate * wait_s, backlog=waiting)
    own = Figures(9, 1, sums)
    return Reading(
        now_s=10.1,
        instances=n,
        instances_changed_s=0.0,
        covered_s=10.0,
        own=own,
        operator=Figures(9, n, sums),
    )


def decided(policy: Policy[Any], seen: Reading) -> Decision:
    decision, memory = policy.decide(seen, SCALE, policy.begin(), random.Random(1))
    again, _ = policy.decide(seen, SCALE, memory, random.Random(1))
    assert isinstance(again, Hold) or isinstance(policy, Peak)
    return decision


@pytest.mark.parametrize(
    ("load", "waiting", "n"), [(0.81, 0, 9), (0.79, 0, 6), (0.74, 0, 3), (0.76, 50, 9)]
)
def test_pl12_rules_say_three_more_or_fewer_once_a_period(
    load: float, waiting: float, n: int
) -> None:
    assert decided(Rules(), reading(6, load, waiting=waiting)) == Resize(n, "so")


@pytest.mark.parametrize(("wait_ms", "n"), [(101, 7), (99, 6), (61, 6), (59, 5)])
def test_pl12_latency_rules_say_one_more_or_fewer(wait_ms: float, n: int) -> None:
    """Of 100 ms, with 10 ms of work."""
    policy = LatencyRules(latency_ms=100)
    assert decided(policy, reading(6, 0.5, wait_s=wait_ms / 1000)) == Resize(n, "so")


def test_thresholds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(PipelineError, match=r"rules: expected low <= high, got 0\.9 and 0\.8"):
        Rules(low=0.9)
    with pytest.raises(PipelineError, match="latency-rules: expected under <= over"):
        LatencyRules(under=2.0)


def instances(policy: Policy[Any], load: str) -> list[int]:
    pipeline = ab.Pipeline("baselines")
    scale = ab.Scale(max_instances=12, policy=policy)
    numbers = pipeline.source("numbers", ab.items([1]))
    numbers.map("work", str, scale=scale).sink("out", ab.discard())
    found = ab.testing.scaled(pipeline, load, capacity={"work": 50}, seconds=30)
    return found.courses["work"].instances


def test_peak_is_all_instances_from_the_beginning() -> None:
    assert set(instances(Peak(), "50")) == {12}


def test_rules_follow_a_step_by_threes() -> None:
    course = instances(Rules(), "step:before=40,after=330,at_s=10")
    assert {1, 4, 7} <= set(course)
    assert course[-1] >= 6


def test_latency_rules_follow_a_step_one_by_one() -> None:
    course = instances(LatencyRules(), "step:before=40,after=330,at_s=10")
    assert set(range(1, 8)) <= set(course)
