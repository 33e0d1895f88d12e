"""`anabranch run FILE.py --on spark`: the same pipeline as a job of Spark."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from anabranch.commands.failing import DONE, FAILED, WrongUsage
from anabranch.commands.preparing import Plan, plan
from anabranch.commands.telling import say
from anabranch.runtime.graph import PipelineError
from anabranch.runtime.standard_output import kept_apart

ENGINE = "spark"


def master_of(text: str) -> str | None:
    """`spark` or `spark=MASTER`, such as `spark=local[2]`. Raises `WrongUsage`."""
    engine, equals, master = text.partition("=")
    if engine != ENGINE or (equals and not master):
        raise WrongUsage(
            f"--on {text!r}: expected spark, or spark=MASTER such as spark=local[4] or "
            "spark=spark://host:7077"
        )
    return master or None


def refuse_others(context: click.Context, known: Collection[str]) -> None:
    """Options that mean nothing there."""
    for parameter in context.command.params:
        name = parameter.name
        given = name is not None and context.get_parameter_source(name) is not (
            ParameterSource.DEFAULT
        )
        if given and name not in known:
            raise WrongUsage(
                f"{parameter.opts[0]} is about instances that are processes of this host, which "
                "a job of Spark does not have; leave it out"
            )


def carry_out(
    target: str,
    settings: Sequence[str],
    master: str | None,
    report: Path | None,
    as_json: bool,
    dead_max: int | float | None,
) -> int:
    from anabranch.spark_bridge.errors import SparkUnavailable
    from anabranch.spark_engine.failing import JobFailed
    from anabranch.spark_engine.running import check, run
    from anabranch.spark_engine.sessions import session_for

    planned = plan(target, settings, None, quiet=as_json)
    pipeline = planned.pipeline
    if dead_max is not None:
        pipeline.dead_max = dead_max
    if as_json and planned.stdout_sink:
        raise WrongUsage(
            f"--json writes to standard output, and so does sink {planned.stdout_sink!r}; "
            "use --report FILE instead"
        )
    out = sys.stderr if as_json or planned.stdout_sink else sys.stdout
    try:
        check(pipeline, {})
        with session_for(master) as spark, kept_apart():
            outcome = run(pipeline, spark).report
    except JobFailed as failed:
        outcome = failed.report
        outcome.failure = outcome.failure or str(failed)
    except (PipelineError, SparkUnavailable, OSError, ValueError) as error:
        raise WrongUsage(str(error)) from None
    say("\n".join(outcome.lines(pipeline.dead_letters_path)), out)
    if report is not None:
        report.write_text(outcome.to_json())
    if as_json:
        say(outcome.to_json(), nl=False)
    return DONE if outcome.ok else FAILED


def lines_of_sections(planned: Plan) -> list[str]:
    """What Spark would do in which section; raises `WrongUsage` if it cannot."""
    from anabranch.spark_engine.mapping import mapped
    from anabranch.spark_engine.running import check

    try:
        check(planned.pipeline, {})
    except PipelineError as error:
        raise WrongUsage(str(error)) from None
    sections = mapped(planned.pipeline.operators)
    lines = ["", "on Spark, with a shuffle before each line but the first:"]
    for number in range(sections.sections):
        names = [
            f"event time of {s.operator} (one task)" if s.reads_time else s.operator
            for s in sections.of_section(number)
        ]
        lines.append(f"  {', '.join(names)}")
    return lines
