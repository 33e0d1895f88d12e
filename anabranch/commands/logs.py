"""`anabranch logs`: what a pipeline on a host has printed."""

from __future__ import annotations

from pathlib import Path

import click

from anabranch.commands.agent_options import ask, at_option, say_json, token_option
from anabranch.commands.shared_options import json_option
from anabranch.commands.telling import say

EXAMPLES = """\b
Examples:
  anabranch logs headlines
  anabranch logs headlines@3f2a91c0 --lines 1000

\b
The agent keeps the last 4 to 8 MB of each pipeline.
Exit code: 0 done, 1 no agent answers, 2 wrong usage or no such pipeline.
"""


@click.command(epilog=EXAMPLES)
@click.argument("pipeline", metavar="PIPELINE")
@at_option
@click.option(
    "--lines",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    metavar="N",
    help="The last ones.",
)
@token_option
@json_option
def command(pipeline: str, at: str, lines: int, token_file: Path | None, as_json: bool) -> None:
    """Show what a pipeline has printed, and what its run says."""
    from anabranch.runtime.hosts.pipelines import AskLogs, Logs

    found = ask(at, token_file, AskLogs(pipeline, lines), Logs)
    if as_json:
        say_json({"at": at, "id": found.id, "lines": found.text.splitlines()})
    else:
        say(found.text, nl=False)
