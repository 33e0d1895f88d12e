"""What `simulate` needs before it begins: the load of each source, the cost of each
operator; and what several seeds give together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.reporting.report import Report, read_report
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.hints import hint
from anabranch.runtime.values.worker_pool import worker_pool
from anabranch.runtime.world.forecast import forecast
from anabranch.runtime.world.forecast_values import (
    KEYS,
    Arrivals,
    Cost,
    Forecast,
    OperatorCourse,
    look_s_for,
)
from anabranch.setting import apply_settings
from anabranch.workloads.curve_text import parse_curve
from anabranch.workloads.curves import Curve, CurveError, Steady
from anabranch.workloads.paced import Paced

SECONDS = 60.0
"""How long a forecast lasts if neither the load nor the user sets it."""
PEAK_STEP_S = 0.5


class ForecastError(ValueError):
    """Something is missing or makes no sense; the message says what to give."""


@dataclass(frozen=True, slots=True)
class Costed:
    """`origin`: where the capacity is from, for people."""

    cost: Cost
    origin: str


# -- load ------------------------------------------------------------------------------------


def curves_of(pipeline: Pipeline, texts: Sequence[str]) -> dict[str, Curve]:
    """The load of every source: `CURVE` for all, `SOURCE=CURVE` for one, a file as a trace;
    without any, the rate that the pipeline gives its source. Raises `ForecastError`."""
    sources = {str(o.name): o for o in pipeline.operators.values() if o.source is not None}
    found = {name: own for name, o in sources.items() if (own := _own_load(o)) is not None}
    for text in texts:
        name, equals, rest = text.partition("=")
        if equals and ":" not in name and "/" not in name:
            if name not in sources:
                raise ForecastError(f"--load: no source {name!r}; {hint(name, sources)}")
            found[name] = _curve(rest)
        else:
            found |= dict.fromkeys(sources, _curve(text))
    if missing := [name for name in sources if name not in found]:
        raise ForecastError(
            f"the load of source {missing[0]!r} is not known; give it with --load, "
            "as in --load step:before=500,after=2000,at_s=20"
        )
    return found


def _own_load(operator: Operator) -> Curve | None:
    source = operator.source
    if isinstance(source, Paced):
        return source.pace.curve
    rate = getattr(source, "rate", None)
    if isinstance(rate, Curve):
        return rate
    return Steady(rate) if isinstance(rate, int | float) else None


def _curve(text: str) -> Curve:
    try:
        return parse_curve(f"trace:path={text}" if Path(text).is_file() else text)
    except CurveError as error:
        meant_file = ":" not in text and Path(text).suffix
        reason = "no such file" if meant_file else error
        raise ForecastError(f"--load {text}: {reason}") from None


def seconds_of(curves: Mapping[str, Curve], duration_s: float | None) -> float:
    """The wanted duration, or until the last load has ended, or a minute."""
    if duration_s is not None:
        return duration_s
    ends = [curve.ends_s for curve in curves.values()]
    return max((e for e in ends if e is not None), default=SECONDS) or SECONDS


def arrivals_of(curves: Mapping[str, Curve], seconds: float) -> Arrivals:
    steps = np.arange(0.0, seconds + PEAK_STEP_S, PEAK_STEP_S)
    look_s = look_s_for(max(float(c.rate(steps).max()) for c in curves.values()))
    times = look_s * np.arange(math.ceil(seconds / look_s) + 1, dtype=np.float64)
    # A hair more, so that a whole number is not taken for the one below.
    totals = {n: np.floor(c.due(times) + 1e-6).astype(int).tolist() for n, c in curves.items()}
    return Arrivals(look_s, totals)


# -- cost ------------------------------------------------------------------------------------


def costs_of(
    pipeline: Pipeline,
    *,
    report: Path | None,
    capacities: Mapping[str, float],
    selectivities: Mapping[str, float],
    keys: Mapping[str, float] | None = None,
    skews: Mapping[str, float] | None = None,
) -> dict[str, Costed]:
    """What each operator costs: as given, or as measured in a run, or as its scale has it. Ends of
    the pipeline are free unless something else is known. Raises `ForecastError`."""
    keys, skews = keys or {}, skews or {}
    named = {"capacity": capacities, "selectivity": selectivities, "keys": keys, "skew": skews}
    for kind, by_name in named.items():
        for name in by_name:
            if name not in pipeline.operators:
                way = hint(name, pipeline.operators)
                raise ForecastError(f"--{kind}: no operator {name!r}; {way}")
    run = None if report is None else _read(report)
    found = {}
    for operator in pipeline.operators.values():
        name = str(operator.name)
        capacity, origin = _capacity(operator, capacities.get(name), run)
        selectivity = selectivities.get(name, _selectivity(name, run))
        kept = int(keys.get(name, KEYS))
        for option, given in (("--keys", keys), ("--skew", skews)):
            if name in given and not operator.keyed:
                raise ForecastError(f"{option} {name}: operator {name!r} keeps no state by key")
        skew = skews.get(name, 0.0)
        cost = Cost(capacity=capacity, selectivity=selectivity, keys=kept, skew=skew)
        found[name] = Costed(cost, origin)
    return found


def _capacity(operator: Operator, given: float | None, run: Report | None) -> tuple[float, str]:
    if given is not None:
        return given, "given"
    measured = None if run is None else _measured(run, operator.name).get("capacity")
    # A source measures how long it waits for its input, which is no cost.
    if measured and operator.source is None:
        return measured, "measured"
    if operator.scale is not None and operator.scale.capacity is not None:
        return operator.scale.capacity, "its scale"
    if operator.source is not None or operator.sink is not None:
        return math.inf, "taken as free"
    raise ForecastError(
        f"the capacity of operator {operator.name!r} is not known; give the report of a run with "
        f"--cost report.json, or --capacity {operator.name}=TUPLES_PER_SECOND"
    )


def _selectivity(name: str, run: Report | None) -> float:
    return 1.0 if run is None else _measured(run, name).get("selectivity", 1.0)


def _measured(run: Report, name: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for operator in run.operators:
        if operator.name == name:
            if operator.capacity:
                found["capacity"] = operator.capacity
            elif operator.busy_s and operator.processed:  # each instance too little to count
                found["capacity"] = operator.processed / operator.busy_s
            if operator.kind == "operator" and operator.tuples_in:
                found["selectivity"] = operator.tuples_out / operator.tuples_in
    return found


def _read(path: Path) -> Report:
    try:
        return read_report(path)
    except OSError as error:
        raise ForecastError(f"--cost {path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise ForecastError(f"--cost {path}: not a report of a run: {error}") from None


def pairs(option: str, texts: Iterable[str]) -> dict[str, float]:
    """`NAME=NUMBER` each. Raises `ForecastError`."""
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (name and 0 < number < math.inf):
            raise ForecastError(f"{option} {text!r}: expected OPERATOR=NUMBER above 0")
        found[name] = number
    return found


# -- what is compared ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Variant:
    """A pipeline with some of its settings changed. `name`: the changes, as they were given."""

    name: str
    pipeline: Pipeline


AS_IT_IS = "as it is"


def variants_of(pipeline: Pipeline, compared: Sequence[str]) -> list[Variant]:
    """The pipeline as it is, and with each of the `compared` settings (several in one text are
    separated by spaces). Raises `PipelineError`."""
    found = [Variant(AS_IT_IS, pipeline)]
    for text in compared:
        other = replace(pipeline, operators=dict(pipeline.operators))
        try:
            apply_settings(other, text.split())
        except PipelineError as error:
            raise PipelineError(f"--compare {error}") from None
        found.append(Variant(" ".join(text.split()), other))
    return found


@dataclass(frozen=True, slots=True)
class Scenario:
    """The results of the seeds for one variant."""

    name: str
    pipeline: Pipeline
    forecasts: list[Forecast]

    @property
    def t(self) -> list[float]:
        return self.forecasts[0].t

    @property
    def offered(self) -> list[float]:
        return self.forecasts[0].offered

    def band(self, operator: str, figure: str) -> Band:
        """`figure`: the name of one in `OperatorCourse`."""
        return band_of([getattr(f.courses[operator], figure) for f in self.forecasts])

    def courses(self, operator: str) -> list[OperatorCourse]:
        return [f.courses[operator] for f in self.forecasts]


@dataclass(frozen=True, slots=True)
class Band:
    """Of all seeds at each time: 5 %, the median, 95 %; NaN where no seed has a value."""

    low: list[float]
    middle: list[float]
    high: list[float]


def band_of(rows: Sequence[Sequence[float | None]]) -> Band:
    table = np.array(rows, dtype=np.float64)
    known = ~np.all(np.isnan(table), axis=0)
    bands = np.full((3, table.shape[1]), np.nan)
    if known.any():
        bands[:, known] = np.nanpercentile(table[:, known], [5, 50, 95], axis=0)
    low, middle, high = bands.round(4).tolist()
    return Band(low, middle, high)


def scenarios(
    variants: Sequence[Variant],
    costs: Mapping[str, Costed],
    arrivals: Arrivals,
    *,
    first_seed: int,
    seeds: int,
    jobs: int,
    **settings: Any,
) -> list[Scenario]:
    """Every variant with every seed. `settings`: those of `forecast`."""
    plain = {name: costed.cost for name, costed in costs.items()}
    _tasks[:] = [
        partial(forecast, v.pipeline, plain, arrivals, seed=seed, **settings)
        for v in variants
        for seed in range(first_seed, first_seed + seeds)
    ]
    numbers = range(len(_tasks))
    if min(jobs, len(_tasks)) == 1:
        found = [*map(_do, numbers)]
    else:
        with worker_pool(min(jobs, len(_tasks)), "fork") as pool:
            found = list(pool.map(_do, numbers))
    return [
        Scenario(v.name, v.pipeline, found[i * seeds : (i + 1) * seeds])
        for i, v in enumerate(variants)
    ]


_tasks: list[Callable[[], Forecast]] = []
"""What is to be forecast. A fork has it, with all functions and policies of the pipeline, of which
not all can be sent to a process."""


def _do(number: int) -> Forecast:
    return _tasks[number]()
