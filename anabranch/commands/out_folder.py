"""The folder that a command writes its results to, as an option."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.working_folder import check_working_folder


class OutFolder(click.Path):
    """It may still have to be made; that it cannot be is told before hours of work, not after."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.is_absolute():
            try:
                check_working_folder()
            except PipelineError as error:
                self.fail(str(error), param, ctx)
        return path
