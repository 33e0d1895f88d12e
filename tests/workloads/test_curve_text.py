"""Curves written as text on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.workloads.curve_text import CURVES, EXAMPLES, parse_curve
from anabranch.workloads.curves import (
    Bell,
    Brownian,
    CurveError,
    Daily,
    Knots,
    Noisy,
    Steady,
    Step,
    Trace,
)


def test_settings_in_the_text_are_settings_of_the_value() -> None:
    assert parse_curve("daily:peak=5000,day_s=60") == Daily(5000, 60)
    assert parse_curve(" step: before=1, after=2.5, at_s=1e1 ") == Step(1, 2.5, 10)
    assert parse_curve("bell:peak=9,at_s=3,width_s=1") == Bell(9, 3, 1)
    assert parse_curve("knots:points=0:5/2:7,then=stay") == Knots(((0, 5), (2, 7)), "stay")
    assert parse_curve("brownian") == Brownian()
    assert parse_curve("brownian:seed=4") == Brownian(seed=4)


def test_a_number_alone_is_a_steady_rate() -> None:
    assert parse_curve("2000") == Steady(2000)


def test_noise_goes_with_every_curve() -> None:
    assert parse_curve("steady:level=9,noise=0.2,seed=3") == Noisy(Steady(9), noise=0.2, seed=3)


def test_every_example_but_the_one_of_a_file_is_a_curve() -> None:
    assert {e.partition(":")[0] for e in EXAMPLES} == set(CURVES)
    for example in EXAMPLES[:-1]:
        assert parse_curve(example)(1.0) > 0


def test_a_trace_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "load.txt"
    path.write_text("10\n20\n30\n40\n50\n")
    text = f"trace:path={path},interval_s=60,begin_s=60,bin_s=120,compress=60,peak=90,then=end"
    assert parse_curve(text) == Trace((50, 90), 120, compress=60, peak=90, then="end")


def test_a_trace_can_be_smooth(tmp_path: Path) -> None:
    path = tmp_path / "load.txt"
    path.write_text("0\n30\n60\n0\n")
    assert parse_curve(f"trace:path={path},smooth_s=3") == Trace((15, 30, 30, 30), 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("daly:peak=5", "no curve 'daly'; did you mean 'daily'"),
        ("wobble", "no curve 'wobble'; known: steady, step"),
        ("daily:pek=5", "daily: no setting 'pek'; did you mean 'peak'"),
        ("daily:peak", "daily: expected setting=value, got 'peak'"),
        ("daily:peak=high", "daily: peak must be a number, got 'high'"),
        ("daily:peak=1,peak=2", "daily: peak is given twice"),
        ("daily", "daily: needs peak, as in daily:peak=5000"),
        ("step:before=1", "step: needs after, at_s"),
        ("sine:low=5,high=1", "sine: expected low <= high"),
        ("knots:points=0/5", "knots: expected points as 0:500/20:4000, got '0/5'"),
        ("knots:points=0:5/x:7", "knots: time must be a number, got 'x'"),
        ("knots", "knots: needs points"),
        ("trace:peak=5", "trace: needs path"),
        ("trace:path=no/such/file", "trace: cannot read no/such/file"),
        ("trace:path=x,form=odd", "trace: form is counts, values or arrivals"),
    ],
)
def test_a_mistake_is_answered_with_what_was_meant(text: str, says: str) -> None:
    with pytest.raises(CurveError) as caught:
        parse_curve(text)
    assert says in str(caught.value)
