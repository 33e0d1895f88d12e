"""`anabranch policies`: by what operators can scale."""

from __future__ import annotations

import json

import click

from anabranch.commands.telling import say

EXAMPLES = """\b
Examples:
  anabranch policies
  anabranch policies --json | jq '.[].name'
  anabranch policies mine.py
  anabranch run headlines.py --set split.scale.policy=fixed
"""


@click.command(epilog=EXAMPLES)
@click.argument("target", metavar="[FILE.py]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(target: str | None, as_json: bool) -> None:
    """List policies with settings, defaults, ranges and sources; with FILE.py also its own."""
    from anabranch.commands.preparing import plan
    from anabranch.views.policies import lines_of, plain_values

    if target is not None:
        plan(target, (), None, quiet=True)
    say(json.dumps(plain_values(), indent=1) if as_json else "\n".join(lines_of()))
