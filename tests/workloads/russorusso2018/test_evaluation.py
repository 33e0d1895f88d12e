"""The evaluation as a whole: its criteria, its tables, its figures, its command."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from anabranch.cli import main
from anabranch.workloads.curve_base import CurveError
from anabranch.workloads.experiments.spreading import Job, Progress, R
from anabranch.workloads.russorusso2018 import loads, telling
from anabranch.workloads.russorusso2018.evaluation import (
    Evaluation,
    Run,
    Scores,
    evaluate,
    evaluation_of,
    run_of,
)
from anabranch.workloads.russorusso2018.model import Course
from anabranch.workloads.russorusso2018.rows import BETTER, ROWS, Figures, Row
from tests.workloads.russorusso2018.taxi import TAXI, first_day

SLOTS = 300


def run_with(row: Row, figures: Figures) -> Run:
    scores = Scores(*figures, 0.02, *figures)
    costs = np.array([0.026, 0.02, 0.021])
    return Run(row, 0, scores, costs, np.array([6.9, 0.3, 0.3]))


def judged(figures: Callable[[Row], Figures]) -> Evaluation:
    runs = [run_with(row, figures(row)) for row in ROWS]
    return evaluation_of(runs, ROWS, 1, first_day(), recorded=True)


def of_target(row: Row) -> Figures:
    return row.target or (0.1, 1.0, 17.0, 9.9)


def test_the_figures_of_the_specification_meet_all_criteria() -> None:
    found = judged(of_target)
    assert [c.what for c in found.criteria if not c.met] == []
    assert len(found.criteria) == 11


@pytest.mark.parametrize(
    ("name", "figures", "broken"),
    [
        ("static, RL", (0.1, 0.87, 17.83, 16.0), "static > simple > RL"),
        ("simple, RL", (0.1, 1.3, 17.83, 16.2), "0.45 times as often"),
        ("RL, RL", (0.4, 0.9, 17.7, 10.3), "at most 0.3 % violations"),
        ("RL, RL, w_d 0.5", (0.1, 0.9, 17.7, 10.1), "violations fall and hosts rise"),
        ("RL, RL, w_d 0.5", (0.2, 0.9, 17.7, 9.0), "violations fall and hosts rise"),
        ("RL, threshold, w_d 0.1", (49.0, 0.5, 6.5, 3.5), "collapses"),
        (BETTER, (0.14, 0.94, 17.7, 9.66), "better than any row"),
        (BETTER, (0.16, 0.94, 17.7, 9.0), "better than any row"),
        (BETTER, (0.14, 1.03, 17.7, 9.0), "better than any row"),
    ],
)
def test_each_criterion_can_fail(name: str, figures: Figures, broken: str) -> None:
    found = judged(lambda row: figures if row.name == name else of_target(row))
    assert any(broken in c.what for c in found.criteria if not c.met)


def test_a_day_that_costs_more_is_told() -> None:
    runs = [run_with(row, of_target(row)) for row in ROWS]
    for costs, figure in (([0.02, 0.02, 0.025], "25% off"), ([0.02], "0% off")):
        off = [replace(run, day_costs=np.array(costs)) for run in runs]
        found = evaluation_of(off, ROWS, 1, first_day(), recorded=True)
        assert [figure in c.figure for c in found.criteria if not c.met] == [True]


def test_what_is_counted_of_a_course() -> None:
    slots = 3 * 1440
    response = np.full(slots, 0.01, dtype=np.float32)
    response[:1440:2] = np.inf
    response[1440] = 0.0599
    response[1441] = 0.0601
    course = Course(
        response,
        np.repeat(np.array([4, 8], dtype=np.int16), slots // 2),
        np.full(slots, 3, dtype=np.int16),
        np.arange(slots) % 100 == 0,
        np.repeat(np.array([0.1, 0.2, 0.3], dtype=np.float32), 1440),
    )
    run = run_of(ROWS[0], 0, course, whole=False)
    assert run.scores.violations == pytest.approx(100 * 721 / slots)
    assert run.scores.later_violations == 0
    assert run.scores.changes == pytest.approx(100 * 44 / slots)
    assert (run.scores.instances, run.scores.later_instances, run.scores.hosts) == (6, 8, 3)
    assert run.scores.cost == pytest.approx(0.2)
    assert run.day_costs == pytest.approx([0.1, 0.2, 0.3])
    assert run.day_violations == pytest.approx([50, 100 / 1440, 0])
    assert run.course is None


def here(jobs: list[Job[R]], progress: Progress) -> list[R]:
    """As elsewhere: jobs and what they give are pickled."""
    return [pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(job)).run())) for job in jobs]


def test_each_row_is_told_with_the_paper_beside_it() -> None:
    found = evaluate(2, first_day()[:SLOTS], recorded=True, spread=here)  # type: ignore[arg-type]
    text = telling.whole(found)
    for row in ROWS:
        assert f"| {row.name} |" in text
    assert "A short run" in text
    assert "synthetic" not in text
    assert "0.17 1.10 18.25 9.76" in text
    told = telling.rows(found)
    assert [row["seed"] for row in told if row["row"] == BETTER] == [0, 1]
    numbers = json.loads(json.dumps(telling.numbers(found)))
    assert [row["row"] for row in numbers["rows"]] == [row.name for row in ROWS]
    assert {*numbers["rows"][0]["mean"]} == {field.name for field in fields(Scores)}
    with_courses = [r.runs[k].course is not None for r in found.results.values() for k in (0, 1)]
    assert with_courses == [True, False] * len(ROWS)


def test_the_command_writes_tables_numbers_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "QUICK_SLOTS", SLOTS)
    arguments = ["experiment", "russorusso2018", "--quick", "--json", "--out", str(tmp_path)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["slots"], found["seeds"], found["recorded"]) == (SLOTS, 1, False)
    assert "synthetic" in found["skipped"][0]
    names = {path.name for path in tmp_path.iterdir()}
    pytest.importorskip("matplotlib")
    figures = {f"russorusso-{n}.svg" for n in range(3, 8)}
    assert names == {"russorusso2018.md", "russorusso2018.json", *figures}


def test_a_folder_without_the_recording_is_wrong_usage(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["experiment", "russorusso2018", "--traces", str(tmp_path)])
    assert done.exit_code == 2
    assert "nyc_taxi_30min.csv.gz" in done.output


def test_a_recording_that_is_too_short_is_wrong_usage(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / loads.RECORDING
    path.write_bytes(gzip.compress(b"timestamp,value\n2014-07-01 00:00:00,1\n"))
    with pytest.raises(CurveError, match="expected 3,334 half-hours"):
        loads.recorded(path)
    done = CliRunner().invoke(main, ["experiment", "russorusso2018", "--traces", str(tmp_path)])
    assert done.exit_code == 2
    assert "expected 3,334 half-hours" in done.output


def test_the_synthetic_load_has_the_mean_of_the_recording() -> None:
    found = loads.synthetic()
    assert len(found) == loads.SLOTS
    assert found[: 69 * loads.DAY].mean() == pytest.approx(341.5)
    assert found[: loads.DAY].argmin() == 5 * 60


@pytest.mark.slow
@pytest.mark.skipif(TAXI is None, reason="the recording is not here")
def test_learnt_managers_hold_on_what_they_have_not_seen() -> None:
    """Ten days: the second half after the first."""
    assert TAXI is not None
    means = loads.recorded(TAXI)[: loads.QUICK_SLOTS]
    wanted = ("simple, threshold", "RL, RL", BETTER)
    rows = [row for row in ROWS if row.name in wanted]
    load = loads.drawn(means, 0)
    from anabranch.workloads.russorusso2018.model import simulate

    simple, learnt, better = (
        run_of(row, 0, course, whole=False).scores
        for row, course in zip(rows, simulate(rows, load, 0), strict=True)
    )
    assert learnt.later_hosts < 0.7 * simple.later_hosts
    assert better.later_hosts < learnt.later_hosts
    assert max(learnt.later_violations, better.later_violations) < 1.0
    assert learnt.later_changes < 0.6 * simple.later_changes
