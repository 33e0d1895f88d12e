"""`anabranch scale`: how many instances an operator of a pipeline on a host has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.commands.agent_options import ask, at_option, say_json, token_option
from anabranch.commands.failing import FAILED, WrongUsage
from anabranch.commands.shared_options import json_option
from anabranch.commands.telling import say

if TYPE_CHECKING:
    from anabranch.runtime.hosts.pipelines import ScaleOutcome

AUTO = "auto"
EXAMPLES = """\b
Examples:
  anabranch scale headlines split 4
  anabranch scale headlines split auto
  anabranch scale headlines split 4 --json | jq .instances

\b
The operator keeps that number, also when the run is resumed, until `auto`: meanwhile its policy
decides nothing. The number lies within min_instances and max_instances of the operator's scale;
without a scale, within those that are usual.
Exit code: 0 it has so many instances, or its policy decides again; 1 it has not got there within
30 seconds, and goes on, or no agent answers; 2 wrong usage, or the operator cannot have so many.
"""


@click.command(epilog=EXAMPLES)
@click.argument("pipeline", metavar="PIPELINE")
@click.argument("operator", metavar="OPERATOR")
@click.argument("instances", metavar="N|auto")
@at_option
@token_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    pipeline: str,
    operator: str,
    instances: str,
    at: str,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Bring an operator to N instances and keep it there, or let its policy decide again."""
    from anabranch.runtime.hosts.pipelines import ScaleOutcome, ScalePipeline

    request = ScalePipeline(pipeline, operator, _number(instances))
    scaled = ask(at, token_file, request, ScaleOutcome)
    if as_json:
        say_json(
            {"at": at, **{name: getattr(scaled, name) for name in ScaleOutcome.__struct_fields__}}
        )
    else:
        say(_told(scaled))
    if not scaled.reached:
        context.exit(FAILED)


def _number(text: str) -> int | None:
    if text == AUTO:
        return None
    if text.isascii() and text.isdigit() and 1 <= int(text[:10]) <= 1_000_000:
        return int(text)
    raise WrongUsage(f"expected a number of instances from 1 on, or {AUTO}; got {text!r}")


def _told(scaled: ScaleOutcome) -> str:
    now = f"{scaled.instances} {'instance' if scaled.instances == 1 else 'instances'}"
    where = f"{scaled.id} on {scaled.host}: {scaled.operator}"
    if scaled.wanted is None:
        return f"{where} has {now}; its policy decides"
    if scaled.reached:
        return f"{where} has {now}, and keeps them until it is told `{AUTO}`"
    return f"{where} has {now}, not {scaled.wanted} yet; the run goes on with it ({scaled.why})"
