"""A curve as text, for the command line: `daily:peak=5000,day_s=60`.

The name, a colon, then `setting=value` pairs separated by commas. `noise=` and `seed=` go with
every curve. The points of `knots` are `second:rate`, with a slash between two. A trace takes the
settings of its file as well: `path` (required; it may not hold a comma), `bin_s`, `smooth_s`,
`column`, `form`, `begin_s`, `length_s`. A number alone is a steady rate.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

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
from anabranch.workloads.traces import read_recording

CURVES: Mapping[str, type[Curve]] = {
    "steady": Steady,
    "step": Step,
    "stair": Stair,
    "sine": Sine,
    "square": Square,
    "bell": Bell,
    "knots": Knots,
    "brownian": Brownian,
    "daily": Daily,
    "trace": Trace,
}

EXAMPLES = (
    "steady:level=2000",
    "step:before=500,after=2000,at_s=20",
    "stair:low=500,high=4000,stairs=5,hold_s=10",
    "sine:low=500,high=4000,period_s=60",
    "square:low=500,high=4000,period_s=30",
    "bell:peak=4000,at_s=30,width_s=8,base=500",
    "knots:points=0:500/20:4000/60:500,then=stay",
    "brownian:start=3500,step_sd=400,seed=7",
    "daily:peak=5000,day_s=60,noise=0.1",
    "trace:path=load.csv.gz,compress=3600,peak=5000",
)

_TEXT_SETTINGS = frozenset({"path", "column", "form", "then", "points"})
_OF_FILE = ("path", "bin_s", "smooth_s", "column", "form", "begin_s", "length_s", "interval_s")


def parse_curve(text: str) -> Curve:
    """The curve that `text` describes. Raises `CurveError` that says what is meant instead."""
    name, _, rest = text.strip().partition(":")
    level = _number_or_none(name)
    if level is not None and not rest:
        return Steady(level)
    curve = CURVES.get(name)
    if curve is None:
        raise CurveError(f"no curve {name!r}{_hint(name, CURVES)}")
    settings = _settings(name, rest)
    allowed = _allowed(curve)
    for key in settings:
        if key not in allowed:
            raise CurveError(f"{name}: no setting {key!r}{_hint(key, allowed)}")
    return _build(name, curve, settings)


def _settings(name: str, rest: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in rest.split(","))):
        key, equals, value = (p.strip() for p in part.partition("="))
        if not equals or not value:
            raise CurveError(f"{name}: expected setting=value, got {part!r}")
        if key in settings:
            raise CurveError(f"{name}: {key} is given twice")
        settings[key] = value if key in _TEXT_SETTINGS else _number(name, key, value)
    return settings


def _build(name: str, curve: type[Curve], settings: dict[str, Any]) -> Curve:
    noise = settings.pop("noise", 0.0)
    seed = settings.get("seed", 0) if curve is Brownian else settings.pop("seed", 0)
    if curve is Trace:
        settings = _recorded(settings)
    if curve is Knots and "points" in settings:
        settings["points"] = _points(settings["points"])
    missing = [f.name for f in _fields(curve) if _required(f) and f.name not in settings]
    if missing:
        example = next(e for e in EXAMPLES if e.startswith(name))
        raise CurveError(f"{name}: needs {', '.join(missing)}, as in {example}")
    built = curve(**settings)
    return Noisy(built, noise=noise, seed=seed) if noise else built


def _points(text: str) -> tuple[tuple[float, float], ...]:
    found = []
    for part in text.split("/"):
        at, colon, rate = part.partition(":")
        if not colon:
            raise CurveError(f"knots: expected points as 0:500/20:4000, got {text!r}")
        found.append((_number("knots", "time", at), _number("knots", "rate", rate)))
    return tuple(found)


def _recorded(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a `Trace` once its file is read."""
    if "path" not in settings:
        raise CurveError(f"trace: needs path, as in {EXAMPLES[-1]}")
    form = settings.get("form")
    if form not in (None, "counts", "values", "arrivals"):
        raise CurveError(f"trace: form is counts, values or arrivals, got {form!r}")
    try:
        recording = read_recording(
            settings["path"],
            form=form,
            column=settings.get("column"),
            interval_s=settings.get("interval_s"),
        )
    except OSError as error:
        raise CurveError(f"trace: cannot read {settings['path']}: {error.strerror}") from error
    recording = recording.cut(settings.get("begin_s", 0.0), settings.get("length_s"))
    if "bin_s" in settings:
        recording = recording.rebin(settings["bin_s"])
    if "smooth_s" in settings:
        recording = recording.smooth(settings["smooth_s"])
    kept = {key: value for key, value in settings.items() if key not in _OF_FILE}
    return kept | {"values": recording.values, "interval_s": recording.interval_s}


def _allowed(curve: type[Curve]) -> list[str]:
    names = [f.name for f in _fields(curve) if f.name != "values"]
    return list(dict.fromkeys([*names, *(_OF_FILE if curve is Trace else ()), "noise", "seed"]))


def _fields(curve: type[Curve]) -> tuple[Field[Any], ...]:
    return fields(curve)  # type: ignore[arg-type]  # every curve of the table is a dataclass


def _required(setting: Field[Any]) -> bool:
    return setting.default is MISSING


def _number(name: str, key: str, value: str) -> float:
    number = _number_or_none(value)
    if number is None:
        raise CurveError(f"{name}: {key} must be a number, got {value!r}")
    return number


def _number_or_none(text: str) -> float | int | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _hint(name: str, known: Mapping[str, object] | list[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
