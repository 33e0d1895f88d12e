"""`--set OPERATOR.scale.SETTING=VALUE`: changes of a pipeline from the command line."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.runtime.graph import Pipeline, PipelineError, Scale

_FORM = "expected OPERATOR.scale.SETTING=VALUE, as in split.scale.max_instances=4"


@dataclass(frozen=True, slots=True)
class Setting:
    operator: str
    name: str
    value: int | float | None
    text: str


def parse_setting(text: str) -> Setting:
    """Raises `PipelineError` with a suggestion."""
    path, equals, value = text.partition("=")
    operator, dot, rest = path.strip().partition(".")
    group, dot2, name = rest.partition(".")
    if not (equals and dot and dot2 and operator and name):
        raise PipelineError(f"{text!r}: {_FORM}")
    if group != "scale":
        near = difflib.get_close_matches(group, ["scale"], 1)
        hint = "did you mean 'scale'?" if near else _FORM
        raise PipelineError(f"{text!r}: an operator has no {group!r} to set; {hint}")
    types_of = typing.get_type_hints(Scale)
    if name not in types_of:
        near = difflib.get_close_matches(name, types_of, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(types_of)}"
        raise PipelineError(f"{text!r}: scale has no setting {name!r}; {hint}")
    return Setting(operator, name, _value(name, value.strip(), types_of[name]), text)


def apply_settings(pipeline: Pipeline, texts: Iterable[str]) -> None:
    """All settings together, so that their order does not matter. Raises `PipelineError`.

    A new minimum above the old maximum is refused until the new maximum is in, so what is
    refused is tried again as long as others get through.
    """
    waiting = [parse_setting(text) for text in texts]
    while waiting:
        refused: list[tuple[Setting, PipelineError]] = []
        for setting in waiting:
            try:
                pipeline.with_scale(setting.operator, setting.name, setting.value)
            except PipelineError as error:
                refused.append((setting, error))
        if len(refused) == len(waiting):
            first, reason = refused[0]
            raise PipelineError(f"{first.text!r}: {reason}")
        waiting = [setting for setting, _ in refused]


def _value(name: str, text: str, kind: object) -> int | float | None:
    kinds = kind.__args__ if isinstance(kind, types.UnionType) else (kind,)
    if type(None) in kinds and text.lower() in ("none", "null"):
        return None
    try:
        return int(text) if int in kinds else float(text)
    except ValueError:
        names = " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
        raise PipelineError(f"{name}: expected {names}, got {text!r}") from None
