"""The pipeline `quotes`: the course of each stock's price, fitted again and again as it goes on.

    lines -> prices -> fit -> fits

`prices` reads quotes (or trades) of several stocks and drops those that mean no price; `fit` keeps
the last 2,000 prices of each stock and, with every tenth new one, fits a polynomial to them by
Levenberg and Marquardt's method, as the application of De Matteis & Mencagli (2017) does; there
prices of the same millisecond are averaged before the fit (`resolution_s=0.001`). Windows are
counted in quotes: they are what came last, repeats and backward stamps included, and depend on the
order of a stock's quotes only. Both operators work by stock, so this order outlives any number of
instances.

The fit needs SciPy: `pip install 'anabranch[quotes]'`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from anabranch.runtime.keyed.windows import count
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Sink, Source
from anabranch.runtime.policies.policy import Scale
from anabranch.workloads.stamps import seconds_of

WINDOW = 2000
SLIDE = 10
DEGREE = 2

QUOTES_HEADER = "DT,EX,BID,BIDSIZ,OFR,OFRSIZ,SYMBOL"
TRADES_HEADER = "DT,SYMBOL,PRICE,SIZE"

Floats = NDArray[np.float64]


class Price(NamedTuple):
    """What a stock was worth: the middle of a quote, or the price of a trade."""

    symbol: str
    time: float
    price: float


class Fit(NamedTuple):
    """A polynomial for the last prices of a stock.

    `coefficients`: of the powers of x from 0 on; x runs from -1 (the oldest price) to 0 (the
    newest), so the first is the fitted price at `time`. `error`: root of the mean squared error.
    """

    symbol: str
    time: float
    prices: int
    coefficients: tuple[float, ...]
    error: float


def pipeline(
    source: Source,
    sink: Sink,
    *,
    window: int = WINDOW,
    slide: int = SLIDE,
    degree: int = DEGREE,
    resolution_s: float | None = None,
    name: str = "quotes",
    scale: Scale | None = None,
) -> Pipeline:
    """The pipeline from `source` (lines of a file of quotes or trades) to `sink` (`Fit`).

    `resolution_s`: prices of the same so many seconds count as one, their mean, in a fit; None:
    each counts. Raises `ValueError` for one that is not above 0. `scale`: of both operators
    (default `Scale()`). It needs SciPy when it runs.
    """
    if resolution_s is not None and not resolution_s > 0:
        raise ValueError(f"quotes: resolution_s must be above 0, got {resolution_s!r}")
    scale = scale or Scale()
    fitter = partial(fit_window, degree=degree, resolution_s=resolution_s)
    pipeline = Pipeline(name, requires={"scipy": "pip install 'anabranch[quotes]'"})
    (
        pipeline.source("lines", source)
        .key_by(symbol_in, ordered=True)
        .process("prices", prices_of, state=list, scale=scale)
        .key_by(symbol_of, ordered=True)
        .window(count(window, every=slide))
        .apply("fit", fitter, scale=scale)
        .sink("fits", sink)
    )
    return pipeline


def prices_in(line: str) -> list[Price]:
    """The price in a line; none if it is a header, a quote without bid or offer, or a crossed
    quote. Raises `ValueError` for any other text."""
    fields = line.rstrip().split(",")
    if line.rstrip() in (QUOTES_HEADER, TRADES_HEADER):
        return []
    if len(fields) == 4:
        stamp, symbol, price, _ = fields
        return [Price(symbol, seconds_of(stamp), float(price))]
    if len(fields) != 7:
        raise ValueError(f"expected {QUOTES_HEADER} or {TRADES_HEADER}, got {line!r:.200}")
    stamp, _, bid_text, _, offer_text, _, symbol = fields
    bid, offer = float(bid_text), float(offer_text)
    if not 0 < bid <= offer:
        return []
    return [Price(symbol, seconds_of(stamp), (bid + offer) / 2)]


def symbol_in(line: str) -> str:
    """The stock that a line is about; of other text any."""
    fields = line.rstrip().split(",")
    return fields[1] if len(fields) == 4 else fields[-1]


def prices_of(_symbol: str, _state: list[object], line: str) -> list[Price]:
    return prices_in(line)


def symbol_of(price: Price) -> str:
    return price.symbol


def fit_window(
    symbol: str,
    _window: object,
    prices: Iterable[Price],
    degree: int,
    resolution_s: float | None,
) -> list[Fit]:
    return [fit(symbol, list(prices), degree, resolution_s)]


def fit(
    symbol: str,
    prices: Sequence[Price],
    degree: int = DEGREE,
    resolution_s: float | None = None,
) -> Fit:
    """Find the polynomial with the least squares, from a level course as first guess."""
    from scipy.optimize import least_squares

    points = prices if resolution_s is None else averaged(prices, resolution_s)
    y = np.array([one.price for one in points])
    unknowns = min(degree + 1, len(points))  # more cannot be told from so few
    powers = np.vander(places_of(points), unknowns, increasing=True)
    guess = np.zeros(unknowns)
    guess[0] = y[-1]

    def errors(coefficients: Floats) -> Floats:
        off: Floats = powers @ coefficients - y
        return off

    def slopes(_coefficients: Floats) -> Floats:
        return powers

    found = least_squares(errors, guess, jac=slopes, method="lm")
    error = float(np.sqrt(np.mean(found.fun**2)))
    coefficients = (*found.x.tolist(), *[0.0] * (degree + 1 - unknowns))
    return Fit(symbol, prices[-1].time, len(prices), coefficients, error)


def averaged(prices: Iterable[Price], resolution_s: float) -> list[Price]:
    """Of all prices of the same interval one, with their mean price and time, in order of time."""
    together: dict[int, list[Price]] = {}
    for one in prices:
        # Rounded: 0.3 / 0.1 is a little less than 3.
        together.setdefault(math.floor(round(one.time / resolution_s, 3)), []).append(one)
    return [
        Price(some[0].symbol, fmean(p.time for p in some), fmean(p.price for p in some))
        for _, some in sorted(together.items())
    ]


def places_of(prices: Sequence[Price]) -> Floats:
    """Their times as places from -1 to 0; all 0 if they have one time."""
    times = np.array([one.time for one in prices])
    span = times.max() - times.min()
    places: Floats = (times - times.max()) / (span or 1.0)
    return places


def expected(
    lines: Iterable[str],
    *,
    window: int = WINDOW,
    slide: int = SLIDE,
    degree: int = DEGREE,
    resolution_s: float | None = None,
) -> dict[str, list[Fit]]:
    """What must come out for each stock, in order, computed one after the other.

    A fit is made with every `slide`-th price, of as many of the last as there are, at most
    `window`; and at the end of the stream of the last prices, if some have come since the last fit.
    """

    def one_fit(symbol: str, so_far: list[Price]) -> Fit:
        return fit(symbol, so_far[-window:], degree, resolution_s)

    prices: dict[str, list[Price]] = {}
    fits: dict[str, list[Fit]] = {}
    for price in (one for line in lines for one in prices_in(line)):
        mine = prices.setdefault(price.symbol, [])
        mine.append(price)
        if len(mine) % slide == 0:
            fits.setdefault(price.symbol, []).append(one_fit(price.symbol, mine))
    for symbol, rest in prices.items():
        if len(rest) % slide:
            fits.setdefault(symbol, []).append(one_fit(symbol, rest))
    return fits
