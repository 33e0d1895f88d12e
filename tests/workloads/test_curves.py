"""Load curves: rates that are never negative, exact integrals, the same for the same seed."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.workloads.curves import (
    Bell,
    Brownian,
    Curve,
    CurveError,
    Daily,
    Knots,
    Noisy,
    Sine,
    Square,
    Stair,
    Steady,
    Step,
    Trace,
)

LEVELS = st.floats(0, 1e5)
SPANS = st.floats(0.5, 500)
SEEDS = st.integers(0, 2**32)


def between(
    make: Callable[..., Curve], **more: st.SearchStrategy[object]
) -> st.SearchStrategy[Curve]:
    """Curves with `low` and `high` in order."""
    ends = st.tuples(LEVELS, LEVELS).map(sorted)
    return st.builds(lambda e, **kw: make(low=e[0], high=e[1], **kw), ends, **more)


PLAIN = st.one_of(
    st.builds(Steady, LEVELS),
    st.builds(Step, LEVELS, LEVELS, st.floats(0, 100)),
    st.builds(
        lambda a, b, at, wide: Step(a, b, at, at + wide), LEVELS, LEVELS, st.floats(0, 100), SPANS
    ),
    between(Stair, stairs=st.integers(2, 9), hold_s=SPANS),
    between(Square, period_s=SPANS, duty=st.floats(0.05, 0.95)),
    between(Sine, period_s=SPANS),
    st.builds(
        lambda e, at, wide: Bell(e[1], at, wide, base=e[0]),
        st.tuples(LEVELS, LEVELS).map(sorted),
        st.floats(0, 500),
        SPANS,
    ),
    st.builds(
        lambda rates, gap, then: Knots(tuple((gap * i, r) for i, r in enumerate(rates)), then),
        st.lists(LEVELS, min_size=2, max_size=9),
        SPANS,
        st.sampled_from(["repeat", "stay", "end"]),
    ),
    st.builds(Brownian, LEVELS, st.floats(0, 1e3), st.floats(0.1, 10), seed=SEEDS),
    st.builds(
        Daily, LEVELS, SPANS, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 23.9)
    ),
    st.builds(
        Trace,
        st.lists(LEVELS, min_size=1, max_size=30).map(tuple),
        st.floats(0.5, 100),
        st.floats(0.1, 10),
        then=st.sampled_from(["repeat", "end"]),
    ),
)
CURVES = st.one_of(PLAIN, st.builds(Noisy, PLAIN, st.floats(0, 1), st.floats(0.1, 10), SEEDS))
TIMES = st.floats(0, 1000)


@given(CURVES, TIMES)
def test_no_curve_has_a_negative_rate(curve: Curve, t_s: float) -> None:
    assert curve(t_s) >= 0
    assert curve(-1.0) == 0
    assert curve.due(-1.0) == 0
    assert curve.due(0.0) == pytest.approx(0, abs=1e-6)


@given(CURVES, st.lists(TIMES, min_size=1, max_size=20))
def test_an_array_of_times_gives_what_each_time_gives(curve: Curve, times: list[float]) -> None:
    array = np.array(times)
    np.testing.assert_allclose(curve(array), [curve(t) for t in times], rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(
        curve.due(array), [curve.due(t) for t in times], rtol=1e-9, atol=1e-6
    )


@given(CURVES, TIMES, TIMES)
def test_what_is_due_never_falls(curve: Curve, one: float, other: float) -> None:
    early, late = sorted((one, other))
    assert curve.due(late) >= curve.due(early) - 1e-6 * (1 + curve.due(late))


@settings(max_examples=60)
@given(CURVES, st.floats(1, 100))
@example(Step(0.0, 1.0, 0.99999), 1.0)
def test_what_is_due_is_the_integral_of_the_rate(curve: Curve, end_s: float) -> None:
    # The sum of the rates in the middle of fine slices is the integral up to what the jumps of
    # a stepped curve put into the wrong slice: at most one jump's height in each slice.
    slices = 20_000
    edges = np.linspace(0, end_s, slices + 1)
    rates = curve((edges[1:] + edges[:-1]) / 2)
    summed = float(rates.sum() * end_s / slices)
    first, last = curve(np.array([0.0, end_s]))  # a jump may be outside of the outermost middles
    jumps = float(np.abs(np.diff(rates, prepend=first, append=last)).sum() * end_s / slices)
    assert curve.due(end_s) == pytest.approx(summed, abs=jumps + 1e-6 * (1 + summed))


@given(CURVES, TIMES)
def test_a_copy_in_another_process_is_the_same_curve(curve: Curve, t_s: float) -> None:
    copy = pickle.loads(pickle.dumps(curve))
    assert copy == curve
    assert copy(t_s) == curve(t_s)


@pytest.mark.parametrize("make", [lambda s: Brownian(seed=s), lambda s: Noisy(Steady(10), seed=s)])
def test_only_the_seed_decides_about_a_random_curve(make: Callable[[int], Curve]) -> None:
    times = np.arange(100.0)
    np.testing.assert_array_equal(make(7)(times), make(7)(times))
    assert not np.array_equal(make(7)(times), make(8)(times))


def test_a_brownian_load_is_the_same_however_far_one_looks() -> None:
    near, far = Brownian(seed=3), Brownian(seed=3)
    early = near(np.arange(20.0))
    far(1e4)
    np.testing.assert_array_equal(far(np.arange(20.0)), early)


def test_brownian_steps_have_the_given_deviation() -> None:
    steps = np.diff(Brownian(start=1e9, step_sd=400, seed=1)(np.arange(20_000.0)))
    assert abs(float(steps.mean())) < 10
    assert float(steps.std()) == pytest.approx(400, rel=0.03)


@given(SEEDS, st.floats(0, 3000))
def test_a_bounded_brownian_load_keeps_its_bounds(seed: int, low: float) -> None:
    rates = Brownian(seed=seed, low=low, high=4000)(np.arange(300.0))
    assert low <= rates.min()
    assert rates.max() <= 4000


@given(SEEDS)
def test_the_lower_bound_stops_a_walk_as_a_loop_would(seed: int) -> None:
    motion = Brownian(start=1000, step_sd=600, low=200, seed=seed)
    moves = np.random.default_rng(seed).standard_normal(511) * 600
    at, expected = 1000.0, [1000.0]
    for move in moves:
        at = max(200.0, at + move)
        expected.append(at)
    np.testing.assert_allclose(motion(np.arange(512.0)), expected, rtol=1e-9)


def test_steps_happen_at_their_second() -> None:
    assert [Step(1, 5, 10, 20)(t) for t in (0, 9.99, 10, 19.99, 20)] == [1, 1, 5, 5, 1]
    assert Step(1, 5, at_s=0)(0.0) == 5
    assert Step(1, 5, 10, 20).due(30.0) == 10 + 50 + 10


def test_a_stair_climbs_and_comes_down_and_repeats() -> None:
    stair = Stair(100, 300, stairs=3, hold_s=10)
    assert [stair(t) for t in (0, 10, 20, 30, 40, 50)] == [100, 200, 300, 200, 100, 200]
    assert stair.due(40.0) == 10 * (100 + 200 + 300 + 200)


def test_a_square_begins_low_and_keeps_its_duty() -> None:
    square = Square(10, 90, period_s=20, duty=0.25)
    assert [square(t) for t in (0, 14.9, 15, 19.9, 20)] == [10, 10, 90, 90, 10]
    assert square.due(20.0) == 15 * 10 + 5 * 90


def test_a_sine_swings_between_its_ends() -> None:
    sine = Sine(100, 300, period_s=40)
    assert sine(0.0) == 100
    assert sine(20.0) == 300
    assert sine.due(40.0) == pytest.approx(40 * 200)


def test_a_day_has_two_peaks_and_a_quiet_night() -> None:
    day = Daily(1000, day_s=24, start_h=0)
    assert day(19.0) == 1000
    assert day(8.5) == pytest.approx(780)
    assert day(13.0) == pytest.approx(700)
    assert day(4.0) == pytest.approx(120)
    assert day(28.0) == pytest.approx(120)
    assert Daily(1000, day_s=24)(0.0) == pytest.approx(120)


def test_a_days_tuples_do_not_depend_on_the_hour_of_the_start() -> None:
    days = [Daily(1000, day_s=60, start_h=h).due(60.0) for h in (0, 4, 11.5, 23)]
    assert days == pytest.approx([days[0]] * 4)


def test_a_trace_at_natural_speed_sends_each_recorded_arrival() -> None:
    trace = Trace((60.0, 120.0, 0.0), interval_s=60, then="end")
    assert [trace(t) for t in (0, 60, 120, 180, 999)] == [1, 2, 0, 0, 0]
    assert trace.due(999.0) == 180


def test_a_compressed_trace_sends_as_many_in_less_time() -> None:
    trace = Trace((60.0, 120.0), interval_s=60, compress=30, then="end")
    assert trace.length_s == 4
    assert trace.due(4.0) == 180


def test_a_scaled_trace_peaks_at_the_given_rate_and_repeats() -> None:
    trace = Trace((5.0, 50.0), interval_s=60, compress=60, peak=3000)
    assert [trace(t) for t in (0, 1, 2, 3)] == [300, 3000, 300, 3000]


def test_noise_keeps_the_mean() -> None:
    rough = Noisy(Steady(1000), noise=0.2, seed=5)
    assert rough.due(2000.0) == pytest.approx(2e6, rel=0.02)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Steady(-1), "steady: level"),
        (lambda: Steady(float("nan")), "steady: level"),
        (lambda: Step(1, 2, at_s=5, until_s=4), "step: .*until_s"),
        (lambda: Stair(1, 2, stairs=1), "stair: .*stairs"),
        (lambda: Square(3, 2), "square: .*low <= high"),
        (lambda: Sine(1, 2, period_s=0), "sine: .*period_s"),
        (lambda: Brownian(start=10, low=20), "brownian: .*low <= start"),
        (lambda: Brownian(seed=-1), "brownian: seed"),
        (lambda: Daily(1000, morning=1.2), "daily: .*shares"),
        (lambda: Trace((), 60), "trace: .*one value"),
        (lambda: Trace((0.0,), 60, peak=10), "trace: .*no peak"),
        (lambda: Trace((1.0,), 60, compress=0), "trace: .*compress"),
        (lambda: Noisy(Steady(1), noise=-0.1), "noisy: noise"),
    ],
)
def test_a_curve_without_sense_names_the_setting(make: Callable[[], Curve], names: str) -> None:
    with pytest.raises(CurveError, match=names):
        make()


def test_a_bell_has_its_peak_at_its_time_and_as_much_under_it_as_a_normal_distribution() -> None:
    bell = Bell(peak=90, at_s=300, width_s=20, base=10)
    assert bell(300.0) == pytest.approx(90)
    assert bell(300.0 + 20 * np.sqrt(2 * np.log(2))) == pytest.approx(50)
    assert bell.due(600.0) == pytest.approx(6000 + 80 * 20 * np.sqrt(2 * np.pi))


@pytest.mark.parametrize(
    ("then", "rate", "due"), [("repeat", 30, 85), ("stay", 40, 100), ("end", 0, 60)]
)
def test_knots_are_joined_by_straight_lines_and_go_on_as_they_are_told(
    then: str, rate: float, due: float
) -> None:
    knots = Knots(((0, 20), (2, 40)), then)  # type: ignore[arg-type]
    assert [knots(t) for t in (0.0, 1.0, 1.5)] == [20, 30, 35]
    assert knots.due(1.0) == 25
    assert (knots(3.0), knots.due(3.0)) == (rate, due)


@pytest.mark.parametrize(
    "points", [(), ((0, 1),), ((1, 1), (2, 1)), ((0, 1), (0, 2)), ((0, -1), (1, 1))]
)
def test_points_that_make_no_course_are_refused(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(CurveError, match="knots: expected two points or more"):
        Knots(points)
