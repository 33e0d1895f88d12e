"""What commands that ask an agent have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from anabranch.commands.failing import Refusal, WrongUsage

BIND = "127.0.0.1:7433"


def _with_port(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None or ":" in value:
        return value
    return f"{value}:{BIND.rpartition(':')[2]}"


at_option = click.option(
    "--at",
    default=BIND,
    show_default=True,
    envvar="ANABRANCH_AT",
    metavar="HOST[:PORT]",
    callback=_with_port,
    help="Where the agent listens.",
)


@contextmanager
def asking() -> Iterator[None]:
    """Tell what an agent refuses, or that there is none, as commands do."""
    from anabranch.runtime.live.hosts.client import AgentError

    try:
        yield
    except AgentError as error:
        raise (WrongUsage if error.wrong else Refusal)(str(error)) from None
