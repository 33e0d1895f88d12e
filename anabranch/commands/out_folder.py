"""The folder that a command writes its results to, as an option."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.working_folder import check_working_folder


class OutFolder(click.Path):
    """It may still have to be made; if it cannot be made, the user learns it before hours of
    work."""

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
        if reason := _unmakable(path):
            self.fail(reason, param, ctx)
        return path


def _unmakable(path: Path) -> str:
    """Why it cannot be made or written to; empty if it can, as far as is known before."""
    try:
        there = next(each for each in (path, *path.parents) if each.exists())
    except OSError as error:
        return f"{path}: {error.strerror}"
    if not there.is_dir():
        return f"{path} cannot be made: {there} is a file"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} may not be written to"
    return ""
