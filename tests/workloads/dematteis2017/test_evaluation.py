"""The experiment as a whole: its keys, its criteria, its table, its figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from anabranch.cli import main
from anabranch.workloads.dematteis2017 import telling
from anabranch.workloads.dematteis2017.contestants import ALL, PUBLISHED, contestant, start_of
from anabranch.workloads.dematteis2017.criteria import criteria_of
from anabranch.workloads.dematteis2017.keys import Moves, figure_5, popularity
from anabranch.workloads.dematteis2017.loads import day, read_counts, walk
from anabranch.workloads.dematteis2017.model import INSTANCES_MAX, Size, simulate
from anabranch.workloads.dematteis2017.results import FIGURES, Evaluation, Results, Run
from anabranch.workloads.dematteis2017.scores import Scores, scores
from anabranch.workloads.dematteis2017.telling import PAPER
from anabranch.workloads.experiments.judging import Criterion
from tests.workloads.shared_data import SHARED


def results(name: str = "b", of: dict[str, dict[str, float]] | None = None) -> Results:
    """As the paper's Tables I and II say, but for what `of` says of a contestant."""
    of = of or {}
    nothing = np.zeros(0)
    runs = {
        c: [
            Run(
                replace(Scores(**PAPER[c], left=0.0), **of.get(c, {})),
                nothing,
                nothing,
                nothing,
                None,
            )
        ]
        for c in PUBLISHED
    }
    return Results(name, Size(99, 0.008, 250.0, 3.0), 156, runs)


def judged(found: Results) -> list[Criterion]:
    return criteria_of(found, sizes=found.name == "b")


def missed(found: Results) -> list[str]:
    return [one.what[:2] for one in judged(found) if not one.met]


def test_the_papers_own_tables_meet_all_criteria() -> None:
    assert len(judged(results())) == 11
    assert missed(results()) == []


@pytest.mark.parametrize(
    ("contestant", "figure", "value", "fails"),
    [
        ("Sw 1", "violations", 23.1, ["C1"]),
        ("Sw 1", "violations", 22.9, []),
        ("rules", "violations", 52.5, ["C1"]),
        ("peak", "violations", 5, ["C1"]),
        ("NoSw", "instances", 46, ["C2"]),
        ("Sw 2", "instances", 75, ["C2", "C2"]),
        ("NoSw", "amplitude", 5.9, ["C3"]),
        ("NoSw", "jitter_ms", 29, ["C4"]),
        ("Sw 2", "reconfigurations", 100, ["C5"]),
        ("Sw 3", "p95_ms", 210, ["C6"]),
    ],
)
def test_a_figure_that_is_off_misses_its_criterion(
    contestant: str, figure: str, value: float, fails: list[str]
) -> None:
    assert missed(results(of={contestant: {figure: value}})) == fails


def test_on_another_load_only_the_order_is_judged() -> None:
    weak = {"NoSw": {"amplitude": 2.5, "jitter_ms": 15.0, "p95_ms": 90.0}}
    assert missed(results("a", weak)) == []
    assert missed(results("b", weak)) == ["C3", "C4", "C6"]


def test_better_is_fewer_violations_at_no_more_instances() -> None:
    assert results().better("NoSw") == ["rules"]
    assert results().better("rules") == []
    assert results().better("peak") == []


def test_what_is_told_stands_beside_the_paper() -> None:
    found = Evaluation("model", 1, {"b": results()}, {"Flux-5": Moves(410, 368, 1.04)}, {"5": []})
    text = telling.whole(found)
    assert "| NoSw | 139 (89%) / 139 (89%) | 52.0 (33%) / 52.0 (33%) | 53.2 (46%) /" in text
    assert "| Flux-5 | 431 | 389 | 410 | 368 | 1.040 |" in text
    assert "Load b is left out" not in text
    without = Evaluation("model", 1, {"a": results("a")}, {}, {"5": []})
    assert "Load b is left out" in telling.whole(without)
    assert telling.numbers(without)["skipped"]


def test_keys_have_the_popularity_of_the_day() -> None:
    shares = list(popularity().values())
    assert shares[0] == pytest.approx(0.0081, abs=5e-5)
    assert sum(shares[:431]) == pytest.approx(0.5, abs=0.002)


def test_figure_5_moves_the_keys_that_were_worked_out() -> None:
    found = figure_5()
    assert {name: (one.keys, one.remote) for name, one in found.items()} == {
        "Balanced": (8002, 3699),
        "Flux-5": (410, 368),
        "Flux-10": (380, 341),
    }
    assert found["Flux-5"].unevenness <= 1.05
    assert found["Flux-10"].unevenness <= 1.10


@pytest.mark.parametrize("name", ALL)
def test_every_contestant_follows_the_load_within_its_bounds(name: str) -> None:
    scene = replace(walk(1), shares=walk(1).shares[:30])
    course = simulate(scene, 1, contestant(name, scene, 1), start_of(name))
    assert course.instances.min() >= 1
    assert course.instances.max() <= INSTANCES_MAX
    assert (len(set(course.instances)) > 1) is (name != "peak")


def test_of_a_day_come_out_the_numbers_that_were_worked_out() -> None:
    path = SHARED / "trades" / "taq_xxx_20180102_quotes.csv.gz"
    if not path.exists():
        pytest.skip("the recorded quotes are not on this machine")
    scene = day(read_counts(path))
    course = simulate(scene, 0, contestant("Sw 1", scene, 0), start_of("Sw 1"))
    found = scores(course, scene.latency_ms / 1000)
    assert found.reconfigurations == pytest.approx(133.8, abs=4)
    assert found.violations == pytest.approx(9, abs=3)
    assert found.instances == pytest.approx(72, abs=1)
    assert found.amplitude == pytest.approx(2.2, abs=0.1)


@pytest.mark.slow
def test_the_experiment_tells_its_tables_and_writes_its_figures(tmp_path: Path) -> None:
    arguments = ["experiment", "dematteis2017", "--seeds", "1", "--json", "--out", str(tmp_path)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert set(found["loads"]) == {"a", "jump"}
    assert set(found["loads"]["a"]["contestants"]["Sw 1"]["mean"]) == set(FIGURES)
    assert found["loads"]["jump"]["contestants"]["peak"]["settled"] == [0]
    assert found["criteria"]["5"][0]["met"]
    names = {path.name for path in tmp_path.iterdir()}
    figures = {f"dematteis-{name}.svg" for name in ("a", "jump", "keys", "radar")}
    assert names == {"dematteis2017.md", "dematteis2017.json", *figures}


def test_a_folder_without_the_recording_is_wrong_usage(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["experiment", "dematteis2017", "--traces", str(tmp_path)])
    assert done.exit_code == 2
    assert "--traces: there is no taq_xxx" in done.output
