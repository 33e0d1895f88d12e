"""What `run` and `validate` have in common: a pipeline with its settings and its script."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from anabranch.commands.failing import WrongUsage
from anabranch.loading import Loaded, LoadError, load_pipeline
from anabranch.runtime.pipeline import order
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.policies.script import Script, ScriptError, load_script
from anabranch.runtime.reporting.standard_output import kept_apart
from anabranch.runtime.values.checks import PipelineError
from anabranch.setting import apply_inputs, apply_settings

if TYPE_CHECKING:
    from anabranch.runtime.pipeline.options import Options


@dataclass(frozen=True, slots=True)
class Plan:
    """A pipeline that is ready to run. `stdout_sink`: the operator that writes there, if any.
    `warnings`: what in it is probably a mistake."""

    loaded: Loaded
    script: Script | None
    stdout_sink: str | None
    warnings: list[str]

    def warn(self) -> None:
        """Print it on standard error."""
        for warning in self.warnings:
            click.echo(f"warning: {warning}", err=True)

    @property
    def pipeline(self) -> Pipeline:
        return self.loaded.pipeline

    @property
    def can_be_resumed(self) -> bool:
        """Unless a service feeds it, since what that has fed does not come again, or results wait
        in the folder of the run, which goes with its agent."""
        operators = self.pipeline.operators.values()
        are_fed = (o.source is not None and o.source.service is not None for o in operators)
        are_gone = (o.sink is not None and not o.sink.resumable for o in operators)
        return not any(are_fed) and not any(are_gone)

    def options(self, **chosen: Any) -> Options:
        """Raises `WrongUsage` for values that make no sense."""
        from anabranch.runtime.pipeline.options import Options

        try:
            return Options(script=self.script, **chosen)
        except PipelineError as error:
            raise WrongUsage(str(error)) from None


def plan(
    target: str,
    settings: Sequence[str],
    script: str | None,
    *,
    inputs: Sequence[str] = (),
    quiet: bool = False,
    several_hosts: bool = False,
) -> Plan:
    """Load, set, check. `quiet`: what the file prints goes to standard error. `several_hosts`:
    whether the run may use some.

    Raises `WrongUsage`.
    """
    try:
        with kept_apart() if quiet else contextlib.nullcontext():
            loaded = load_pipeline(target)
        apply_settings(loaded.pipeline, settings)
        _apply_inputs(loaded.pipeline, inputs)
        operators = loaded.pipeline.operators
        if refused := order.refusal(operators):
            raise WrongUsage(f"pipeline {loaded.pipeline.name!r}: {refused}")
        parsed = None if script is None else load_script(script)
        duplicated = set[str]()
        if parsed is not None:
            names, alone = scalable(loaded.pipeline), order.bound(operators)
            parsed.decisions(names, alone)  # raises what is wrong
            duplicated = parsed.duplicated(names, alone)
    except PipelineError as error:
        raise WrongUsage(f"--set {error}") from None
    except (LoadError, ScriptError) as error:
        raise WrongUsage(str(error)) from None
    return Plan(
        loaded,
        parsed,
        stdout_sink(loaded.pipeline),
        order.warnings(operators, duplicated, several_hosts=several_hosts),
    )


def _apply_inputs(pipeline: Pipeline, inputs: Sequence[str]) -> None:
    try:
        apply_inputs(pipeline, inputs)
    except PipelineError as error:
        raise WrongUsage(f"--input {error}") from None


def scalable(pipeline: Pipeline) -> list[str]:
    return [o.name for o in pipeline.operators.values() if o.can_scale]


def stdout_sink(pipeline: Pipeline) -> str | None:
    """The name of an operator that writes to standard output."""
    from anabranch.runtime.sinks.stdout import Stdout

    for operator in pipeline.operators.values():
        if isinstance(operator.sink, Stdout):
            return operator.name
    return None
