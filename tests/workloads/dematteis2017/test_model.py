"""The model of an operator, its loads, and what a course was worth (PL13, PL-K8)."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anabranch.runtime.policies.predictive.controller import Slot
from anabranch.runtime.policies.predictive.queueing import QueueLoad, wait_split
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.dematteis2017.contestants import rates_of
from anabranch.workloads.dematteis2017.loads import (
    QUOTES,
    Scene,
    day,
    jump,
    read_counts,
    walk,
)
from anabranch.workloads.dematteis2017.model import (
    INSTANCES_MAX,
    MOVE_S,
    WORK_CV2,
    WORK_S,
    Course,
    drawn,
    simulate,
)
from anabranch.workloads.dematteis2017.scores import (
    changes,
    jitter,
    scores,
    settling,
    step_latencies,
)
from anabranch.workloads.experiments.recordings import find
from anabranch.workloads.quotes import QUOTES_HEADER


def steady(share: float, seconds: int = 12) -> Scene:
    return Scene("steady", np.full(seconds, share), 1.0, 250.0)


def one_after_the_other(at: FloatArray, work: FloatArray) -> FloatArray:
    free, ends = 0.0, []
    for arrives, takes in zip(at.tolist(), work.tolist(), strict=True):
        free = max(free, arrives) + takes
        ends.append(free)
    return np.array(ends)


@pytest.mark.parametrize("share", [0.5, 1.3])
def test_an_instance_serves_one_tuple_after_the_other_over_steps(share: float) -> None:
    course = simulate(steady(share), 3, lambda slot: 1, start=1, instances_max=1)
    tuples = drawn(steady(share), 3, instances_max=1)
    served = len(course.ends)
    expected = one_after_the_other(tuples.at, tuples.work)[:served]
    assert served + course.left == len(tuples)
    assert course.ends == pytest.approx(expected)
    assert course.latencies == pytest.approx(expected - tuples.at[:served])
    assert (course.left > 100) is (share > 1)


def test_no_tuple_is_lost_while_instances_come_and_go() -> None:
    plan = iter([3, 10, 1, 8])
    course = simulate(steady(0.4), 5, lambda slot: next(plan), start=5, instances_max=10)
    assert course.instances.tolist() == [5, 3, 10, 1]
    assert len(course.ends) + course.left == len(drawn(steady(0.4), 5, 10))
    assert course.left > 0
    assert (np.diff(course.ends) >= 0).all()


def test_waits_are_those_of_a_queue_at_each_instance() -> None:
    """Erratum PL-G1: PL4b, not one fast server."""
    course = simulate(steady(0.6, 60), 1, lambda slot: 20, start=20, instances_max=20)
    load = QueueLoad(0.6 * 20 / WORK_S, WORK_S, 1.0, WORK_CV2)
    wait = float(course.latencies.mean()) - WORK_S
    assert wait == pytest.approx(wait_split(1)(load, 20), rel=0.1)


def test_the_slot_tells_what_was_offered() -> None:
    seen: list[Slot] = []

    def note(slot: Slot) -> int:
        seen.append(slot)
        return 30

    simulate(steady(0.5, 30), 2, note, start=30, instances_max=30)
    for slot in seen[1:]:
        sums = slot.sums
        assert sums.rate == pytest.approx(0.5 * 30 / WORK_S, rel=0.1)
        assert sums.work_s == pytest.approx(WORK_S, rel=0.05)
        assert sums.work_cv2 == pytest.approx(WORK_CV2, rel=0.1)
        assert sums.arrivals_cv2 == pytest.approx(1.0, abs=0.8)
        by_the_queue = replace(slot, latency_s=None).measured_s
        assert by_the_queue == pytest.approx(slot.latency_s, rel=0.1)


def test_keys_that_move_wait_for_their_state() -> None:
    plan = iter([8, 8, 8, 8])
    moved = simulate(steady(0.1), 4, lambda slot: next(plan), start=4, instances_max=8)
    still = simulate(steady(0.1), 4, lambda slot: 4, start=4, instances_max=8)
    assert moved.latencies.max() > MOVE_S - 0.01 > still.latencies.max()
    late = moved.ends[moved.latencies > 0.1]
    assert ((late > 3 + MOVE_S) & (late < 4)).all()


def test_the_same_seed_offers_the_same_whatever_is_decided() -> None:
    one, other = simulate(walk(1), 1, lambda slot: 60), simulate(walk(1), 1, lambda slot: 90)
    assert (one.offered == other.offered).all()
    assert (one.offered != simulate(walk(2), 2, lambda slot: 60).offered).any()


def test_the_walk_stays_within_its_bounds() -> None:
    for seed in range(5):
        shares = walk(seed).shares
        assert shares[0] == 0.5
        assert 0.225 <= shares.min() < shares.max() <= 0.765


def test_the_day_is_scaled_to_its_mean_and_cut_at_its_most() -> None:
    counts = np.array([100.0] * 99 + [1000.0])
    found = day(counts)
    assert found.shares[0] == pytest.approx(0.4 * 100 / 109)
    assert found.shares[-1] == 1.15
    assert found.bin_s == pytest.approx(0.6)


def test_rates_of_steps_are_the_mean_of_their_bins() -> None:
    full = INSTANCES_MAX / WORK_S
    bins = Scene("b", np.arange(10.0), 0.6, 250.0)
    assert rates_of(bins) == pytest.approx(np.array([2.0, 7.0]) * full)
    assert rates_of(jump())[18:22] == pytest.approx(np.array([0.3, 0.3, 0.6, 0.6]) * full)


def write(path: Path, *lines: str) -> Path:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    return path


def test_quotes_are_counted_while_the_exchange_is_open(tmp_path: Path) -> None:
    rest = "P,156.57,1,158.85,1,XXX"
    stamps = ("14:29:59.999", "14:30:00.000001", "14:30:29", "14:30:30", "20:59:59.9", "21:00:01")
    lines = [f"2018-01-02T{stamp},{rest}" for stamp in stamps]
    counts = read_counts(write(tmp_path / QUOTES, QUOTES_HEADER, *lines))
    assert len(counts) == 780
    assert (counts[0], counts[1], counts[-1], counts.sum()) == (2, 1, 1, 4)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected the columns DT,EX"):
        read_counts(write(tmp_path / QUOTES, "DT,SYMBOL,PRICE,SIZE"))


def test_the_recording_may_lie_in_the_folder_of_trades(tmp_path: Path) -> None:
    assert find(tmp_path, "trades", QUOTES) is None
    (tmp_path / "trades").mkdir()
    within = write(tmp_path / "trades" / QUOTES, QUOTES_HEADER)
    assert find(tmp_path, "trades", QUOTES) == find(within.parent, "trades", QUOTES) == within


def test_k8_jitter_and_changes() -> None:
    assert jitter(np.array([10.0, 12, 11, 20, 20])) == 3.0
    reconfigurations, amplitude, mean = changes(np.array([4.0, 4, 6, 5, 5, 8]))
    assert (reconfigurations, amplitude) == (3, 2.0)
    assert mean == pytest.approx(5.33, abs=0.01)


def test_steps_are_judged_by_the_results_completed_in_them() -> None:
    ends = np.array([1.0, 2.0, 4.0, 9.5])
    course = Course(np.ones(3), np.ones(3), ends, np.array([0.1, 0.5, 0.2, 9.0]), 0)
    assert step_latencies(course) == pytest.approx([0.3, 0.2, 0.0])
    found = scores(course, 0.25)
    assert (found.violations, found.reconfigurations, found.amplitude) == (1, 0, 0)


@pytest.mark.parametrize(
    ("latencies", "steps"),
    [([1, 1, 9, 1, 9, 1, 1], 3), ([1, 1, 1, 1], 0), ([1, 9, 9], None), ([9, 1, 1], 0)],
)
def test_settled_is_what_stays_settled(latencies: list[float], steps: int | None) -> None:
    assert settling(np.array(latencies, dtype=float), 2 if len(latencies) > 4 else 1, 5) == steps
