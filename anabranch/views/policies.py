"""Policies with their settings, as text and as plain values: what `anabranch policies` shows."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import Field, fields
from typing import Any, get_type_hints

from anabranch.runtime.policies.controller import Controller
from anabranch.runtime.policies.policy import Policy, Scale, is_shipped, known_policies
from anabranch.runtime.policies.settings import range_of
from anabranch.views.figures import table

WIDTH = 100


def lines_of() -> list[str]:
    lines = []
    for name, kind in known_policies().items():
        default = " (the default)" if kind is type(Scale().policy) else ""
        source = f", after {kind.source}" if kind.source else ""
        own = "" if is_shipped(kind) else f", of {kind.__module__}"
        lines += [f"{name}{default}, {kind_of(kind)}{source}{own}"]
        lines += textwrap.wrap(_told(kind), WIDTH, initial_indent="  ", subsequent_indent="  ")
        if settings := [_row(each) for each in fields(kind)]:
            head = ["setting", "default", "unit", "range", "what it is"]
            lines += ["", *("  " + line for line in table([head, *settings], left=5))]
        lines.append("")
    return [*lines, "All obey the bounds of ab.Scale: min_instances, max_instances, period_s, ..."]


def plain_values() -> list[dict[str, Any]]:
    """For JSON."""
    return [
        {
            "name": name,
            "kind": kind_of(kind),
            "default": kind is type(Scale().policy),
            "shipped": is_shipped(kind),
            "what": _told(kind),
            "source": kind.source,
            "settings": [_values(kind, each) for each in fields(kind)],
        }
        for name, kind in known_policies().items()
    ]


def kind_of(kind: type[Policy[Any]]) -> str:
    """Of the three kinds of deciders, which it is."""
    if issubclass(kind, Controller):
        return "controller"
    if kind.at_keeper:
        return "in concert, at the keeper"
    return "in concert" if kind.in_concert else "by itself"


def _told(kind: type[Policy[Any]]) -> str:
    return " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())


def _values(kind: type[Policy[Any]], each: Field[Any]) -> dict[str, Any]:
    hint = get_type_hints(kind)[each.name]
    return {
        "name": each.name,
        "type": getattr(hint, "__name__", str(hint)),
        "default": each.default,
        "unit": each.metadata.get("unit", ""),
        "range": range_of(each),
        "what": each.metadata.get("text", ""),
    }


def _row(each: Field[Any]) -> list[str]:
    known = each.metadata
    default = f"{each.default:g}" if type(each.default) in (int, float) else str(each.default)
    return [each.name, default, known.get("unit", ""), range_of(each), known.get("text", "")]
