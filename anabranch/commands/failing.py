"""How commands report that they were used wrongly, or cannot do their work."""

from __future__ import annotations

import errno
from typing import IO, Any, Self

import click

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130
"""Exit codes."""


class Refusal(click.ClickException):
    """A message for the user; it needs neither a traceback nor the usage line."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"anabranch: {self.message}", err=True, file=file)


class WrongUsage(Refusal):
    exit_code = WRONG_USAGE


def in_words(error: Exception) -> str:
    """Without the number of a refusal, which is of no use for a user."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


class OutputLost(Refusal):
    """Standard output, or a file in its place, takes no more."""

    exit_code = FAILED

    @classmethod
    def by(cls, error: OSError, what: str = "standard output") -> Self:
        if error.errno == errno.EBADF:
            return cls(f"{what} is closed")
        return cls(f"cannot write to {what}: {error.strerror}")
