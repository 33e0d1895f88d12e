"""`--set OPERATOR.scale.SETTING=VALUE`: changes of a pipeline from the command line."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.graph import Pipeline, PipelineError, Scale
from anabranch.runtime.policies.policy import Policy
from anabranch.runtime.scale import POLICY

TRUTHS = {"true": True, "yes": True, "false": False, "no": False}
KINDS = {int: "int", float: "float", bool: "true or false", type(None): "None"}
_FORM = "expected OPERATOR.scale.SETTING=VALUE, as in split.scale.max_instances=4"


@dataclass(frozen=True, slots=True)
class Setting:
    """`name`: of the scale, or `policy.NAME` of its policy. `value`: as it was given."""

    operator: str
    name: str
    value: str
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
    if name not in types_of and not name.startswith(POLICY):
        near = difflib.get_close_matches(name, types_of, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(types_of)}"
        raise PipelineError(f"{text!r}: scale has no setting {name!r}; {hint}")
    return Setting(operator, name, value.strip(), text)


def apply_settings(pipeline: Pipeline, texts: Iterable[str]) -> None:
    """All settings together, so that their order does not matter. Raises `PipelineError`.

    A new minimum above the old maximum is refused until the new maximum is in, so what is
    refused is tried again as long as others get through. Policies come before their settings.
    """
    waiting = [parse_setting(text) for text in texts]
    waiting.sort(key=lambda setting: setting.name != "policy")
    while waiting:
        refused: list[tuple[Setting, PipelineError]] = []
        for setting in waiting:
            try:
                _apply(pipeline, setting)
            except PipelineError as error:
                refused.append((setting, error))
        if len(refused) == len(waiting):
            first, reason = refused[0]
            raise PipelineError(f"{first.text!r}: {reason}")
        waiting = [setting for setting, _ in refused]


def _apply(pipeline: Pipeline, setting: Setting) -> None:
    name = setting.name
    owner: type[Scale | Policy[Any]] = Scale
    if name.startswith(POLICY):
        operator = pipeline.operators.get(OperatorName(setting.operator))
        scale = (operator.scale if operator is not None else None) or Scale()
        name, owner = name.removeprefix(POLICY), type(scale.policy)
    kind = typing.get_type_hints(owner).get(name, str)  # unknown ones are refused below
    value = setting.value if name == "policy" else _value(setting.name, setting.value, kind)
    pipeline.with_scale(setting.operator, setting.name, value)


def _value(name: str, text: str, kind: object) -> str | int | float | bool | None:
    kinds = kind.__args__ if isinstance(kind, types.UnionType) else (kind,)
    if type(None) in kinds and text.lower() in ("none", "null"):
        return None
    if bool in kinds and text.lower() in TRUTHS:
        return TRUTHS[text.lower()]
    if str in kinds or typing.get_origin(kind) is typing.Literal:
        return text
    try:
        if int in kinds and (float not in kinds or text.lstrip("+-").isdecimal()):
            return int(text)
        if float in kinds:
            return float(text)
    except ValueError:
        pass
    names = " or ".join(KINDS.get(k, str(k)) for k in kinds)
    raise PipelineError(f"{name}: expected {names}, got {text!r}")
