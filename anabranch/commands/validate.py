"""`anabranch validate`: check a pipeline without starting anything, and show its graph."""

from __future__ import annotations

import json

import click

from anabranch.commands.failing import WrongUsage
from anabranch.commands.preparing import Plan, plan
from anabranch.commands.shared_options import settings_option
from anabranch.commands.telling import say
from anabranch.views.graph import lines_of, plain_values

EXAMPLES = """\b
Examples:
  anabranch validate headlines.py
  anabranch validate pipelines.py:nightly --json
  anabranch validate headlines.py --on spark

\b
Exit code: 0 valid, 2 not.
"""


@click.command(epilog=EXAMPLES)
@click.argument("target", metavar="FILE.py[:NAME]")
@settings_option
@click.option("--scale-script", metavar="FILE|TEXT", help="Check a script too.")
@click.option("--json", "as_json", is_flag=True, help="Print the graph as JSON.")
@click.option(
    "--on", "engine", metavar="spark", help="Check whether it can run there, too, and show how."
)
def command(
    target: str,
    settings: tuple[str, ...],
    scale_script: str | None,
    as_json: bool,
    engine: str | None,
) -> None:
    """Check the pipeline in FILE.py and show its operators. Nothing is started or opened."""
    try:
        planned = plan(target, settings, scale_script, quiet=as_json)
        there = [] if engine is None else _on(engine, planned)
    except WrongUsage as error:
        if as_json:
            say(json.dumps({"valid": False, "error": error.message}, indent=2))
        raise
    path = planned.loaded.path
    if as_json:
        values = {**plain_values(planned.pipeline, path), "warnings": planned.warnings}
        say(json.dumps(values, indent=2))
    else:
        planned.warn()
        say("\n".join([*lines_of(planned.pipeline, path), *there]))


def _on(engine: str, planned: Plan) -> list[str]:
    from anabranch.commands.on_spark import lines_of_sections, master_of

    return lines_of_sections(planned, master_of(engine))
