"""Polynomials fitted to the latest quotes of each stock, against the oracle, on real quotes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.values.checks import PipelineError
from anabranch.workloads import quotes
from anabranch.workloads.quotes import Price
from tests.workloads.shared_data import lines_of

needs_scipy = pytest.mark.skipif(find_spec("scipy") is None, reason="SciPy is not installed")

QUOTES = "trades/taq_xxx_20180102_quotes.csv.gz"
TRADES = "trades/multi_3symbols_20140917_trades.csv.gz"


def pipeline(**options: Any) -> Pipeline:
    return quotes.pipeline(ab.files("quotes.csv"), ab.discard(), **options)


def test_a_quote_is_worth_its_middle_and_a_trade_its_price() -> None:
    (price,) = quotes.prices_in("2018-01-02T14:30:00.5,N,156.5,1,158.5,2,XXX\n")
    assert price == ("XXX", 1514903400.5, 157.5)
    assert quotes.prices_in("2014-09-17T09:30:00,ETF,23.82,3")[0][::2] == ("ETF", 23.82)


@pytest.mark.parametrize(
    "line",
    [
        quotes.QUOTES_HEADER,
        quotes.TRADES_HEADER + "\r\n",
        "2018-01-02T14:30:00,N,0,1,158.5,2,XXX",
        "2018-01-02T14:30:00,N,156.5,1,0,2,XXX",
        "2018-01-02T14:30:00,N,158.6,1,158.5,2,XXX",
    ],
)
def test_headers_and_quotes_that_mean_no_price_are_dropped(line: str) -> None:
    assert quotes.prices_in(line) == []


def test_what_is_no_quote_is_a_dead_letter() -> None:
    with pytest.raises(ValueError, match="expected DT,EX,BID"):
        quotes.prices_in("a,b,c")


@needs_scipy
def test_a_course_that_is_a_parabola_is_found() -> None:
    places = np.linspace(-1, 0, 50)
    prices = [Price("A", float(1000 + 50 * x), float(100 + 3 * x - 2 * x * x)) for x in places]
    found = quotes.fit("A", prices)
    assert found.coefficients == pytest.approx((100, 3, -2))
    assert found.error == pytest.approx(0, abs=1e-9)
    assert (found.time, found.prices) == (1000.0, 50)


@needs_scipy
def test_prices_of_one_instant_are_fitted_by_their_mean() -> None:
    found = quotes.fit("A", [Price("A", 5.0, p) for p in (10.0, 11.0, 12.0)])
    assert found.coefficients[0] == pytest.approx(11)


@needs_scipy
def test_two_prices_make_a_straight_line() -> None:
    found = quotes.fit("A", [Price("A", 1.0, 10.0), Price("A", 2.0, 12.0)])
    assert found.coefficients == pytest.approx((12, 2, 0))


@needs_scipy
def test_the_fit_has_the_least_squares() -> None:
    lines = lines_of(QUOTES)[20_000:22_000]
    prices = [price for line in lines for price in quotes.prices_in(line)]
    places = quotes.places_of(prices)
    best = np.polynomial.polynomial.polyfit(places, [p.price for p in prices], 2)
    assert quotes.fit("XXX", prices).coefficients == pytest.approx(tuple(best), rel=1e-6)


def test_prices_of_one_interval_are_one_with_their_mean() -> None:
    prices = [Price("A", t, p) for t, p in ((0.2, 1.0), (0.3, 2.0), (0.39, 4.0), (0.41, 9.0))]
    found = quotes.averaged(prices, 0.1)
    assert [(round(one.time, 6), one.price) for one in found] == [(0.2, 1), (0.345, 3), (0.41, 9)]


@needs_scipy
def test_a_resolution_averages_before_the_fit_and_in_the_oracle() -> None:
    lines = [f"2018-01-02T14:30:0{n / 10:.1f},A,{n % 5},1" for n in range(40)]
    options: dict[str, Any] = {"window": 20, "slide": 10, "resolution_s": 0.5}
    outcome = testing.run(pipeline(**options), {"lines": lines})
    expected = quotes.expected(lines, **options)
    assert testing.by_key(outcome["fits"]) == expected
    assert expected["A"][-1].error == pytest.approx(0, abs=1e-9)
    assert quotes.expected(lines, window=20, slide=10)["A"][-1].error > 1


def test_a_resolution_must_be_above_0() -> None:
    with pytest.raises(ValueError, match="resolution_s must be above 0"):
        pipeline(resolution_s=0.0)


@needs_scipy
def test_the_oracle_by_hand() -> None:
    lines = [f"2018-01-02T14:30:0{n},{'AB'[n % 3 == 0]},{n + 1},1" for n in range(9)]
    fits = quotes.expected(lines, window=3, slide=2)
    assert {s: [(f.prices, f.time % 60) for f in found] for s, found in fits.items()} == {
        "A": [(2, 2), (3, 5), (3, 8)],
        "B": [(2, 3), (3, 6)],
    }


@needs_scipy
def test_a_day_of_raw_quotes_is_fitted_as_the_oracle_fits_it() -> None:
    """With its repeats and its quotes without bid or offer."""
    lines = lines_of(QUOTES)
    assert len(lines) - len(set(lines)) > 5_000
    outcome = testing.run(pipeline(slide=250), {"lines": lines})
    expected = quotes.expected(lines, slide=250)
    assert testing.by_key(outcome["fits"]) == expected
    assert len(expected["XXX"]) > 250
    assert outcome.dead == {}


@needs_scipy
def test_each_tenth_quote_brings_a_fit_of_the_last_2000() -> None:
    lines = lines_of(QUOTES)[30_000:33_000]
    outcome = testing.run(pipeline(), {"lines": lines})
    fits = outcome["fits"]
    assert testing.by_key(fits) == quotes.expected(lines)
    assert [f.prices for f in fits[198:202]] == [1990, 2000, 2000, 2000]


@needs_scipy
def test_stocks_are_fitted_apart_wherever_they_move() -> None:
    lines = lines_of(TRADES)[:12_000]
    options = {"window": 500, "slide": 50}
    with testing.harness(pipeline(**options), instances={"fit": 3}) as h:
        for at in range(0, len(lines), 1000):
            h.send("lines", *lines[at : at + 1000])
            for symbol in ("AAA", "BBB", "ETF"):
                to = (h.owner("fit", symbol) + 1) % 3
                h.move("fit", [h.group(symbol)], to=to)
    expected = quotes.expected(lines, **options)
    assert len(expected) == 3
    assert testing.by_key(h.results("fits")) == expected


def test_without_scipy_a_run_is_refused_with_what_to_do_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.runtime.pipeline.definition.find_spec", lambda name: None)
    built = pipeline()  # a file may hold other pipelines too
    with pytest.raises(PipelineError, match=r"'scipy'.*pip install 'anabranch\[quotes\]'"):
        built.validate()
