"""The multi-metric rule as a policy: windows of an instance's own totals."""

from __future__ import annotations

import random
from typing import Any

import pytest

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.decision import Decision, Hold, Resize
from anabranch.runtime.policies.multi_metric.policy import MultiMetric
from anabranch.runtime.policies.multi_metric.windows import WindowMemory
from anabranch.runtime.policies.policy import Scale, policy_of
from anabranch.runtime.values.checks import PipelineError

POLICY = MultiMetric(window_s=25.0)
SCALE = Scale(max_instances=50, capacity=100.0)


def course(policy: MultiMetric, seen: list[dict[str, Any]], scale: Scale = SCALE) -> list[Decision]:
    """What it decides at the ends of windows with these readings."""
    memory: WindowMemory = policy.begin()
    made = []
    for number, values in enumerate(seen):
        now_s = number * policy.window_s + 0.05
        reading = Reading(
            now_s=now_s, instances=2, instances_changed_s=0.0, covered_s=now_s, **values
        )
        decision, memory = policy.decide(reading, scale, memory, random.Random(1))
        made.append(decision)
    return made


def windows(*totals: tuple[float, float, int]) -> list[dict[str, Any]]:
    names = ("processed_total", "busy_total_s", "queued")
    return [dict(zip(names, values, strict=True)) for values in totals]


def test_it_acts_when_a_state_has_held_for_two_windows() -> None:
    """MM8; with U 1, E 0 and q = 4 mu, delta is .7875."""
    busy = [(2500.0 * i, 25.0 * i, 10_000) for i in range(4)]
    decisions = course(POLICY, windows(*busy))
    assert [isinstance(d, Resize) for d in decisions] == [False, False, True, True]
    assert decisions[2] == Resize(3, "")
    assert "overloaded: delta 0.79" in decisions[2].explanation.text


def test_full_without_a_backlog_is_stable_and_idle_is_underloaded() -> None:
    """MM-C1 and MM-C2."""
    full = course(POLICY, windows(*[(2500.0 * i, 25.0 * i, 0) for i in range(4)]))
    assert {type(d) for d in full} == {Hold}
    idle = course(POLICY, windows(*[(10.0 * i, 0.1 * i, 0) for i in range(4)]))
    assert idle[2:] == [Resize(1, ""), Resize(1, "")]


def test_the_gate_closes_where_hosts_slow_the_work_down() -> None:
    """MM-C6: at 3.33 times the work without load."""
    alone = MultiMetric(window_s=25.0, of_utilisation=1.0, of_queue=0.0, of_slowdown=0.0)
    slow = windows(*[(600.0 * i, 25.0 * i, 0) for i in range(4)])
    assert {type(d) for d in course(alone, slow)} == {Hold}
    less = windows(*[(900.0 * i, 25.0 * i, 0) for i in range(4)])
    assert isinstance(course(alone, less)[3], Resize)


def test_work_without_load_is_learnt_where_no_capacity_is_given_and_inherited() -> None:
    memory = POLICY.begin()
    for number in range(3):
        reading = Reading(
            now_s=25.0 * number,
            instances=1,
            instances_changed_s=0.0,
            covered_s=1.0,
            processed_total=100.0 * number,
            busy_total_s=2.0 * number,
        )
        _, memory = POLICY.decide(reading, Scale(), memory, random.Random(1))
    assert memory.unloaded_s == 0.02
    assert POLICY.born(POLICY.heritage(memory, 75.0), 0.0).unloaded_s == 0.02


def test_part_of_a_window_says_nothing() -> None:
    _, memory = POLICY.decide(
        Reading(now_s=20.0, instances=1, instances_changed_s=0.0, covered_s=1.0),
        SCALE,
        POLICY.begin(),
        random.Random(1),
    )
    decision, memory = POLICY.decide(
        Reading(
            now_s=25.0,
            instances=1,
            instances_changed_s=0.0,
            covered_s=1.0,
            processed_total=500.0,
            busy_total_s=5.0,
        ),
        SCALE,
        memory,
        random.Random(1),
    )
    assert isinstance(decision, Hold)
    assert memory.state is None


@pytest.mark.parametrize("name", ["multi-metric", "multi-metric-summed", "multi-metric-central"])
def test_overloaded_is_above_underloaded(name: str) -> None:
    with pytest.raises(PipelineError, match=r"expected under <= over, got 0\.3 and 0\.1"):
        policy_of({"name": name, "over": 0.1})
