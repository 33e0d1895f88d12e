"""Behind backpressure an operator scales by what waits at the source (MM13), and only by that."""

from __future__ import annotations

import pytest

import anabranch as ab
from anabranch.runtime.policies import concerted


def pipeline() -> ab.Pipeline:
    made = ab.Pipeline("arrears")
    numbers = made.source("numbers", ab.generate(lambda i: i, rate=120, duration_s=60))
    policy = ab.policies.MultiMetric(window_s=6.0)
    scale = ab.Scale(max_instances=6, period_s=0.5, policy=policy)
    plain = numbers.map("first", lambda n: n)
    plain.map("work", lambda n: n, scale=scale).sink("out", ab.discard())
    return made


def instances(seconds: float) -> list[int]:
    capacity = {"first": 1000.0, "work": 60.0}
    return (
        ab.testing.scaled(pipeline(), 120, capacity=capacity, seconds=seconds)
        .courses["work"]
        .instances
    )


def test_mm13_published_weights_grow_behind_backpressure() -> None:
    """Two operators and the credit between them lie before the bottleneck."""
    found = instances(50.0)
    assert found[0] == 1
    assert max(found) >= 2


def test_mm_property_without_arrears_it_stays_at_one_instance_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The trap: credit bounds queues, so Q = 0, and U alone is no overload (MM-C1)."""
    monkeypatch.setattr(concerted, "passed_on", lambda reading: ("", 0.0))
    assert max(instances(50.0)) == 1
