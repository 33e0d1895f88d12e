"""`anabranch status`: what the pipelines of a host do just now."""

from __future__ import annotations

from pathlib import Path

import click

from anabranch.commands.agent_options import ask, at_option, say_json, say_pipelines, token_option
from anabranch.commands.shared_options import json_option
from anabranch.commands.telling import say

EXAMPLES = """\b
Examples:
  anabranch status
  anabranch status headlines --json | jq '.pipelines[].run.read'

\b
The agent asks each run. States: starting, running, ending (its input has ended), closing, waiting
(its process has died and begins again soon), silent (its process is there and does not answer),
finished, stopped, failed, damaged (what the host has kept of it cannot be read).
Exit code: 0 done, 1 no agent answers, 2 wrong usage or no such pipeline.
"""


@click.command(epilog=EXAMPLES)
@click.argument("pipeline", metavar="[PIPELINE]", default="")
@at_option
@token_option
@json_option
def command(pipeline: str, at: str, token_file: Path | None, as_json: bool) -> None:
    """Show the pipelines of a host, or one of them, as they are now."""
    from anabranch.runtime.hosts.pipelines import AskStatus, PipelinesKnown

    known = ask(at, token_file, AskStatus(pipeline), PipelinesKnown)
    if as_json:
        say_json({"at": at, "pipelines": known.pipelines})
    elif known.pipelines:
        say_pipelines(known.pipelines)
    else:
        say("no pipeline was submitted to this host")
