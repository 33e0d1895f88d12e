"""A pipeline as text and as plain values: what `anabranch validate` shows."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.policies.policy import Scale
from anabranch.views.figures import plural, table
from anabranch.views.values import in_words


def kind(operator: Operator) -> str:
    """source, sink, fuse, the one step that the operator has, or what it does for each key."""
    if operator.source is not None:
        return "source"
    if operator.sink is not None:
        return "sink"
    if operator.keyed is not None:
        return operator.keyed.what.partition(" ")[0]
    return operator.steps[0].kind if len(operator.steps) == 1 else "fuse"


def lines_of(pipeline: Pipeline, file: Path) -> list[str]:
    operators = plural(len(pipeline.operators), "operator")
    rows = [["operator", "kind", "from", "instances", "does"]]
    for operator in pipeline.operators.values():
        rows.append(
            [
                operator.name,
                kind(operator),
                ", ".join(operator.upstream) or "-",
                _instances(operator.scale),
                _does(operator),
            ]
        )
    return [f"{pipeline.name} in {file.name}: {operators}, valid", "", *table(rows, left=5)]


def plain_values(pipeline: Pipeline, file: Path) -> dict[str, Any]:
    """For JSON."""
    return {
        "pipeline": pipeline.name,
        "file": str(file),
        "valid": True,
        "dead_letters": str(pipeline.dead_letters_path),
        "groups": pipeline.groups,
        "operators": [_operator_values(o) for o in pipeline.operators.values()],
    }


def _operator_values(operator: Operator) -> dict[str, Any]:
    return {
        "name": operator.name,
        "kind": kind(operator),
        "upstream": list(operator.upstream),
        "by_key": operator.keyed is not None,
        "does": _does(operator),
        "steps": [
            {"name": s.name, "kind": s.kind, "batch": s.batch, "async": s.is_async}
            for s in operator.steps
        ],
        "scale": operator.scale.plain if operator.scale else None,
        "retry": asdict(operator.retry),
    }


def _instances(scale: Scale | None) -> str:
    if scale is None or scale.max_instances == 1:
        return "1"
    span = f"{scale.min_instances} to {scale.max_instances}"
    if scale.policy != Scale().policy:
        return f"{span} by {scale.policy.text}"
    if scale.capacity is None:
        return f"{span} at load {scale.target:g}"
    return f"{span} at load {scale.target:g} of {scale.capacity:g}/s"


def _does(operator: Operator) -> str:
    end = operator.source or operator.sink
    if end is not None:
        return in_words(end) + (" by key" if operator.keyed else "")
    if operator.keyed is not None:
        return f"{operator.keyed.what} by key"
    return " | ".join(
        f"{s.kind} {s.name}{' batch' if s.batch else ''}{' async' if s.is_async else ''}"
        for s in operator.steps
    )
