"""What stands in the place of functions, ends and hosts in a forecast."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from statistics import fmean, stdev
from types import SimpleNamespace
from typing import Any, cast

import pytest

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.keyed.groups import group_of
from anabranch.runtime.processing.flow import (
    first_window_tuples,
    held_tuples_max,
    window_tuples,
)
from anabranch.runtime.world import costs
from anabranch.runtime.world.costed import ArrivalCurve
from anabranch.runtime.world.costs import DrawnKeys, Work, representatives
from anabranch.runtime.world.forecast import BOUNDLESS, NO_BACKPRESSURE
from anabranch.runtime.world.forecast_values import Arrivals, Cost
from anabranch.runtime.world.loop import VirtualLoop
from anabranch.runtime.world.processes import Host, WorldProcess


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of work, call by call."""
    found: list[float] = []
    monkeypatch.setattr(costs, "this_process", lambda: SimpleNamespace(work=found.append))
    return found


def test_results_per_tuple_come_evenly(spent: list[float]) -> None:
    work = Work(Cost(selectivity=2.5), random.Random(0))
    assert [len(work("x")) for _ in range(4)] == [2, 3, 2, 3]
    assert len(work.many(["x"] * 10)) == 25
    assert spent == [], "what costs nothing spends nothing"


def test_a_tuple_costs_the_same_but_for_a_tenth_or_as_much_as_its_variation_says(
    spent: list[float],
) -> None:
    for cost in (Cost(capacity=100.0), Cost(capacity=100.0, cv=0.5)):
        work = Work(cost, random.Random(1))
        for _ in range(4000):
            work.spend(1)
    even, varied = spent[:4000], spent[4000:]
    assert 0.009 <= min(even) <= max(even) <= 0.011
    assert fmean(varied) == pytest.approx(0.01, rel=0.03)
    assert stdev(varied) / fmean(varied) == pytest.approx(0.5, rel=0.05)


def test_each_group_has_a_key_and_comes_as_often_as_its_keys() -> None:
    assert [group_of(key, 8) for key in representatives(8)] == [*range(8)]
    even = DrawnKeys(Cost(), 8, random.Random(2))
    seen = Counter(group_of(even("x"), 8) for _ in range(8000))
    assert min(seen.values()) > 800
    cost = Cost(skew=1.5, keys=100)
    skewed = DrawnKeys(cost, 8, random.Random(2))
    seen = Counter(group_of(skewed("x"), 8) for _ in range(8000))
    by_hand = [0.0] * 8
    for number in range(1, 101):
        by_hand[group_of(number - 1, 8)] += number**-1.5
    shares = [weight / sum(by_hand) for weight in by_hand]
    assert [seen[group] / 8000 for group in range(8)] == pytest.approx(shares, abs=0.02)
    assert max(shares) > 0.35


def test_what_arrives_is_due_evenly_between_two_times_and_not_before() -> None:
    curve = ArrivalCurve(Arrivals(0.5, {"a": [0, 4, 4, 5]}), "a")
    assert [curve.due(t) for t in (0.0, 0.25, 0.5, 1.0, 1.25, 9.0)] == [0, 2, 4, 4, 4.5, 5]
    due_s = [curve.due_at(number) for number in range(5)]
    assert due_s == [0.125, 0.25, 0.375, 0.5, 1.5]
    assert all(curve.due(t) == pytest.approx(n + 1) for n, t in enumerate(due_s))
    assert all(a < b for a, b in pairwise(due_s))


def test_without_backpressure_nothing_bounds_what_lies_at_an_instance_however_slow() -> None:
    assert window_tuples(0.0, 4, DEFAULT_LIMITS) == DEFAULT_LIMITS.credit_tuples_min
    assert held_tuples_max(0.0, DEFAULT_LIMITS) == DEFAULT_LIMITS.outbox_tuples_min
    for bound in (
        window_tuples(0.0, 4, NO_BACKPRESSURE),
        first_window_tuples(NO_BACKPRESSURE),
        held_tuples_max(0.0, NO_BACKPRESSURE),
    ):
        assert bound == BOUNDLESS


def process(free_at: float) -> WorldProcess:
    loop: Any = SimpleNamespace(free_at=free_at, timeline=SimpleNamespace(now=1.0))
    return cast(WorldProcess, SimpleNamespace(loop=cast(VirtualLoop, loop)))


def test_processes_that_work_at_the_same_time_share_the_cores_of_their_host() -> None:
    mine, busy, idle = process(0.0), [process(1.5) for _ in range(3)], process(0.5)
    for host, slowness in (
        (Host(), 1.0),
        (Host(4.0), 1.0),
        (Host(2.0), 2.0),
        (Host(2.0, slowing=0.5), 2.0 * 1.5),
    ):
        host.processes += [mine, *busy, idle]
        assert host.slowness(mine.loop) == slowness
