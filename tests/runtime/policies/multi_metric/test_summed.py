"""The multi-metric rule by told sums (MM-D3): all siblings say what one planner would."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.runtime.measuring.reading import Figures, Reading
from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.policies.decision import Decision, Resize
from anabranch.runtime.policies.multi_metric.central import MultiMetricCentral
from anabranch.runtime.policies.multi_metric.policy import MultiMetric
from anabranch.runtime.policies.multi_metric.summed import MultiMetricSummed
from anabranch.runtime.policies.policy import Policy, Scale
from tests.runtime.policies.looks import SCALE, look, seen

RNG = random.Random(1)
WINDOW_S = 5
one = st.tuples(st.integers(0, 80), st.floats(0, 1), st.integers(0, 600))
"""Of one instance in a second: tuples, seconds of work on them, tuples that wait."""


def told(slot: int, many: list[tuple[int, float, int]]) -> Reading:
    sums = [
        SlotSums(seconds=1.0, processed=n, busy_s=busy_s, backlog=waits)
        for n, busy_s, waits in many
    ]
    operator = Figures(slot, len(many), sum(sums[1:], sums[0]))
    return Reading(
        now_s=slot + 1.1,
        instances=len(many),
        instances_changed_s=0.0,
        covered_s=9.0,
        operator=operator,
    )


def said(policy: Policy[Any], readings: list[Reading]) -> list[Decision]:
    memory, found = policy.begin(), []
    for reading in readings:
        decision, memory = policy.decide(reading, SCALE, memory, RNG)
        found.append(decision)
    return found


@given(st.lists(one, min_size=1, max_size=6), st.integers(11, 25))
def test_d3_on_uneven_loads_each_sibling_says_what_the_planner_plans(
    many: list[tuple[int, float, int]], seconds: int
) -> None:
    policy, central, n = MultiMetricSummed(window_s=WINDOW_S), MultiMetricCentral(), len(many)
    planner = replace(central, window_s=WINDOW_S)
    memory, wanted = planner.begin(), n
    waiting = sum(waits for *_, waits in many)
    shares = [seen(i, instances=n, queued=w) for i, (_, _, w) in enumerate(many)]
    for slot in range(seconds):
        counted = {
            "processed_total": float((slot + 1) * sum(tuples for tuples, *_ in many)),
            "busy_total_s": (slot + 1) * sum(busy_s for _, busy_s, _ in many),
        }
        plan, memory = planner.assess(look(float(slot + 1), shares, **counted), memory, RNG)
        wanted = plan.wanted["work"] if plan is not None else wanted
    assert sum(s.reading.waiting for s in shares) == waiting
    decisions = said(policy, [told(slot, many) for slot in range(seconds)])
    numbers = [d.n for d in decisions if isinstance(d, Resize)]
    assert (numbers[-1] if numbers else n) == wanted


def test_d3_one_full_instance_beside_idle_siblings_is_no_contradiction() -> None:
    """Alone, the full one wants another instance, and each idle one wants to go."""
    by_load = {"of_utilisation": 1.0, "of_queue": 0.0, "of_slowdown": 0.0}
    together = MultiMetricSummed(window_s=WINDOW_S, **by_load)  # type: ignore[arg-type]
    many = [(80, 1.0, 0), (20, 0.25, 0), (20, 0.25, 0)]
    assert not any(
        isinstance(d, Resize) for d in said(together, [told(s, many) for s in range(25)])
    )
    alone = MultiMetric(window_s=WINDOW_S, **by_load)  # type: ignore[arg-type]
    wanted = set()
    for tuples, busy_s, _ in many:
        counted = [
            replace(told(s, many), processed_total=s * tuples, busy_total_s=s * busy_s)
            for s in range(25)
        ]
        wanted |= {d.n for d in said(alone, counted) if isinstance(d, Resize)}
    assert wanted == {2, 4}


def test_a_slot_that_is_not_told_counts_as_the_next_one() -> None:
    policy = MultiMetricSummed(window_s=WINDOW_S)
    many = [(80, 1.0, 2_000)]
    every = said(policy, [told(slot, many) for slot in range(16)])
    some = said(policy, [told(slot, many) for slot in range(16) if slot % 5 in (0, 4)])
    assert [d for d in every if isinstance(d, Resize)] == [d for d in some if isinstance(d, Resize)]
    assert any(isinstance(d, Resize) for d in every)


def test_what_it_learnt_is_inherited() -> None:
    policy = MultiMetricSummed(window_s=WINDOW_S)
    memory, scale = policy.begin(), Scale()
    for slot in range(11):
        _, memory = policy.decide(told(slot, [(50, 0.5, 0)]), scale, memory, RNG)
    assert policy.born(policy.heritage(memory, 9.0), 0.0).windows.unloaded_s == pytest.approx(0.01)


def test_it_runs_in_virtual_time() -> None:
    policy = MultiMetricSummed(window_s=2, of_utilisation=1, of_queue=0, of_slowdown=0)
    pipeline = ab.Pipeline("chain")
    scale = Scale(max_instances=6, period_s=0.5, policy=policy)
    stream = pipeline.source("numbers", ab.items([1])).map("work", str, scale=scale)
    stream.sink("out", ab.discard())
    found = ab.testing.scaled(pipeline, 28, capacity={"work": 10.0}, seconds=25)
    assert found.courses["work"].instances[-1] >= 3
