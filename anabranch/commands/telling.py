"""What commands print on standard output: to a reader that may be gone, on a disk that may be full.

A reader that is gone, as after `| head`, wants nothing more, so that is no failure. Text
that is lost for another reason is one: the command reports it and ends with exit code 1.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO

import click

from anabranch.commands.failing import OutputLost


@contextlib.contextmanager
def telling(out: TextIO) -> Iterator[None]:
    """Write to `out` within this. Raises `OutputLost` if the text is lost."""
    try:
        yield
        out.flush()
    except OSError as error:
        # For what is still in the buffer, and would fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        if not isinstance(error, BrokenPipeError):
            what = "standard error" if out is sys.stderr else "standard output"
            raise OutputLost.by(error, what) from None


def say(text: str, out: TextIO | None = None, *, nl: bool = True) -> None:
    """Print on standard output, or on `out`. Raises `OutputLost`."""
    out = out or sys.stdout
    with telling(out):
        click.echo(text, file=out, nl=nl)


def flush_all() -> None:
    """At the end of a command: of what was printed without `say`. Raises `OutputLost`."""
    with telling(sys.stdout):
        sys.stdout.flush()
