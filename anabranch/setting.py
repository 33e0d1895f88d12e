"""`--set OPERATOR.scale.SETTING=VALUE`, `--controller NAME` and `--input SOURCE=PATH`: changes of a
pipeline from the command line.

A controller travels as settings: `controller=NAME` and `controller.SETTING=VALUE`."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Container, Iterable
from dataclasses import dataclass, fields
from typing import Any

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.policies.controller import Controller
from anabranch.runtime.policies.policy import POLICY, Policy, Scale, known_policies, policy_named
from anabranch.runtime.values.checks import PipelineError

TRUTHS = {"true": True, "yes": True, "false": False, "no": False}
KINDS = {int: "int", float: "float", bool: "true or false", type(None): "None"}
OF_ONE = ("capacity", "min_instances", "max_instances")
"""What it makes sense to set for an operator with one instance: `simulate` goes by its capacity."""
_CONTROLLER = re.compile(r"\s*controller(\.[^.=]*)?\s*(=|$)")
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


def apply_inputs(pipeline: Pipeline, texts: Iterable[str]) -> None:
    """`SOURCE=PATH`; of a source that is to read several, all of them. Raises `PipelineError`."""
    patterns: dict[str, list[str]] = {}
    for text in texts:
        source, equals, pattern = text.partition("=")
        if not (source and equals and pattern):
            raise PipelineError(f"{text!r}: expected SOURCE=PATH, as in lines='history/*.txt'")
        patterns.setdefault(source.strip(), []).append(pattern)
    for source, paths in patterns.items():
        try:
            pipeline.with_input(source, paths)
        except ValueError as error:
            raise PipelineError(f"{source}={paths[0]}: {error}") from None


def apply_settings(pipeline: Pipeline, texts: Iterable[str]) -> None:
    """All settings together, so that their order does not matter. Raises `PipelineError`.

    A new minimum above the old maximum is refused until the new maximum is in, so what is
    refused is tried again as long as others get through. Policies come before their settings.
    """
    all_texts = list(texts)
    of_controller = [text for text in all_texts if _CONTROLLER.match(text)]
    settings = [parse_setting(text) for text in all_texts if text not in of_controller]
    single = {name for name, operator in pipeline.operators.items() if operator.scale is None}
    _carry_out(pipeline, settings)
    for setting in settings:
        if setting.operator in single and setting.name not in OF_ONE:
            _check_decided(pipeline, setting)
    if of_controller:
        chosen = {setting.operator for setting in settings if setting.name == "policy"}
        _carry_out(pipeline, _of_controller(pipeline, of_controller, chosen))


def _carry_out(pipeline: Pipeline, settings: Iterable[Setting]) -> None:
    waiting = sorted(settings, key=lambda setting: setting.name != "policy")
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


def _of_controller(
    pipeline: Pipeline, texts: Iterable[str], chosen: Container[str]
) -> list[Setting]:
    """As settings of each operator that scales, but of those that have `chosen` another policy.
    Raises `PipelineError`."""
    given = [text.partition("=") for text in texts]
    names = [value.strip() for what, _, value in given if what.strip() == "controller"]
    if not names:
        raise PipelineError(
            f"{''.join(given[0])!r}: name a controller as well, as in --controller elysium"
        )
    kind = policy_named(names[-1])
    if not issubclass(kind, Controller):
        known = (n for n, each in known_policies().items() if issubclass(each, Controller))
        raise PipelineError(
            f"controller={names[-1]}: {kind.name} decides for one operator, so it is set there, as "
            f"in split.scale.policy={kind.name}; controllers: {', '.join(sorted(known))}"
        )
    scaling = [
        name
        for name, operator in pipeline.operators.items()
        if operator.scale is not None and operator.scale.max_instances > 1 and name not in chosen
    ]
    if not scaling:
        raise PipelineError(
            f"controller={kind.name}: no operator scales, so there is nothing to decide; give some "
            "a scale, or set OPERATOR.scale.max_instances"
        )
    rest = [(w, v) for w, _, v in given if w.strip() != "controller"]
    return [Setting(name, "policy", kind.name, f"controller={kind.name}") for name in scaling] + [
        Setting(
            name,
            POLICY + what.strip().removeprefix("controller."),
            value.strip(),
            f"{what}={value}",
        )
        for name in scaling
        for what, value in rest
    ]


def _check_decided(pipeline: Pipeline, setting: Setting) -> None:
    """An operator that has been given no room to scale would take a policy, and never ask it.

    Raises `PipelineError`."""
    operator = pipeline.operators[OperatorName(setting.operator)]
    if operator.scale is None or operator.scale.max_instances > 1:
        return
    what = f"{setting.text!r}: operator {setting.operator!r}"
    if operator.can_scale:
        raise PipelineError(
            f"{what} has no scale, so nothing decides how many instances it has; set "
            f"{setting.operator}.scale.max_instances as well, or give it a scale in the file"
        )
    raise PipelineError(
        f"{what} always has one instance, since {operator.source or operator.sink!r} cannot be "
        "shared, so there is nothing to decide; leave the setting out"
    )


def _apply(pipeline: Pipeline, setting: Setting) -> None:
    name = setting.name
    owner: type[Scale | Policy[Any]] = Scale
    if name.startswith(POLICY):
        operator = pipeline.operators.get(OperatorName(setting.operator))
        scale = (operator.scale if operator is not None else None) or Scale()
        name, owner = name.removeprefix(POLICY), type(scale.policy)
    known = {each.name for each in fields(owner)}
    kind = typing.get_type_hints(owner)[name] if name in known else str  # refused below
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
