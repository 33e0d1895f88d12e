"""How far a new figure of the load is believed."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.policies.motion import GAIN_MIN, STEP_MAX, Motion


def after(figures: list[float]) -> Motion:
    motion = Motion.begin(figures[0])
    for figure in figures[1:]:
        motion = motion.seen(figure)
    return motion


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60))
def test_a_level_lies_among_the_figures_and_some_of_each_is_believed(figures: list[float]) -> None:
    motion = after(figures)
    slack = 1e-9 * max(figures)
    assert min(figures) - slack <= motion.level <= max(figures) + slack
    assert GAIN_MIN <= motion.gain <= 1
    assert 0 <= motion.noise <= motion.squares / 2 <= STEP_MAX**2


def test_a_course_that_goes_on_is_believed_at_once() -> None:
    for figures in ([5.0] * 9, [float(n) for n in range(4, 20)], [20 / 1.1**n for n in range(9)]):
        motion = after(figures)
        assert (motion.gain, motion.level) == (1.0, figures[-1])


def test_of_ups_and_downs_that_undo_each_other_a_share_is_believed() -> None:
    rng = random.Random(1)
    figures = [10 + rng.gauss(0, 2) for _ in range(120)]
    levels = [after(figures[:n]).level for n in range(60, 120)]
    assert after(figures).noise > 0
    assert after(figures).gain < 0.8
    assert stdev(levels) < 0.8 * stdev(figures[60:])


def test_a_load_that_doubles_is_answered_and_one_that_jumps_must_be_seen_again() -> None:
    assert after([8.0, 8.0, 16.0]).at_least(known=8.0) == 16
    jumped = after([8.0, 8.0, 200.0])
    assert jumped.at_least(known=8.0) == 8
    assert jumped.seen(60.0).at_least(known=8.0) == pytest.approx(60)


def test_a_collapse_must_be_seen_three_times_and_a_fall_once() -> None:
    assert after([8.0, 8.0, 5.0]).at_most(known=8.0) == 5
    looks = [after([8.0, 8.0, *[1.0] * n]).at_most(known=8.0) for n in (1, 2, 3)]
    assert looks == [8, 8, 1]


def test_few_may_go_at_once_however_far_their_load_falls() -> None:
    assert after([2.0, 2.0, 0.1]).at_most(known=2.0) == pytest.approx(0.1)


def test_a_newcomer_goes_on_with_what_its_maker_knew() -> None:
    maker = after([10.0, 12.0, 9.0, 13.0])
    born = Motion.born(maker.heritage | {"other": 1.0})
    assert born is not None
    a, b = maker.seen(11.0), born.seen(11.0)
    assert (a.level, a.squares, a.products) == (b.level, b.squares, b.products)
    assert Motion.born({"level": 3.0}) is None


@given(st.lists(st.floats(1, 100), min_size=2, max_size=30))
def test_one_jump_counts_as_a_doubling_at_most(figures: list[float]) -> None:
    motion = Motion.begin(figures[0])
    for _, figure in pairwise(figures):
        motion = motion.seen(figure)
        assert abs(motion.step) <= STEP_MAX
