"""`anabranch run`: carry out a pipeline, show it, say what came of it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from anabranch.commands.failing import (
    DONE,
    FAILED,
    INTERRUPTED,
    OutputLost,
    WrongUsage,
    in_words,
)
from anabranch.commands.preparing import Plan, plan
from anabranch.commands.shared_options import (
    dead_max_option,
    inputs_option,
    json_option,
    report_option,
    settings_option,
)
from anabranch.commands.telling import say, telling
from anabranch.runtime.reporting.standard_output import is_closed, kept_apart
from anabranch.runtime.values.checks import PipelineError

if TYPE_CHECKING:
    from anabranch.runtime.live.agent.host_sites import Elsewhere
    from anabranch.runtime.live.agent.launch import Run
    from anabranch.runtime.live.hosts.attendance import Attendance
    from anabranch.runtime.pipeline.options import Options
    from anabranch.runtime.reporting.report import Report
    from anabranch.views.view import View

EXAMPLES = """\b
Examples:
  anabranch run headlines.py
  anabranch run pipelines.py:nightly --report nightly.json
  anabranch run headlines.py --set split.scale.max_instances=4 --set split.scale.low=0.5
  anabranch run headlines.py --set split.scale.policy=predictive --policy-dry-run
  anabranch run sensors.py --duration 60
  anabranch run storm.py --scale-script "every 0.1 from 1 to 60: * duplicate"
  cat lines.txt | anabranch run count.py --json | jq .ledger
  anabranch run headlines.py --state headlines.state            # after a power cut:
  anabranch run headlines.py --state headlines.state --resume
  anabranch run headlines.py --controller elysium --keep-learnt headlines.learnt
  anabranch run headlines.py --controller elysium --learnt headlines.learnt
  anabranch run headlines.py --on spark=local[4]
  anabranch run headlines.py --on spark --as stream --state headlines.spark

