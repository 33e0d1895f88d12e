"""The evaluation as a whole: its criteria, its tables, its figures, its command."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from anabranch.cli import main
from anabranch.runtime.policies.elysium.learnt_bounds import SHARES
from anabranch.workloads.experiments.spreading import Job, Progress, R
from anabranch.workloads.lombardi2018 import evaluation, loads, published, telling
from anabranch.workloads.lombardi2018.courses import Course
from anabranch.workloads.lombardi2018.criteria import criteria_of, knee, sustained_s
from anabranch.workloads.lombardi2018.evaluation import Plan, evaluate, forecast_errors
from anabranch.workloads.lombardi2018.field import (
    FILTER,
    JOINT,
    MAIN,
    PERIODS,
    PROACTIVE,
    REACTIVE,
    UNCONTROLLED,
    UNCONTROLLED_SOON,
    history,
)
from anabranch.workloads.lombardi2018.pools import Pool
from anabranch.workloads.lombardi2018.results import (
    FIGURES,
    Evaluation,
    Group,
    Run,
    Scores,
    Threshold,
    scores,
)
from anabranch.workloads.lombardi2018.sampled import ProfileError, profile_errors, profiled

SOME = [JOINT, REACTIVE, PROACTIVE, UNCONTROLLED, UNCONTROLLED_SOON]
SHORT = Plan(
    2,
    scenes=[s for s in loads.SCENES if s.name == "T1 step"],
    main=SOME,
    backgrounds=(0.0,),
    profiled_s=100,
    networks=False,
    seconds_max=70,
)


def course(**changed: object) -> Course:
    """840 s in which everything is done as it comes."""
    bins = 84
    rate = np.full((bins, 1), 300.0)
    sizes = {name: np.ones(bins) for name in Pool(("T1",)).operators}
    whole = Course(rate, rate, rate, np.ones(bins), np.ones((bins, 1)), sizes, [240.0, 420.0], 0.0,
                   [1] * 14)  # fmt: skip
    return replace(whole, **changed)  # type: ignore[arg-type]


def figures_of(contestant: str) -> Scores:
    td = {"joint": 0.9, "R": 0.5, "P": 0.3}.get(contestant, 0.2)
    saved = {"joint": 30.0, "R": 40.0, "P": 35.0}.get(contestant, 45.0)
    return Scores(td, td, saved, 10 * td, td, 2, 0, 1.0)


def good_runs() -> Iterator[Run]:
    for scene in ("T1 step", "T1 square", "T1 sine"):
        for one in MAIN:
            slow = course(acked=np.where(np.arange(84)[:, None] < 25, 0.0, 300.0))
            shown = slow if one.name == JOINT.name else course()
            yield Run("main", scene, one.name, 0, figures_of(one.name), course=shown)
    scaled = {name: np.ones(84) for name in Pool(("T1",)).operators}
    scaled["stopWordFilter"] = np.arange(84.0)
    for contestant, td, sizes in zip(FILTER, (0.9, 0.1), ({}, scaled), strict=True):
        yield Run("filter", "f", contestant.name, 0, replace(figures_of(""), degradation=td),
                  course=course(sizes=sizes))  # fmt: skip
    for at, period in enumerate(PERIODS):
        yield Run("periods", "p", period.name, 0, replace(figures_of(""), degradation=1.0 - at / 5))
    yield Run("steady", "T1 200/s", "R", 0, figures_of("R"))
    yield Run("exact", "T1 step, without noise", "R", 0, figures_of("R"), course=course())
    yield Run("exact", "T1 300, 750, without noise", FILTER[1].name, 0, figures_of(""),
              course=course(sizes=scaled))  # fmt: skip


def judged(
    runs: list[Run], learnt: float = 0.8, error: float = 0.01, best: float = 0.8
) -> Evaluation:
    thresholds = [
        Threshold(share, 0.6, (share - 0.9 + abs(share - best),), 40.0) for share in SHARES
    ]
    errors = [ProfileError("counter", model, error, error) for model in ("line", "network")]
    found = Evaluation(1, runs, thresholds, {0.6: learnt}, errors, [], [])
    return replace(found, criteria=[*criteria_of(found)])


def test_figures_that_meet_all_criteria() -> None:
    found = judged([*good_runs()])
    assert [c.what for c in found.criteria if not c.met] == []
    assert len(found.criteria) == 19
    assert knee(found, 0.6) == 0.8
    assert knee(judged([*good_runs()], best=0.9), 0.6) is None


def scored(group: Group, contestant: str, scene: str | None = None, **figures: float):  # type: ignore[no-untyped-def]
    def change(run: Run) -> Run:
        meant = (run.group, run.contestant) == (group, contestant) and scene in (None, run.scene)
        return replace(run, scores=replace(run.scores, **figures)) if meant else run

    return change


def coursed(group: Group, contestant: str, **changed: object):  # type: ignore[no-untyped-def]
    def change(run: Run) -> Run:
        meant = (run.group, run.contestant) == (group, contestant)
        return replace(run, course=course(**changed)) if meant else run

    return change


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (scored("main", JOINT.name, "T1 step", degradation=0.4, saved=50), "nowhere dominated"),
        (scored("main", JOINT.name, degradation=0.4), "degrades less than joint"),
        (scored("main", JOINT.name, saved=50), "saves more hosts than joint"),
        (scored("main", JOINT.name, latency=1), "Figure 11"),
        (scored("main", PROACTIVE.name, degradation=0.6), "Figure 13"),
        (scored("main", PROACTIVE.name, saved=20), "Figure 13"),
        (
            scored("main", UNCONTROLLED.name, "T1 step", degradation=0.5),
            "better than R at every load",
        ),
        (scored("main", UNCONTROLLED.name, "T1 step", saved=39), "better than R at every load"),
        (scored("filter", FILTER[1].name, degradation=0.95), "less degradation than static"),
        (coursed("filter", FILTER[1].name, sizes={"counter": np.arange(84.0)}), "only stopWord"),
        (scored("periods", PERIODS[-1].name, degradation=0.9), "Figure 6c"),
        (scored("steady", "R", hosts_of_first=1.2), "Figure 12"),
        (coursed("main", "R", changes=[180.0, 240.0, 420.0]), "once for each edge"),
        (coursed("exact", "R", changes=[180.0]), "once for each edge, load without noise"),
        (coursed("exact", FILTER[1].name), "only stopWordFilter changes, load without noise"),
        (scored("main", "P, network", saved=20), "the square P, network"),
        (coursed("main", "R", acked=np.zeros((84, 1))), "sustains the peak first"),
    ],
)
def test_each_criterion_can_fail(change: Callable[[Run], Run], broken: str) -> None:
    found = judged([change(run) for run in good_runs()])
    assert any(broken in c.what for c in found.criteria if not c.met)


def test_a_learner_that_differs_and_a_profile_that_errs_are_told() -> None:
    runs = [*good_runs()]
    assert [c.what[:9] for c in judged(runs, learnt=0.6).criteria if not c.met] == ["Figure 6a"]
    wrong = [c.what for c in judged(runs, error=0.05).criteria if not c.met]
    assert ["Figure 7" in what for what in wrong] == [True, True]


def test_the_peak_is_sustained_from_three_bins_on() -> None:
    done = np.full((84, 1), 300.0)
    done[12:20] = 100.0
    done[21] = 100.0
    assert sustained_s(course(acked=done)) == 100
    assert sustained_s(course(acked=0 * done)) == 240


def test_what_is_counted_of_a_course() -> None:
    done = np.full((84, 1), 300.0)
    done[:42] = 150.0
    found = scores(course(acked=done, waiting=6300.0, host_periods=[1, 3]))
    assert found.degradation == pytest.approx(0.25)
    assert found.degradation_60 == pytest.approx(0.25)
    assert found.saved == pytest.approx(50)
    assert found.waiting == pytest.approx(100 * 6300 / (300 * 840))
    assert (found.changes, found.hosts_of_first) == (2, 1)
    assert found.latency > 50
    assert scores(course()).latency == pytest.approx(0, abs=1e-9)


def here(jobs: list[Job[R]], progress: Progress) -> list[R]:
    """As elsewhere: jobs and what they give are pickled."""
    return [pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(job)).run())) for job in jobs]


@cache
def short() -> Evaluation:
    return evaluate(SHORT, spread=here)  # type: ignore[arg-type]


def test_all_is_told_with_the_paper_beside_it() -> None:
    found = short()
    text = telling.whole(found)
    for contestant in SHORT.main:
        assert f"| {contestant.name} |" in text
    assert "| R | 0.59, 58 |" in text
    assert "| operators only, 2 hosts | 1.47, 50 |" in text
    assert telling.NO_TRACES in text
    numbers = json.loads(json.dumps(telling.numbers(found)))
    assert {*numbers["groups"]["main"]["T1 step"]["R"]} == {*FIGURES, "paper"}
    assert numbers["skipped"] == [telling.NO_TRACES]
    wanted = ("main", "T1 step", "R")
    some = [row["seed"] for row in telling.rows(found)
            if (row["group"], row["scene"], row["contestant"]) == wanted]  # fmt: skip
    assert some == [0, 1]
    with_course = {run.seed for run in found.runs if run.course is not None}
    assert with_course == {0}


def test_the_command_writes_tables_numbers_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Plan] = []

    def answered(plan: Plan, *_: object) -> Evaluation:
        asked.append(plan)
        return short()

    monkeypatch.setattr(evaluation, "evaluate", answered)
    arguments = ["experiment", "lombardi2018", "--quick", "--json", "--out", str(tmp_path)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert (asked[0].seeds, asked[0].backgrounds) == (2, (0.0, 0.6))
    assert json.loads(done.stdout)["seeds"] == 2
    names = {path.name for path in tmp_path.iterdir()}
    assert {"lombardi2018.md", "lombardi2018.json"} <= names
    pytest.importorskip("matplotlib")
    pictures = {"6", "9", "10-t1-step", "10a-t1-300--750", "12-t1-200-s"}
    assert {f"lombardi-{name}.svg" for name in pictures} <= names


def test_a_folder_without_the_recordings_is_wrong_usage(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["experiment", "lombardi2018", "--traces", str(tmp_path)])
    assert done.exit_code == 2
    assert "nab_tweets_AMZN_5min.csv.gz" in done.output


def recording(folder: Path, days: int) -> loads.Recorded:
    """A day with one high hour, again and again."""
    rows = ["timestamp,value"]
    for at in range(days * 288):
        day, minute = divmod(at * 5, 1440)
        stamp = f"2015-{1 + day // 28:02}-{1 + day % 28:02} {minute // 60:02}:{minute % 60:02}:00"
        rows.append(f"{stamp},{100 if minute // 60 == 12 else 20}")
    path = folder / "tweets.csv.gz"
    path.write_bytes(gzip.compress("\n".join(rows).encode()))
    return loads.recorded("AMZN", path)


def test_a_replay_is_what_was_not_learnt_from_at_sixty_times_its_speed(tmp_path: Path) -> None:
    load = recording(tmp_path, 20)
    assert (len(load.hours), load.split) == (480, 336)
    assert load.calendar[0] == (4, 21, 42)
    scene = loads.replay(load, "T1")
    assert (scene.name, scene.seconds) == ("T1 AMZN", 2880)
    curve = scene.curves["T1"]
    assert curve.rate(12.5 * 60) == pytest.approx(1300)
    assert curve.rate(0.0) == pytest.approx(260)
    assert scene.history is not None
    assert scene.history["T1"][11:14] == pytest.approx([260, 1300, 260])
    assert published.of(scene.name, "R") == (0.86, 45)
    (line, network) = forecast_errors(load)
    assert max(line.by_minute) < 0.5
    assert (line.model, network.model) == ("line", "network")


def test_a_history_without_a_recording_is_of_earlier_runs() -> None:
    step = next(scene for scene in loads.SCENES if scene.name == "T1 step")
    found = history(step, "T1")
    assert len(found) == 200
    assert max(found) == pytest.approx(1300, rel=0.25)
    assert found[0] == pytest.approx(200, rel=0.25)
    assert found[:10] != found[10:20]


def test_el10_a_profile_of_half_an_hour_is_close_to_what_is_true() -> None:
    pool = Pool(("T1",))
    known, learnt = pool.known(), profiled(pool, 200)
    for name, rate in known.rates({"tweetReader": 400.0}).items():
        assert learnt.cores[name](rate / 2) == pytest.approx(known.cores[name](rate / 2), abs=0.02)
    assert learnt.host.times == pytest.approx(known.host.times, rel=0.01)
    assert max(e.held_out for e in profile_errors(200, networks=False)) < 0.03


def test_reactive_is_among_the_contestants_once() -> None:
    assert [one for one in MAIN if one.name == "R"] == [REACTIVE]
    assert len({one.name for one in MAIN}) == len(MAIN)
