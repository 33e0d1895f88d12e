"""How commands say that they were used wrongly."""

from __future__ import annotations

from typing import IO, Any

import click

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130
"""Exit codes."""


class WrongUsage(click.ClickException):
    """A message for the user; it needs neither a traceback nor the usage line."""

    exit_code = WRONG_USAGE

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"anabranch: {self.message}", err=True, file=file)
