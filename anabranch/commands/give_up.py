"""`anabranch give-up`: go on without a host that is lost for good."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.commands.agent_options import ask, asking, at_option, say_json, tls_of, token_option
from anabranch.commands.drain import SILENT
from anabranch.commands.failing import FAILED, WrongUsage
from anabranch.commands.shared_options import json_option
from anabranch.commands.telling import say

if TYPE_CHECKING:
    from anabranch.runtime.hosts.pipelines import PipelineStatus

EXAMPLES = """\b
Examples:
  anabranch give-up press-2 --yes
  anabranch give-up press-2 --yes --at 127.0.0.1:7434 --json

\b
For a host that does not come back: its disk is gone, or it takes too long. Pipelines that were
submitted to the host of this agent go on without it: instances that were there begin on other
hosts, each from a copy of its journal (durable="hosts"). If the host lives after all, what its
instances still do counts no more; when it is back, they are killed, their files are removed, and it
is a host like others. What is not in journals and lay on the host, such as dead letters, is lost
unless it comes back.
Exit code: 0 all pipelines go on without it; 1 one of them cannot, which is told, or no agent
answers; 2 wrong usage, or no such host.
"""


@click.command(epilog=EXAMPLES)
@click.argument("host", metavar="HOST")
@click.option("--yes", is_flag=True, help="Do it; without, nothing is done.")
@at_option
@token_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    host: str,
    yes: bool,
    at: str,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Have pipelines go on without a host that is lost for good."""
    from anabranch.runtime.hosts.pipelines import GiveUpHost, HostGivenUp

    if not yes:
        raise WrongUsage(
            f"what instances on {host} have done and no other host knows is given up for good; "
            f"a host that comes back soon needs none of this; if so, say it with --yes: "
            f"anabranch give-up {host} --yes"
        )
    _check_named(host, at, token_file)
    told = ask(at, token_file, GiveUpHost(host), HostGivenUp)
    if as_json:
        say_json({"at": at, "host": host, "without": told.without, "refused": told.refused})
    else:
        for one in told.without:
            say(f"{one} goes on without {host}")
        for one, why in told.refused.items():
            say(f"{one} does not: {why}")
        if not told.without and not told.refused:
            say(f"no pipeline of {told.home} runs just now")
    if told.refused:
        context.exit(FAILED)


def _check_named(host: str, at: str, token_file: Path | None) -> None:
    """Raises `WrongUsage` for a name that neither the agent nor one of its pipelines knows."""
    from anabranch.commands.hosts import ask_hosts
    from anabranch.runtime.hosts.pipelines import AskStatus, PipelinesKnown
    from anabranch.runtime.values.hints import hint

    with asking():
        known = asyncio.run(ask_hosts(at, tls_of(at)))
    if host in (names := {line.host.name for line in known.hosts}):
        return
    pipelines = ask(at, token_file, AskStatus(""), PipelinesKnown).pipelines
    if may_be_used(host, pipelines):
        return
    raise WrongUsage(
        f"the agent at {at} knows no host {host!r}; "
        f"{hint(host, dict.fromkeys(sorted(names)), 'there')}"
    )


def may_be_used(host: str, pipelines: Iterable[PipelineStatus]) -> bool:
    """Whether a pipeline names the host, or does not say which it uses: an agent forgets a host
    that has been dead for a day."""
    for one in pipelines:
        if one.run is None:
            if one.state in SILENT:
                return True
            continue
        used = {*one.run.get("away", ()), *one.run.get("given_up", ())}
        for operator in one.run.get("operators", ()):
            used.update(operator.get("hosts", ()), operator.get("copies", ()))
        if host in used:
            return True
    return False
