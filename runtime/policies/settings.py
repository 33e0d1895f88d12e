"""Settings of a policy: each with what it is, its unit and its range, and checked by them."""

from __future__ import annotations

from dataclasses import Field, field
from types import NoneType, UnionType
from typing import Any, get_args

from anabranch.runtime.values.checks import PipelineError, check_number

BOUNDS = {"least", "above", "most", "below"}
"""Of numbers."""


def setting(
    default: Any,
    text: str,
    *,
    unit: str = "",
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    one_of: tuple[str, ...] = (),
) -> Any:
    """A setting of a policy: what it is, its unit, and which values make sense."""
    bounds = {"least": least, "above": above, "most": most, "below": below}
    return field(
        default=default,
        metadata={"text": text, "unit": unit, "one_of": one_of}
        | {name: bound for name, bound in bounds.items() if bound is not None},
    )


def range_of(each: Field[Any]) -> str:
    """Which values a setting may have, in words; empty if all of its type."""
    known = each.metadata
    if known.get("one_of"):
        return "one of " + ", ".join(map(repr, known["one_of"]))
    if "least" in known and "most" in known:
        return f"{known['least']:g} to {known['most']:g}"
    if "above" in known and "below" in known:
        return f"between {known['above']:g} and {known['below']:g}"
    words = {"least": "{:g} or more", "above": "above {:g}", "most": "at most {:g}"}
    words |= {"below": "below {:g}"}
    return " and ".join(words[b].format(known[b]) for b in words if b in known)


def check_setting(policy: str, each: Field[Any], kind: Any, value: object) -> None:
    """`kind`: its type as it is written. Raises `PipelineError`."""
    what = f"policy {policy}: {each.name}"
    kinds = set(get_args(kind)) if isinstance(kind, UnionType) else {kind}
    if value is None and NoneType in kinds:
        return
    if kinds <= {int, float, NoneType}:
        check_number(what, value, whole=float not in kinds)
    elif kind in (bool, str):
        if not isinstance(value, kind):
            raise PipelineError(f"{what} must be a {kind.__name__}, got {value!r}")
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise PipelineError(
            f"{what} must be a number, a text, True, False or None, since it travels between "
            f"processes; got {value!r}"
        )
    if value is not None and BOUNDS & each.metadata.keys():
        check_number(what, value)
    if value is not None and not _fits(each, value):
        raise PipelineError(f"{what} must be {range_of(each)}, got {value!r}")


def _fits(each: Field[Any], value: Any) -> bool:
    known = each.metadata
    if known.get("one_of"):
        return value in known["one_of"]
    return (
        ("least" not in known or value >= known["least"])
        and ("above" not in known or value > known["above"])
        and ("most" not in known or value <= known["most"])
        and ("below" not in known or value < known["below"])
    )
