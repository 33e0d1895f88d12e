"""The evaluation: what its models do by hand-made loads, and what the issue asks of the policy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anabranch.workloads.belkhiria2019.evaluation import (
    CORRECTED,
    LIMIT,
    OURS,
    PUBLISHED,
    Evaluation,
    evaluate,
)
from anabranch.workloads.belkhiria2019.exact import in_turn
from anabranch.workloads.belkhiria2019.metrics import following, formula, reversals, settling
from anabranch.workloads.belkhiria2019.published import published
from anabranch.workloads.belkhiria2019.reactive import reactive
from anabranch.workloads.belkhiria2019.recorded import recorded
from anabranch.workloads.belkhiria2019.setup import Outcome, Setup, brownian, steady
from anabranch.workloads.belkhiria2019.telling import MAIN, whole
from anabranch.workloads.curve_base import CurveError

SETUP = Setup()


def steps(*levels: float, runs: int = 1, each: int = 50) -> np.ndarray:
    """Loads in ideal instances, each for so many steps."""
    row = np.repeat(np.array(levels) * SETUP.full, each)
    return np.broadcast_to(row, (runs, SETUP.operators, len(row)))


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    return evaluate(SETUP, 10, policies=MAIN)


def test_the_limit_has_the_exact_count_as_soon_as_the_delays_allow() -> None:
    out = reactive(SETUP, steps(7, 12, 4))
    counts = out.instances[0, 0]
    assert counts[[49, 52, 53, 99, 101, 102]].tolist() == [7, 7, 12, 12, 12, 4]


def test_to_the_letter_nobody_leaves_and_nobody_duplicates_once() -> None:
    """Errata PE1 and PE3."""
    out = published(SETUP, steps(7, 1, runs=20), 0, as_meant=False)
    assert out.leaves.sum() == 0
    slightly = published(SETUP, steps(7, 9.5, runs=20), 0, as_meant=False)
    assert slightly.joins.sum() == 0
    doubled = published(SETUP, steps(7, 15, runs=20), 0, as_meant=False)
    assert (doubled.joins >= 2 * doubled.batches).all()
    assert doubled.joins.sum() > 0


def test_as_meant_the_missing_come_in_expectation_within_one_round_of_decisions() -> None:
    out = published(SETUP, steps(7, 10, runs=400), 0, as_meant=True)
    first_round = out.joins[:, :, 50:53].sum(axis=-1).mean()
    # Three of five phases decide before the first newcomer is there: three fifths of three.
    assert first_round == pytest.approx(3 * 3 / 5, abs=0.1)
    assert out.leaves[:, :, :50].sum() == 0


def test_the_keeper_stays_when_everybody_leaves() -> None:
    for simulate in (in_turn, lambda *a: published(*a, as_meant=True)):
        out = simulate(SETUP, steps(7, 0), 0)
        assert (out.instances[..., -1] == 1).all()


def test_messages_of_one_batch_are_the_papers_thirty() -> None:
    """Two newcomers by one instance between seven and seven neighbours."""
    out = Outcome.empty(steps(7, each=1))
    out.instances[:] = 7
    out.joins[0, 2, 0], out.batches[0, 2, 0] = 2, 1
    assert out.messages[0, 2, 0] == 30
    assert formula(out)[0, 2, 0] == 2 * 2 * 14 + 2


def test_settling_counts_until_the_last_step_outside_the_thresholds() -> None:
    out = Outcome.empty(steps(7, 14, each=10))
    out.instances[:] = 7
    out.instances[..., 13:] = 14
    assert set(settling(SETUP, out, 10).ravel().tolist()) == {3.0}
    out.instances[..., 17] = 20
    assert set(settling(SETUP, out, 10).ravel().tolist()) == {8.0}


def test_reversals_are_turns_not_steps() -> None:
    out = Outcome.empty(np.ones((1, 1, 8)))
    out.instances[0, 0] = [1, 2, 3, 3, 2, 2, 4, 4]
    assert reversals(out, 0).tolist() == [2.0]


def test_an_even_load_is_met_at_once_with_one_batch() -> None:
    out = in_turn(SETUP, steps(7, 14), 0)
    assert out.joins.sum(axis=-1).tolist() == [[7] * 5]
    assert out.batches.sum() == 5
    assert (settling(SETUP, out, 50) == 3).all()


def test_a_steady_load_is_left_in_peace() -> None:
    load = steady(SETUP, range(5))
    assert reversals(in_turn(SETUP, load, 0), 0).max() <= 1
    assert reversals(in_turn(SETUP, load, 0, noise=0.03), 100).sum() == 0


def test_runs_are_the_same_however_they_are_cut(evaluation: Evaluation) -> None:
    """Run k depends on seed k alone, so jobs of any size and order give the same table."""
    load = brownian(SETUP, range(3, 5))
    again = in_turn(SETUP, load, 3)
    assert np.array_equal(again.instances, evaluation.outcomes[OURS].instances[3:5])


def test_half_the_gap_to_the_limit_is_closed_with_fewer_messages_and_instances(
    evaluation: Evaluation,
) -> None:
    gaps = [
        evaluation.closed(lambda s: s.following.error),
        evaluation.closed(lambda s: s.following.throughput_p5),
        evaluation.closed(lambda s: s.following.throughput_worst_twentieth),
        evaluation.closed(lambda s: s.settling),
    ]
    assert min(gaps) >= 0.5
    ours, theirs = (evaluation.scores[p].following for p in (OURS, PUBLISHED))
    assert ours.messages < 0.95 * theirs.messages
    assert ours.instances <= theirs.instances
    assert ours.joins_to_formula < 0.5


def test_the_quick_look_of_the_issue_is_met(evaluation: Evaluation) -> None:
    """Mean and worst throughput of the published policy and of the limit, measured before."""
    theirs, limit = (evaluation.scores[p].following for p in (PUBLISHED, LIMIT))
    assert theirs.throughput_mean == pytest.approx(0.967, abs=0.006)
    assert theirs.throughput_worst == pytest.approx(0.51, abs=0.05)
    assert limit.throughput_mean == pytest.approx(0.983, abs=0.006)
    assert limit.throughput_worst == pytest.approx(0.57, abs=0.05)


def test_the_table_tells_what_is_missing_and_names_all(evaluation: Evaluation) -> None:
    text = whole(evaluation, {}, ["recorded loads: no folder"])
    assert all(name in text for name in (PUBLISHED, CORRECTED, OURS, LIMIT, "114 for 40,396"))
    assert "Skipped: recorded loads: no folder" in text


def test_a_recording_is_cut_around_its_peak_and_scaled(tmp_path: Path) -> None:
    path = tmp_path / "load.txt"
    values = [1.0] * 1000
    values[700] = 50.0
    path.write_text("\n".join(map(str, values)))
    load = recorded(SETUP, path)
    assert load.shape == (SETUP.operators, SETUP.steps)
    assert load.mean() == pytest.approx(10 * SETUP.full)
    assert load[0].argmax() == 100
    path.write_text("1\n2\n")
    with pytest.raises(CurveError, match="200 intervals"):
        recorded(SETUP, path)


def test_following_reads_off_a_hand_made_outcome() -> None:
    out = Outcome.empty(steps(10, each=4))
    out.instances[:] = np.array([5, 10, 10, 20])
    f = following(SETUP, out)
    assert (f.accuracy_worst, f.overshoot_max, f.accuracy_median) == (0.5, 2.0, 1.0)
    assert f.error == pytest.approx((0.5 + 1.0) / 4)
    assert f.throughput_worst == pytest.approx(2500 / 3500)
