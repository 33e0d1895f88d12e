"""`anabranch give-up`: go on without a host that is lost for good."""

from __future__ import annotations

from pathlib import Path

import click

from anabranch.commands.agent_options import ask, at_option, say_json, token_option
from anabranch.commands.failing import FAILED, WrongUsage
from anabranch.commands.shared_options import json_option
from anabranch.commands.telling import say

EXAMPLES = """\b
Examples:
  anabranch give-up press-2 --yes
  anabranch give-up press-2 --yes --at press-1:7433 --json

\b
For a host that does not come back: its disk is gone, or it takes too long. Pipelines that were
submitted to the host of this agent go on without it: instances that were there begin on other
hosts, each from a copy of its journal (durable="hosts"). If the host lives after all, what its
instances still do counts no more; when it is back, they are killed, their files are removed, and it
is a host like others. What is not in journals and lay on the host, such as dead letters, is lost
unless it comes back.
Exit code: 0 all pipelines go on without it; 1 one of them cannot, which is told, or no agent
answers; 2 wrong usage.
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
