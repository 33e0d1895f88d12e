"""What follows from the rules of Wladdimiro et al. 2021, in the step model (MM, 2 and 7)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.workloads.wladdimiro2021.applications import TOPICS, Application
from anabranch.workloads.wladdimiro2021.contestants import METRICS, ByText
from anabranch.workloads.wladdimiro2021.evaluation import cases
from anabranch.workloads.wladdimiro2021.loads import tweets
from anabranch.workloads.wladdimiro2021.model import POOL, WINDOW_S, Course, Pool, simulate
from anabranch.workloads.wladdimiro2021.scores import degradation

ONE = Application("one", ("work",), ())
WORK_S = 0.01


def run(load: np.ndarray, start: int = 1) -> Course:
    planner = ByText(WORK_S, METRICS["δ"])
    return simulate(ONE, load.astype(float), WORK_S, planner, start={"work": start})


@settings(max_examples=20, deadline=None)
@given(st.floats(0.05, 6))
def test_c3_a_steady_demand_rests_at_its_ceiling_or_never(demand: float) -> None:
    """Between one and 4/3 busy instances two are too many and one is too few."""
    rests = not 1 < demand < 4 / 3
    start = max(1, math.ceil(demand))
    replicas = run(np.full(8 * WINDOW_S, demand / WORK_S), start).replicas
    assert (len(set(replicas)) == 1) == rests


@pytest.mark.parametrize(("per_s2", "outruns"), [(3.0, False), (5.0, True)])
def test_c5_a_ramp_above_one_instance_per_window_outruns_it(per_s2: float, outruns: bool) -> None:
    load = np.arange(1_000) * per_s2
    missing = load * WORK_S - run(load).replicas
    late, later = missing[499], missing[999]
    assert (later > late + 3) == outruns
    assert outruns or later <= 3


@given(st.integers(1, POOL), st.floats(0, 1e5), st.lists(st.floats(0, 500), max_size=4))
def test_mm10_active_replicas_share_evenly_and_others_drain(
    active: int, tuples: float, held: list[float]
) -> None:
    pool = Pool(active)
    pool.queues[: len(held)] = held
    before = pool.queues.copy()
    pool.take(tuples)
    came = pool.queues - before
    assert came[:active] == pytest.approx(tuples / active)
    assert not came[active:].any()
    waiting = pool.waiting
    done, _ = pool.work(WORK_S)
    assert pool.waiting + done == pytest.approx(waiting)  # those that are not active too


def test_mm_property_active_and_idle_replicas_are_the_pool_and_change_one_by_one() -> None:
    course = simulate(TOPICS, tweets()[:1_200], WORK_S, ByText(WORK_S, METRICS["δ"]))
    for replicas in course.of_operators.values():
        assert replicas.min() >= 1
        assert replicas.max() <= POOL
        changed = np.flatnonzero(np.diff(replicas)) + 1
        assert np.abs(np.diff(replicas)).max() <= 1
        assert not (changed % WINDOW_S).any()
        assert changed.min() >= 2 * WINDOW_S  # nothing in the first window


@given(st.lists(st.tuples(st.floats(0.1, 1e4), st.floats(0, 1e4)), min_size=1, max_size=50))
def test_mm_property_what_comes_later_counts_less_in_t3_than_in_t2(
    samples: list[tuple[float, float]],
) -> None:
    due, out = map(np.array, zip(*samples, strict=True))
    _, t2, t3 = degradation(due, out)
    assert t3 <= t2 + 1e-9


def test_answer_7_x12_points_of_replicas_are_not_shares_of_savings() -> None:
    """129.3 "% more replicas" are 3.15 times as many; 24.5 % of savings are 16.3 % of replicas;
    26.46 % of the longer latency are 36.0 % of the shorter."""
    third = [c for c in cases(None) if c.table == "III" and c.by == "P" and c.published]
    saved = {c.metric: c.published[0] for c in third if c.published}
    assert saved["δ"] - saved["U"] == pytest.approx(1.293)
    assert (1 - saved["U"]) / (1 - saved["δ"]) == pytest.approx(3.155, abs=1e-3)
    assert saved["Q"] / saved["δ"] - 1 == pytest.approx(0.245)
    assert 1 - (1 - saved["Q"]) / (1 - saved["δ"]) == pytest.approx(0.163, abs=1e-3)
    assert pytest.approx(0.360, abs=1e-3) == 1 / (1 - 0.2646) - 1
