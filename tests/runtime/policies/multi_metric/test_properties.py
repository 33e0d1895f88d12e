"""Properties of the specification that hold for any window, and of what siblings make of it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.measuring.turns import share
from anabranch.runtime.policies.decider import Decider
from anabranch.runtime.policies.decision import Act, Resize
from anabranch.runtime.policies.multi_metric.figures import (
    MetricState,
    MetricWindow,
    Thresholds,
    figures,
    state_of,
)
from anabranch.runtime.policies.multi_metric.policy import MultiMetric
from anabranch.runtime.policies.policy import Scale

TABLE = Thresholds()
WINDOW_S = 5.0
by_one = st.builds(
    MetricWindow,
    span_s=st.floats(1, 60),
    instances=st.integers(1, 50),
    processed=st.floats(1, 1e6),
    busy_s=st.floats(0, 3000),
    waiting=st.floats(0, 1e7),
)


@given(st.floats(0, 1))
def test_c2_without_queue_and_slowdown_two_thirds_of_the_time_are_stable(u: float) -> None:
    found = figures(MetricWindow(25, 1, 1000, 25 * u, 0), None, TABLE)
    assert state_of(found.delta, TABLE) is (
        MetricState.STABLE if u > 0.6666666 else MetricState.UNDERLOADED
    )


def test_c4_a_backlog_of_two_and_a_quarter_windows_may_stand_for_ever() -> None:
    for waiting, state in ((2250, MetricState.STABLE), (2251, MetricState.OVERLOADED)):
        found = figures(MetricWindow(25, 1, 1000, 25, waiting), 0.025, TABLE)
        assert state_of(found.delta, TABLE) is state


@given(by_one, st.floats(0.0001, 1), st.floats(1, 20))
def test_longer_work_at_as_many_tuples_never_lowers_delta(
    w: MetricWindow, unloaded_s: float, times: float
) -> None:
    longer = replace(w, busy_s=w.busy_s * times)
    before, after = (figures(x, unloaded_s, TABLE).delta for x in (w, longer))
    assert after >= before - 1e-12


@given(by_one, st.floats(0.0001, 1), st.floats(0, 1.5))
def test_a_backlog_below_one_and_a_half_windows_is_never_an_overload(
    w: MetricWindow, unloaded_s: float, windows: float
) -> None:
    found = figures(replace(w, waiting=windows * w.processed), unloaded_s, TABLE)
    assert state_of(found.delta, TABLE) is not MetricState.OVERLOADED


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 1000))
def test_shares_of_all_ranks_add_up_to_what_is_missing(k: int, n: int, slot: int) -> None:
    assert sum(share(k, rank, n, slot) for rank in range(n)) == k


loads = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 400), st.integers(0, 2000)), min_size=1, max_size=8
)
"""Of each window: share of the time busy, tuples processed, tuples that wait at its end."""


def totals(windows: list[tuple[float, int, int]], now_s: float) -> Reading:
    """As counted until then, evenly within a window."""
    whole = min(int(now_s / WINDOW_S + 1e-9), len(windows))
    part = now_s / WINDOW_S - whole if whole < len(windows) else 0.0
    weights = [1.0] * whole + [part]
    weighed = list(zip(weights, windows, strict=False))
    return Reading(
        now_s=now_s,
        instances=3,
        instances_changed_s=0.0,
        covered_s=now_s,
        processed_total=sum(x * tuples for x, (_, tuples, _) in weighed),
        busy_total_s=sum(x * busy * WINDOW_S for x, (busy, _, _) in weighed),
        queued=windows[whole - 1][2] if whole else 0,
    )


@given(loads, st.sampled_from([0.05, 0.1, 0.25, 1.0]))
def test_windows_do_not_depend_on_how_often_an_instance_looks(
    windows: list[tuple[float, int, int]], tick_s: float
) -> None:
    policy, scale = MultiMetric(window_s=WINDOW_S), Scale(max_instances=9, capacity=100.0)

    def wanted(tick_s: float) -> list[int]:
        memory, found, rng = policy.begin(), [], random.Random(1)
        for i in range(round(len(windows) * WINDOW_S / tick_s) + 1):
            seen = totals(windows, i * tick_s)
            said, memory = policy.decide(seen, scale, memory, rng)
            found += [said.n] if isinstance(said, Resize) else []
        return found

    assert wanted(tick_s) == wanted(WINDOW_S)


@given(loads, st.integers(0, 2**32), st.one_of(st.none(), st.integers(0, 2)))
def test_the_same_seed_gives_the_same_decisions(
    windows: list[tuple[float, int, int]], seed: int, rank: int | None
) -> None:
    scale = Scale(max_instances=9, period_s=1.0, policy=MultiMetric(window_s=WINDOW_S))

    def decided() -> list[Act]:
        decider, rng = Decider.begin(scale, {}, 0.0), random.Random(seed)
        readings = (totals(windows, float(t)) for t in range(len(windows) * 5 + 1))
        return [decider.decide(replace(r, rank=rank), rng) for r in readings]

    assert decided() == decided()


def test_held_up_for_a_fifth_of_a_window_it_is_stable() -> None:
    """MM13: its backlog is its successor's."""
    policy, scale = MultiMetric(window_s=WINDOW_S), Scale(max_instances=9, capacity=100.0)
    words = []
    for blocked_s in (0.9, 1.0):
        memory = policy.begin()
        for number in range(3):
            seen = Reading(
                now_s=number * WINDOW_S,
                instances=3,
                instances_changed_s=0.0,
                covered_s=1.0,
                processed_total=10.0 * number,
                busy_total_s=0.1 * number,
                blocked_total_s=blocked_s * number,
            )
            said, memory = policy.decide(seen, scale, memory, random.Random(1))
        words.append(said.explanation.text.partition(":")[0])
    assert words == ["underloaded", "stable"]


def test_mm9_the_table_is_the_default() -> None:
    policy = MultiMetric()
    table = (policy.under, policy.over, policy.slow, policy.step, policy.window_s)
    assert table == (0.3, 0.7, 0.7, 1, 25.0)
    weights = policy.of_utilisation, policy.of_queue, policy.of_slowdown
    assert weights == pytest.approx((0.45, 0.45, 0.1))
