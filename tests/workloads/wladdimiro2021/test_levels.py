"""The levels beyond the model: the chain in virtual time and in processes."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from anabranch.runtime.reporting.report import Event, Report
from anabranch.runtime.values.kinds import EventKind
from anabranch.workloads.experiments.noting import Exactness, RunSpoilt
from anabranch.workloads.wladdimiro2021 import live, starts, telling
from anabranch.workloads.wladdimiro2021.applications import TOPICS
from anabranch.workloads.wladdimiro2021.chain import policy_named
from anabranch.workloads.wladdimiro2021.evaluation import Case
from anabranch.workloads.wladdimiro2021.levels import LevelEvaluation, _row, near_the_model
from anabranch.workloads.wladdimiro2021.loads import tweets
from anabranch.workloads.wladdimiro2021.model import Course
from anabranch.workloads.wladdimiro2021.simulated import Flow, simulate

LOAD = np.full(150, 120.0)
"""15 seconds of the run: six windows."""


@cache
def steady(contestant: str) -> Flow:
    return simulate(LOAD, 0.010, contestant)


def test_without_backpressure_a_backlog_lies_at_the_operator_until_the_planner_adds() -> None:
    course = steady("δ").course
    assert course.waiting.max() > 100
    at_ends = course.of_operators["topic"][24::25].astype(int).tolist()
    assert at_ends[:2] == [1, 1]  # a state must hold for two windows


def test_what_always_suffices_never_changes_and_processes_all() -> None:
    course = steady("static").course
    assert len(set(course.replicas.tolist())) == 1
    assert course.delivered.sum() == pytest.approx(course.due.sum(), rel=0.02)
    assert steady("static").latency_s < 0.2


def test_contestants_are_policies_with_the_weights_of_their_metric() -> None:
    u, gated, q = (policy_named(n, 2.5) for n in ("U", "U gated", "Q in turn"))
    assert (u.name, u.settings["of_queue"], u.settings["gated"]) == (
        "multi-metric-central",
        0,
        False,
    )
    assert gated.settings["gated"]
    assert (q.name, q.settings["of_queue"]) == ("multi-metric", 1.0)
    assert policy_named("shipped policy", 2.5).name == "probabilistic"
    assert policy_named("static", 2.5).name == "fixed"


def test_what_is_two_instances_off_the_step_model_is_not_near() -> None:
    load = tweets()[:300]
    course = Case("III", "δ", "P", TOPICS, load, 0.010).course()
    assert near_the_model(course, load) == 1.0
    course.of_operators["topic"] += 2
    assert near_the_model(course, load) == 0.75


def test_newcomers_start_from_the_order_to_their_first_tuple(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(starts, "POOL", 3)
    times = {"started": 0.1, "first_batch": 0.2, "decided": 4.0}
    events = [
        Event(t=t, operator="topic", kind=EventKind(kind), instances=1)
        for kind, t in [*times.items(), ("first_batch", 4.5), ("first_batch", 4.25)]
    ]
    assert starts.first_tuples(reported(events), "it") == (0.25, 0.5)
    with pytest.raises(RunSpoilt, match="1 of 2 newcomers"):
        starts.first_tuples(reported(events[:-1]), "it")


def reported(events: list[Event]) -> Report:
    return cast(Report, SimpleNamespace(events=events))


def test_starts_are_told_beside_the_table() -> None:
    start = starts.Start((0.1, 0.2, 0.9), 0.5, 1.25, 3 * 2**20, Exactness(9, 0, 0))
    told = telling.whole_of_level(LevelEvaluation("live", [], [], starts={"waiting": start}))
    assert "| waiting | 0.20 s | 0.90 s | 0.50 | 1.25 s | 3 MiB |" in told


def test_a_redeployment_follows_the_changes_of_a_plan() -> None:
    counts = {name: np.ones(30) for name in TOPICS.operators}
    counts["topic"] = np.where(np.arange(30) >= 10, 2.0, 1.0)
    nothing = np.zeros(30)
    changes = [*live._changes(Course(nothing, nothing, nothing, nothing, counts))]
    assert changes == [(0.0, (1, 1, 1, 1)), (1.0, (2, 1, 1, 1))]


def test_the_rest_of_a_load_has_the_tuples_that_are_due_in_it() -> None:
    chain = live.chain_of(live.QUICK)
    part = live._rest(chain, 10.0, 17.0, (2, 1, 1, 1))
    due = chain.curve.due(17.0) - chain.curve.due(10.0)
    assert part.tuples == pytest.approx(due, abs=1)
    assert part.seconds == pytest.approx(7.0)
    assert part.counts == (2, 1, 1, 1)


def test_the_table_has_the_papers_figures_beside_ours() -> None:
    row = _row("III, δ", steady("δ").course, 1.5, 76)
    told = telling.whole_of_level(LevelEvaluation("simulated", [row], []))
    assert "| III, δ |" in told
    assert "1.50 s | 0.400 / 0.109 / 0.891 / 39.7 s |" in told
