"""What is noted of a live run says what was lost, what was doubled, and how late each tuple was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anabranch.workloads.curves import Steady, Step, Trace
from anabranch.workloads.experiments.noting import due_times, read_notes


def test_lost_and_doubled_results_are_counted(tmp_path: Path) -> None:
    # Number, made, done; number 1 is lost, number 2 came twice.
    rows = [(0, 5.1, 5.3), (2, 5.3, 5.6), (2, 5.3, 5.5), (3, 5.4, 5.55)]
    np.save(tmp_path / "results.npy", np.array(rows))
    notes, exactness = read_notes(tmp_path / "results.npy", Steady(10.0), 4)
    assert not exactness.met
    assert exactness.text == "4 tuples, 1 lost, 1 doubled"
    assert notes.numbers.tolist() == [0, 2, 3, 2]  # in the order of completion


def test_latency_counts_from_when_a_tuple_was_due_though_the_source_read_it_later(
    tmp_path: Path,
) -> None:
    rows = [(0, 7.1, 7.15), (1, 7.2, 7.25), (2, 9.0, 9.05)]
    np.save(tmp_path / "results.npy", np.array(rows))
    notes, exactness = read_notes(tmp_path / "results.npy", Steady(10.0), 3)
    assert exactness.met
    assert notes.began_s == pytest.approx(7.0)
    assert notes.latencies.tolist() == pytest.approx([0.05, 0.05, 1.75])


def test_a_tuple_before_a_pause_is_due_when_its_number_is_reached() -> None:
    curve = Trace((2.0, 0.0, 2.0), 1.0, then="end")
    assert due_times(curve, 4).tolist() == pytest.approx([0.5, 1.0, 2.5, 3.0], abs=1e-3)


def test_due_times_follow_the_curve() -> None:
    curve = Step(before=1.0, after=2.0, at_s=2.0)
    assert due_times(curve, 6).tolist() == pytest.approx([1.0, 2.0, 2.5, 3.0, 3.5, 4.0])