\b
Ctrl-C ends the input and lets everything read so far come out; a second one stops at once.
SIGTERM does as the first, with --state as the second: the run is kept. A signal that the command
was started with as ignored stays ignored, as SIGINT in the background of a script (`run … &`).
Exit code: 0 done, 1 an operator failed for good or the ledger does not balance,
2 wrong usage, 130 stopped at once.
"""


@click.command(epilog=EXAMPLES)
@click.argument("target", metavar="FILE.py[:NAME]")
@report_option
@settings_option
@inputs_option
@click.option(
    "--duration", "duration_s", type=float, metavar="S", help="End the input after S seconds."
)
@json_option
@click.option(
    "--scale-script",
    metavar="FILE|TEXT",
    help="Decisions at given times, such as '2.0 split duplicate 2'; replaces the policy.",
)
@click.option(
    "--policy-dry-run",
    is_flag=True,
    help="Tell what the policies of the operators decide, and do nothing of it.",
)
@click.option(
    "--transport",
    type=click.Choice(["unix", "tcp"]),
    default="unix",
    show_default=True,
    help="Sockets between instances.",
)
@click.option(
    "--warm",
    type=click.IntRange(0),
    default=2,
    show_default=True,
    help="Idle processes kept ready.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the run in DIR, so that it can be resumed after a power cut or kill -9.",
)
@click.option("--resume", is_flag=True, help="Go on with the run in --state DIR.")
@click.option(
    "--resume-or-begin",
    is_flag=True,
    help="Go on with the run in --state DIR if there is one, otherwise begin one.",
)
@click.option(
    "--until-committed",
    is_flag=True,
    help="When the input ends, leave windows and timers open, and a savepoint in --state DIR.",
)
@click.option(
    "--from",
    "begin_from",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="SAVEPOINT",
    help="Begin from a savepoint, behind what its run has read: docs/savepoints.md.",
)
@click.option(
    "--learnt",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Let controllers begin with what those of another run have learnt (--keep-learnt).",
)
@click.option(
    "--keep-learnt",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write what controllers have learnt into FILE when the run has ended.",
)
@click.option("--fresh", is_flag=True, help="Give up the run in --state DIR and begin anew.")
@dead_max_option
@click.option(
    "--on",
    "engine",
    metavar="spark[=MASTER]",
    help="Run it as a job of Spark, on this host or on a cluster: docs/spark-engine.md.",
)
@click.option(
    "--as",
    "mode",
    type=click.Choice(["batch", "stream", "auto"]),
    default="auto",
    show_default=True,
    help="On Spark: as one batch, which needs an input with an end, or batch after batch.",
)
@click.option("--attended", type=int, hidden=True, help="The socket of the host's agent.")
@click.option("--hosted", hidden=True, help="Of a worker: its control socket and its lock.")
@click.option("--seed", type=int, help="Of all random choices; drawn, and reported, if not given.")
@click.pass_context
def command(
    context: click.Context,
    /,
    target: str,
    settings: tuple[str, ...],
    inputs: tuple[str, ...],
    as_json: bool,
    scale_script: str | None,
    dead_max: int | float | None,
    engine: str | None,
    mode: str,
    attended: int | None,
    hosted: str | None,
    **wishes: Any,
) -> None:
    """Run the pipeline in FILE.py until its input ends."""
    if hosted is not None:
        context.exit(_work_for_another_host(target, settings, hosted))
    attendance = None if attended is None else _attendance(attended)
    _check_state(wishes)
    _check_savepoints(wishes)
    _check_learnt(wishes)
    refuse_closed_output(as_json)
    if engine is not None:
        from anabranch.commands import on_spark

        on_spark.refuse_others(context)
        wish = on_spark.SparkWish(
            master=on_spark.master_of(engine),
            mode=mode,
            as_json=as_json,
            dead_max=dead_max,
            inputs=inputs,
            may_resume=wishes["resume_or_begin"],
            **{name: wishes[name] for name in on_spark.WISHES},
        )
        context.exit(on_spark.carry_out(target, settings, wish))
    if mode != "auto":
        raise WrongUsage("--as is for a pipeline on Spark: --on spark")
    with report_output(as_json) as stdout:
        planned = plan(
            target, settings, scale_script, inputs=inputs, several_hosts=attendance is not None
        )
        code = run_here(
            planned, wishes, stdout, as_json=as_json, dead_max=dead_max, attendance=attendance
        )
    context.exit(code)


def _attendance(fd: int) -> Attendance:
    from anabranch.runtime.live.hosts.attendance import Attendance

    return Attendance(fd, INTERRUPTED)


def _work_for_another_host(target: str, settings: tuple[str, ...], hosted: str) -> int:
    """Be the worker of a run of another host, which decides everything."""
    from anabranch.runtime.live.agent.worker_process import serve_worker

    control, lock = map(int, hosted.split(","))
    return serve_worker(plan(target, settings, None).pipeline, control, lock)


def refuse_closed_output(as_json: bool) -> None:
    if as_json and is_closed():
        raise WrongUsage("standard output is closed, to which --json writes")


def report_output(as_json: bool) -> AbstractContextManager[TextIO]:
    """Where the report or the summary goes."""
    return kept_apart() if as_json else _summary_output()


def run_here(
    planned: Plan,
    wishes: dict[str, Any],
    stdout: TextIO,
    *,
    as_json: bool,
    dead_max: int | float | None,
    attendance: Attendance | None = None,
) -> int:
    """The exit code of a run on processes of this host. `wishes`: see `Options`."""
    planned.warn()
    if as_json and planned.stdout_sink:
        raise WrongUsage(
            f"--json writes to standard output, and so does sink {planned.stdout_sink!r}; "
            "use --report FILE instead"
        )
    if dead_max is not None:
        planned.pipeline.dead_max = dead_max
    return _carry_out(planned, planned.options(**wishes), stdout, as_json, attendance)


@contextlib.contextmanager
def _summary_output() -> Iterator[TextIO]:
    """Standard output; where that is closed, the run is as good without the summary."""
    if not is_closed():
        yield sys.stdout
        return
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield nowhere


def _carry_out(
    planned: Plan,
    options: Options,
    stdout: TextIO,
    as_json: bool,
    attendance: Attendance | None,
) -> int:
    """`stdout`: for the report as JSON; otherwise results may go there, and nothing else then."""
    from anabranch.commands.following import Output, follow, interrupts
    from anabranch.explaining import explain, is_about
    from anabranch.runtime.live.agent import launch
    from anabranch.runtime.reporting.failure import RunFailed
    from anabranch.spark_bridge.errors import SparkUnavailable
    from anabranch.views.figures_of_run import figures

    output = Output()
    out = sys.stderr if as_json or planned.stdout_sink else stdout
    view = _view(out)
    options = replace(options, on_alert=output.tell)
    if sys.stderr.isatty():  # what operators print would tear the table
        options = replace(options, on_output=output.put)
    keeps = options.state is not None and planned.can_be_resumed
    backfills = options.backfill is not None
    with contextlib.closing(view), interrupts(keeps=keeps, at_once=backfills) as noted:
        try:
            run = launch.start(planned.pipeline, options, elsewhere=_elsewhere(attendance))
            if options.state is not None:
                view.say(_beginning(planned.pipeline.name, run.resumed_from, options.state))
            if attendance is not None:
                scale = partial(_scaled, run)
                give_up = partial(_without, run)
                attendance.attend(lambda: figures(run.snapshot()), noted.told, scale, give_up)
            report = follow(run, view, noted, output)
        except RunFailed as error:
            if error.failure.refused:
                raise WrongUsage(error.failure.message) from None
            report = error.report
        except (ValueError, OSError, SparkUnavailable) as error:
            raise WrongUsage(in_words(error)) from None
        except Exception as error:
            if not is_about(error, planned.loaded.path):
                raise
            raise WrongUsage(explain(error, planned.loaded.path)) from None
    _conclude(report, planned, options, out)
    if as_json:
        say(report.to_json().decode(), stdout, nl=False)
    if report.ended == "stopped":
        return INTERRUPTED
    return DONE if report.ok else FAILED


def _elsewhere(attendance: Attendance | None) -> Elsewhere:
    from anabranch.runtime.live.agent.host_sites import ONE_HOST

    if attendance is None:
        return ONE_HOST
    from anabranch.runtime.live.agent.elsewhere import elsewhere_of

    return elsewhere_of(attendance.hosts)


def _scaled(run: Run, operator: str, n: int | None) -> str:
    """Why not, if it is refused."""
    try:
        run.scale(operator, n)
    except PipelineError as error:
        return str(error)
    return ""


def _without(run: Run, host: str) -> str:
    """Why not, if it is refused."""
    try:
        run.give_up(host)
    except PipelineError as error:
        return str(error)
    return ""


def _view(out: TextIO) -> View:
    """A table on terminals, lines elsewhere."""
    if not out.isatty() or os.environ.get("TERM") == "dumb":
        from anabranch.views.plain import PlainView

        return PlainView(out)
    from rich.console import Console

    from anabranch.views.live import LiveView

    return LiveView(Console(file=out))


def _check_state(wishes: dict[str, Any]) -> None:
    ways = ("resume", "resume_or_begin", "fresh")
    wanted = [f"--{way.replace('_', '-')}" for way in ways if wishes[way]]
    if wanted and wishes["state"] is None:
        raise WrongUsage(f"{wanted[0]} needs the folder in which the run is kept: --state DIR")
    if len(wanted) > 1:
        raise WrongUsage(
            f"{' and '.join(wanted)} exclude each other: --resume goes on with a run, "
            "--resume-or-begin also begins one if there is none, --fresh gives it up"
        )


def _check_savepoints(wishes: dict[str, Any]) -> None:
    if wishes["until_committed"] and wishes["state"] is None:
        raise WrongUsage("--until-committed needs the folder for the savepoint: --state DIR")
    if wishes["begin_from"] is not None and wishes["resume"]:
        raise WrongUsage(
            "--from and --resume exclude each other: a run that is resumed has begun already; "
            "--resume-or-begin --from SAVEPOINT begins from it if there is no run to resume"
        )


def _check_learnt(wishes: dict[str, Any]) -> None:
    if wishes["learnt"] is not None and wishes["resume"]:
        raise WrongUsage(
            "--learnt and --resume exclude each other: the controllers of a run that is resumed "
            "begin with what they had learnt themselves; --resume-or-begin --learnt FILE begins "
            "with it if there is no run to resume"
        )


def _beginning(name: str, resumed_from: str | None, state: Path) -> str:
    """The log has to show whether a run that was restarted went on."""
    if resumed_from is None:
        return f"{name}: begins; kept in {state}"
    began = datetime.fromisoformat(resumed_from).astimezone()
    return f"{name}: goes on with the run of {began:%Y-%m-%d %H:%M:%S}; kept in {state}"


def _conclude(report: Report, planned: Plan, options: Options, out: TextIO) -> None:
    from anabranch.runtime.live.agent.state_dir import kept_in
    from anabranch.views.summary import summary

    lines = summary(report, planned.pipeline.dead_letters_path)
    if options.until_committed and report.finished and options.state is not None:
        lines.append(
            f"savepoint: {options.state / 'savepoint'}; a run goes on with --from that folder"
        )
    if kept_in(options.state) and planned.can_be_resumed:
        how = "the same command" if options.resume_or_begin else "--resume"
        lines.append(f"the run is kept in {options.state}: {how} goes on with it")
    try:
        with telling(out):
            click.echo("\n".join(lines), file=out)
    except OutputLost as lost:  # the results are as good as before
        with contextlib.suppress(OSError):
            lost.show()
