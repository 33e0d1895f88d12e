"""The comparison of policies: its model, its scores, and what is concluded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest

from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.policies.fixed import Fixed
from anabranch.runtime.policies.predictive.policy import Predictive
from anabranch.runtime.policies.probabilistic import Probabilistic
from anabranch.workloads.curves import CurveError
from anabranch.workloads.policies_compared import scenes, telling
from anabranch.workloads.policies_compared.arena import TICK_S, Course, run
from anabranch.workloads.policies_compared.contestants import KNOWN, PUBLISHED, Contestant
from anabranch.workloads.policies_compared.evaluation import Evaluation, Run, evaluate
from anabranch.workloads.policies_compared.scenes import Scene
from anabranch.workloads.policies_compared.scores import scores, violations

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.measuring.reading import Reading
    from anabranch.runtime.policies.decision import Decision
    from anabranch.runtime.policies.policy import Scale

SHORT = Scene("short", np.array([4.0] * 15 + [8.0] * 15), 1.0, step_s=15.0)


def fixed(instances: int) -> Contestant:
    return Contestant(f"fixed {instances}", Fixed(), start=instances)


def test_all_get_the_same_tuples_and_serve_each_once() -> None:
    courses = [run(SHORT, one, 3) for one in (fixed(1), fixed(9), Contestant("own", Predictive()))]
    assert len({len(c.ends) + c.waiting for c in courses}) == 1
    arrivals = [np.sort(c.ends - c.latencies) for c in courses]
    assert np.allclose(arrivals[1][: len(arrivals[0])], arrivals[0])
    assert all(c.latencies.min() > 0 for c in courses)


def test_the_same_seed_is_the_same_course() -> None:
    one = Contestant("probabilistic", Probabilistic())
    a, b = run(SHORT, one, 1), run(SHORT, one, 1)
    assert np.array_equal(a.ends, b.ends)
    assert np.array_equal(a.instances, b.instances)
    assert a.messages == b.messages


def test_a_policy_grows_with_the_load_and_the_load_known_hits_it() -> None:
    course = run(SHORT, Contestant("probabilistic", Probabilistic(), start=4), 0)
    assert course.instances[0] == 4
    assert course.instances[-1] >= 8
    known = run(SHORT, Contestant(KNOWN, Fixed(), start=4, knows=True), 0)
    assert scores(SHORT, known, 0.25).settling == TICK_S
    assert set(known.instances.tolist()) == {4.0, 8.0}


def test_too_few_instances_violate_the_bound_and_cost_less() -> None:
    few, many = (scores(SHORT, run(SHORT, fixed(n), 0), 0.25) for n in (3, 12))
    assert few.violations > 0.4
    assert many.violations == 0
    assert (few.paid, many.paid) == (3 * 30, 12 * 30)
    assert many.overshoot == 12 / 8


@dataclass(frozen=True)
class Noting(Fixed):
    """Changes nothing, and notes the sums of all instances of each slot."""

    in_concert: ClassVar[bool] = True
    noted: ClassVar[dict[int, SlotSums]] = {}

    def decide(
        self, reading: Reading, scale: Scale, memory: None, rng: Random
    ) -> tuple[Decision, None]:
        if reading.operator is not None:
            self.noted[reading.operator.slot] = reading.operator.sums
        return super().decide(reading, scale, memory, rng)


def test_instances_measure_the_latency_that_their_results_have() -> None:
    steady = Scene("steady", np.full(60, 7.6), 1.0)
    course = run(steady, Contestant("noting", Noting(), start=6), 0)
    sums = sum(Noting.noted.values(), SlotSums())
    assert sums.wait_s is not None
    assert sums.work_s is not None
    assert sums.wait_s > 0.02
    assert sums.wait_s + sums.work_s == pytest.approx(course.latencies.mean(), rel=0.1)


def test_predictive_control_does_not_pay_for_a_peak_long_after_it() -> None:
    peak = Scene("peak", np.array([4.0] * 20 + [25.0] * 3 + [4.0] * 37), 1.0)
    after_s = slice(round(30 / TICK_S), None)
    own, published = (
        run(peak, Contestant("own", Predictive(**settings)), 0).paid[after_s].mean()
        for settings in ({}, PUBLISHED)
    )
    assert own < 6
    assert published > 1.5 * own


def test_a_second_is_violated_by_its_mean_or_by_tuples_that_wait_in_vain() -> None:
    latencies = np.array([0.1, 0.1, 0.6, 0.1, 2.2])
    ends = np.array([0.4, 0.9, 1.5, 1.6, 4.1])  # the last one comes at 1.9
    empty = np.zeros(10)
    course = Course(empty, empty, empty, empty, ends, latencies, 0, 0, 0)
    assert violations(course, 5, 0.25).tolist() == [0, 1, 1, 1, 1]


def evaluation(figures: dict[str, tuple[float, float]]) -> Evaluation:
    """From violations and what is paid."""
    some = scores(SHORT, run(SHORT, fixed(5), 0), 0.25)
    runs = [
        Run(name, "short", 0, replace(some, violations=v, paid=paid), np.zeros(1), np.zeros(1))
        for name, (v, paid) in figures.items()
    ]
    return Evaluation(tuple(figures), ("short",), (), 1, runs, [])


def test_dominated_is_what_another_beats_in_one_figure_and_equals_in_the_other() -> None:
    found = evaluation(
        {
            "probabilistic": (0.1, 100.0),
            "same": (0.1, 100.0),
            "cheaper": (0.1, 99.0),
            "dearer": (0.05, 101.0),
            KNOWN: (0.0, 50.0),
        }
    )
    assert found.dominating() == found.cheaper() == ["cheaper"]
    assert found.dominating("cheaper") == []
    assert (
        "the default (probabilistic) in all figures, and better in one or more: cheaper."
        in telling.whole(found)
    )
    assert telling.numbers(found)["dominated_by"] == ["cheaper"]


def test_one_that_tells_more_dominates_not() -> None:
    found = evaluation({"probabilistic": (0.1, 100.0), "cheaper": (0.1, 99.0)})
    talks = replace(found.runs[1], scores=replace(found.runs[1].scores, messages=1e9))
    found = replace(found, runs=[found.runs[0], talks])
    assert found.dominating() == []
    assert found.cheaper() == ["cheaper"]


def test_recordings_are_scaled_cut_around_their_peak_and_put_together(tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    counts = [1] * 3000
    counts[1200] = 500
    path.write_text("count\n" + "\n".join(map(str, counts)))
    scene = scenes.recorded(path)
    assert (scene.name, scene.seconds) == ("load", scenes.SECONDS)
    assert scene.load.mean() == pytest.approx(scenes.MEAN)
    assert scene.load.argmax() == scenes.INTERVALS // 2
    assert list(scenes.recordings_in(tmp_path)) == [path]


def test_files_that_are_no_loads_are_left_out_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "short.csv").write_text("100\n200\n")
    (tmp_path / "words.txt").write_text("not a number\n")
    (tmp_path / "picture.png").write_text("")
    with pytest.raises(CurveError, match="100 intervals or more"):
        scenes.recorded(tmp_path / "short.csv")
    found = evaluate([], 1, tmp_path)
    assert [why.split(":")[0] for why in found.skipped] == ["short.csv", "words.txt"]
