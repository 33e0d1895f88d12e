"""Options that several commands have, and where their output goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from anabranch.runtime.pipeline.definition import check_dead_max

F = TypeVar("F", bound=Callable[..., Any])


class DeadMax(click.ParamType[int | float]):
    name = "number or share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | float:
        try:
            limit: int | float = int(value) if str(value).isdecimal() else float(value)
            check_dead_max("--dead-max", limit)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return limit


CONTROLLER = "anabranch controller"


def _keep_controller(context: click.Context, _option: click.Parameter, name: str | None) -> None:
    context.meta[CONTROLLER] = name


def _with_controller(
    context: click.Context, _option: click.Parameter, settings: tuple[str, ...]
) -> tuple[str, ...]:
    name = context.meta.get(CONTROLLER)
    return settings if name is None else (f"controller={name}", *settings)


_settings_option = click.option(
    "--set",
    "settings",
    multiple=True,
    callback=_with_controller,
    metavar="OPERATOR.scale.SETTING=VALUE",
    help="Change how an operator scales; with --controller also controller.SETTING=VALUE. May be "
    "repeated.",
)
_controller_option = click.option(
    "--controller",
    metavar="NAME",
    is_eager=True,  # --set takes it along
    expose_value=False,
    callback=_keep_controller,
    help="Let this controller decide for all operators that scale (`anabranch policies`).",
)


def settings_option(command: F) -> F:
    """The names of a controller and of what else is set come as `settings`, for all that is set
    travels to a host."""
    return _controller_option(_settings_option(command))


inputs_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="SOURCE=PATH",
    help="Let a source read these files instead of its own; may be repeated.",
)
report_option = click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), help="Write a report as JSON."
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the report, as JSON, and nothing else."
)
dead_max_option = click.option(
    "--dead-max",
    type=DeadMax(),
    metavar="N|SHARE",
    help="Fail with more dead letters: a number, or a share as 0.01; instead of the pipeline's.",
)
