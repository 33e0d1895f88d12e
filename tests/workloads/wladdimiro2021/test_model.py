"""The step model of Wladdimiro et al. 2021: known answers, and the figures of the specification."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.workloads.wladdimiro2021.applications import FLOWS, TOPICS, Application
from anabranch.workloads.wladdimiro2021.contestants import METRICS, BySamples, ByText
from anabranch.workloads.wladdimiro2021.loads import bell, tweets
from anabranch.workloads.wladdimiro2021.model import CROWDED, ROOMY, Course, Host, simulate
from anabranch.workloads.wladdimiro2021.scores import degradation, scores

ONE = Application("one", ("work",), ())


def changes(course: Course) -> list[tuple[int, int]]:
    """(second from which on, replicas)."""
    r = course.replicas.astype(int)
    return [(t, int(r[t])) for t in range(1, len(r)) if r[t] != r[t - 1]]


def steady(rate: float, seconds: int, by: str = "P", start: int = 1) -> Course:
    load = np.full(seconds, float(rate))
    planner = (ByText if by == "P" else BySamples)(0.01, METRICS["δ"])
    sample_s = 25 if by == "P" else 5
    return simulate(ONE, load, 0.01, planner, start={"work": start}, sample_s=sample_s)


def test_answer_3_a_backlog_that_stands_for_ever() -> None:
    course = steady(200, 1500)
    assert changes(course) == [(100, 2)]
    assert course.waiting[-1] == pytest.approx(10_000)
    assert scores(course, 2).latency_s == pytest.approx(50.0, abs=0.6)
    assert changes(steady(200, 300, "R")) == [(25, 2), (50, 3), (150, 2)]


def test_answer_4_a_demand_that_never_rests() -> None:
    course = steady(120, 1300, start=2)
    assert changes(course) == [(50, 1), (375, 2), (600, 1), (925, 2), (1150, 1)]
    assert course.waiting.max() == pytest.approx(6_500, rel=0.02)
    assert changes(steady(140, 1300, start=2)) == []


def test_answer_7_three_readings_of_degradation() -> None:
    due, out = np.array([100.0, 10.0]), np.array([60.0, 50.0])
    assert degradation(due, out) == pytest.approx((2.2, 0.727, 0.0), abs=1e-3)


def test_the_static_contestants_are_sized_as_the_paper_has_them() -> None:
    assert sum(TOPICS.enough_for(tweets().max(), 0.01).values()) == 76
    assert sum(TOPICS.enough_for(2391, 0.0025).values()) == 36
    assert sum(FLOWS.enough_for(tweets().max(), 0.005).values()) == 57
    assert FLOWS.shares()["topic"] == pytest.approx(0.8)


def test_the_load_of_tweets_has_as_many_as_it_should() -> None:
    assert tweets().sum() == pytest.approx(1_840_634, abs=1)


@pytest.mark.parametrize(
    ("by", "metric", "host", "saved", "lost", "processed", "latency"),
    [
        ("P", "δ", ROOMY, 0.701, 0.021, 0.979, 155),
        ("P", "U", ROOMY, 0.486, 0.003, 0.997, 5.5),
        ("P", "U", CROWDED, -0.904, 0.177, 0.823, 284),
        ("P", "U gated", CROWDED, 0.155, 0.001, 0.999, 40),
        ("R", "δ", CROWDED, 0.586, 0.017, 0.983, 66),
        ("R", "Q", CROWDED, 0.299, 0.017, 0.983, 99),
    ],
)
def test_the_figures_of_table_iii(
    by: str, metric: str, host: Host, saved: float, lost: float, processed: float, latency: float
) -> None:
    planner = (ByText if by == "P" else BySamples)(0.01, METRICS[metric])
    sample_s = 25 if by == "P" else 5
    course = simulate(TOPICS, tweets(), 0.01, planner, host=host, sample_s=sample_s)
    found = scores(course, 76)
    assert (found.saved, found.t3, found.processed) == pytest.approx(
        (saved, lost, processed), abs=0.02
    )
    assert found.latency_s == pytest.approx(latency, rel=0.05)


def test_stops_cost_more_than_the_pool_saves() -> None:
    planner = BySamples(0.0025, METRICS["δ"])
    pool = simulate(TOPICS, bell(), 0.0025, planner, sample_s=5)
    stops = simulate(TOPICS, bell(), 0.0025, planner, sample_s=5, stop_s=5)
    assert scores(pool, 36).processed >= 0.99
    assert scores(stops, 36).processed == pytest.approx(0.905, abs=0.02)
    assert scores(stops, 36).t2 == pytest.approx(0.634, abs=0.02)


def test_every_tuple_is_delivered_waits_or_is_on_its_way() -> None:
    course = simulate(TOPICS, tweets()[:600], 0.01, ByText(0.01, METRICS["δ"]))
    between = course.due.sum() - course.delivered.sum() - course.waiting[-1]
    most = max(replicas[-2:].max() for replicas in course.of_operators.values())
    assert 0 <= between <= 3 * 100 * most  # made in the last step, for the next operator
