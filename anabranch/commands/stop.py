"""`anabranch stop`: end a pipeline on a host."""

from __future__ import annotations

from pathlib import Path

import click

from anabranch.commands.agent_options import ask, at_option, say_json, say_pipelines, token_option
from anabranch.commands.failing import FAILED
from anabranch.commands.shared_options import json_option

EXAMPLES = """\b
Examples:
  anabranch stop headlines
  anabranch stop headlines@3f2a91c0 --now

\b
The input ends, and what was read is finished, as by Ctrl-C. --now stops at once and keeps the run:
submitting the same version again goes on with it.
Exit code: 0 it has ended, or does so and finishes what it has read; 1 no agent answers, or it has
failed; 2 wrong usage, no such pipeline, or it has ended before.
"""


@click.command(epilog=EXAMPLES)
@click.argument("pipeline", metavar="PIPELINE")
@at_option
@click.option("--now", is_flag=True, help="Stop at once, and keep the run.")
@token_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    pipeline: str,
    at: str,
    now: bool,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """End a pipeline on a host, and show what became of it."""
    from anabranch.runtime.hosts.pipelines import PipelinesKnown, StopPipeline

    known = ask(at, token_file, StopPipeline(pipeline, now), PipelinesKnown)
    if as_json:
        say_json({"at": at, "pipelines": known.pipelines})
    else:
        say_pipelines(known.pipelines)
    if known.pipelines[0].state == "failed":
        context.exit(FAILED)
