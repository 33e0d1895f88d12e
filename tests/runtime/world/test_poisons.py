"""Tuples of several predecessors that each end the process of one instance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.live.agent.deaths import RESUMES_MAX, Deaths
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.sinks.jsonl import jsonl
from anabranch.runtime.sources import items
from anabranch.runtime.values.kinds import EventKind
from anabranch.runtime.world.load import FOLDER
from anabranch.runtime.world.processes import crash
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.world import World

SOURCES = 6
ONE_AT_A_TIME = replace(DEFAULT_LIMITS, batch_tuples_max=1, credit_tuples=1)
"""What is processed first is what comes first, and that is another tuple after each death."""


def crash_by_the_first(n: int) -> int:
    if n % 10 == 0:
        crash()
    return n


def run(seed: int) -> Report:
    """The first tuple of each source ends the process."""
    pipeline = Pipeline("poisons", dead_letters=str(FOLDER / "dead.jsonl"))
    first, *others = [
        pipeline.source(f"in-{i}", items(range(10 * i, 10 * i + 3))) for i in range(SOURCES)
    ]
    checked = first.merge(*others).map("check", crash_by_the_first)
    checked.sink("out", jsonl(FOLDER / "out.jsonl"))
    world = World(
        pipeline,
        seed,
        options=Options(on_output=lambda *_: None, limits=ONE_AT_A_TIME),
        conditions=Conditions(latency_s=0.001, jitter_s=0.02),
    )
    return world.run()


def deaths_before_the_first_burial(report: Report) -> int:
    kinds = [event.kind for event in report.events]
    return kinds[: kinds.index(EventKind.BURIED)].count(EventKind.DIED)


SEEDS = range(8)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_are_found_though_another_one_is_tried_first_each_time(seed: int) -> None:
    report = run(seed)
    assert report.ok, report.failure
    assert (report.ledger.dead_letters, report.ledger.tuples_out) == (SOURCES, 2 * SOURCES)


def test_deaths_that_tell_which_tuple_was_tried_may_be_more_than_those_that_fail_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deaths = {seed: deaths_before_the_first_burial(run(seed)) for seed in SEEDS}
    most = max(SEEDS, key=lambda seed: deaths[seed])
    assert deaths[most] > RESUMES_MAX
    monkeypatch.setattr(Deaths, "note_lessons", lambda *_: None)
    assert "died 6 times" in str(run(most).failure)
