"""Options that several commands have, and where their output goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from anabranch.runtime.pipeline.definition import check_dead_max


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


settings_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="OPERATOR.scale.SETTING=VALUE",
    help="Change how an operator scales; may be repeated.",
)
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
