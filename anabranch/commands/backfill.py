"""`anabranch backfill`: a span of history first; a run goes on behind it, from the savepoint."""

from __future__ import annotations

from pathlib import Path

import click

from anabranch.commands.failing import WrongUsage
from anabranch.commands.on_spark import SparkWish, carry_out, master_of
from anabranch.commands.preparing import plan
from anabranch.commands.run import refuse_closed_output, report_output, run_here
from anabranch.commands.shared_options import (
    dead_max_option,
    inputs_option,
    json_option,
    report_option,
    settings_option,
)
from anabranch.runtime.pipeline.spans import span_of
from anabranch.runtime.plan.spec import Span
from anabranch.runtime.values.checks import PipelineError

EXAMPLES = """\b
Examples:
  anabranch backfill bill.py --from 2026-01-01 --to 2026-06-30 --state bill.history
  anabranch run bill.py --from bill.history/savepoint
  anabranch backfill bill.py --from 2026-01-01 --to 2026-06-30T12:00+02:00 \\
      --state bill.history --input 'calls=archive/*.jsonl.gz' --on spark

\b
Tuples from --from on that are before --to are taken. Exit codes are those of run.
"""


@click.command(epilog=EXAMPLES)
@click.argument("target", metavar="FILE.py[:NAME]")
@click.option(
    "--from",
    "start",
    required=True,
    metavar="DATE",
    help="The first event time that is taken: a date or time, of UTC if it has no zone.",
)
@click.option(
    "--to", "end", required=True, metavar="DATE", help="The first one that is not taken any more."
)
@click.option(
    "--state",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The folder for the savepoint, from which `run --from DIR/savepoint` goes on.",
)
@click.option("--resume", is_flag=True, help="Go on with the backfill in DIR that was killed.")
@click.option("--fresh", is_flag=True, help="Give up the run in DIR and begin anew.")
@inputs_option
@settings_option
@report_option
@json_option
@dead_max_option
@click.option(
    "--on",
    "engine",
    metavar="spark[=MASTER]",
    help="Run it as a batch of Spark instead of on processes of this host.",
)
@click.pass_context
def command(
    context: click.Context,
    target: str,
    start: str,
    end: str,
    state: Path,
    resume: bool,
    fresh: bool,
    inputs: tuple[str, ...],
    settings: tuple[str, ...],
    report: Path | None,
    as_json: bool,
    dead_max: int | float | None,
    engine: str | None,
) -> None:
    """Run the pipeline in FILE.py over the tuples of a span of event time."""
    span = _span(start, end)
    refuse_closed_output(as_json)
    if engine is not None:
        if resume or fresh:
            raise WrongUsage(
                "a backfill on Spark is one batch, of which nothing is kept if it is killed: begin "
                f"it again by the same command without --{'resume' if resume else 'fresh'}"
            )
        wish = SparkWish(
            master=master_of(engine),
            mode="batch",
            duration_s=None,
            report=report,
            as_json=as_json,
            dead_max=dead_max,
            state=state,
            resume=False,
            fresh=False,
            begin_from=None,
            until_committed=False,
            inputs=inputs,
            backfill=span,
        )
        context.exit(carry_out(target, settings, wish))
    wishes = {
        "report": report,
        "state": state,
        "resume": resume,
        "fresh": fresh,
        "backfill": span,
    }
    with report_output(as_json) as stdout:
        planned = plan(target, settings, None, inputs=inputs)
        code = run_here(planned, wishes, stdout, as_json=as_json, dead_max=dead_max)
    context.exit(code)


def _span(start: str, end: str) -> Span:
    try:
        return span_of(start, end)
    except PipelineError as error:
        if start and Path(start).is_dir():
            raise WrongUsage(
                f"--from {start}: here it is a date, such as 2026-01-31; `anabranch run` begins "
                "from a savepoint"
            ) from None
        raise WrongUsage(f"--from and --to: {error}") from None
