"""`anabranch run FILE.py --on spark`: the same pipeline as a job of Spark."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click
from click.core import ParameterSource

from anabranch.commands.failing import DONE, FAILED, INTERRUPTED, WrongUsage, in_words
from anabranch.commands.preparing import Plan, plan
from anabranch.commands.telling import say
from anabranch.runtime.pipeline.places import check_places, check_report
from anabranch.runtime.pipeline.spans import check_backfill
from anabranch.runtime.reporting.report import check_writable, put_report
from anabranch.runtime.reporting.standard_output import kept_apart
from anabranch.runtime.values.checks import PipelineError
from anabranch.spark_bridge import sessions

if TYPE_CHECKING:
    from anabranch.runtime.pipeline.graph import Pipeline
    from anabranch.runtime.plan.spec import Span
    from anabranch.spark_engine.report import SparkReport


def master_of(text: str) -> str:
    """`spark` or `spark=MASTER`, such as `spark=local[2]`. Raises `WrongUsage`."""
    try:
        return sessions.master_of(text)
    except PipelineError as error:
        raise WrongUsage(str(error)) from None


@dataclass(frozen=True, slots=True)
class SparkWish:
    """What was asked for on the command line."""

    master: str
    mode: str
    duration_s: float | None
    report: Path | None
    as_json: bool
    dead_max: int | float | None
    state: Path | None
    resume: bool
    fresh: bool
    begin_from: Path | None
    until_committed: bool
    may_resume: bool = False
    inputs: Sequence[str] = ()
    backfill: Span | None = None


WISHES = ("duration_s", "report", "state", "resume", "fresh", "begin_from", "until_committed")
"""Those that a run on processes has by the same names."""
_OF_PROCESSES = {
    "scale_script",
    "policy_dry_run",
    "transport",
    "warm",
    "seed",
    "learnt",
    "keep_learnt",
}


def refuse_others(context: click.Context) -> None:
    """Options that mean nothing there."""
    for parameter in context.command.params:
        name = str(parameter.name)
        given = context.get_parameter_source(name) is not ParameterSource.DEFAULT
        if given and name in _OF_PROCESSES:
            raise WrongUsage(
                f"{parameter.opts[0]} is about instances that are processes of this host, which "
                "a job of Spark does not have; leave it out"
            )


def carry_out(target: str, settings: Sequence[str], wish: SparkWish) -> int:
    _require_packages()
    from anabranch.spark_bridge.errors import SparkUnavailable
    from anabranch.spark_engine.failing import JobFailed
    from anabranch.spark_engine.running import mode_of, run

    planned = plan(target, settings, None, inputs=wish.inputs, quiet=wish.as_json)
    pipeline = planned.pipeline
    if wish.dead_max is not None:
        pipeline.dead_max = wish.dead_max
    if wish.as_json and planned.stdout_sink:
        raise WrongUsage(
            f"--json writes to standard output, and so does sink {planned.stdout_sink!r}; "
            "use --report FILE instead"
        )
    out = sys.stderr if wish.as_json or planned.stdout_sink else sys.stdout
    try:
        streams = wish.state is not None or wish.duration_s is not None  # so until_committed
        streams = streams and wish.backfill is None
        if wish.backfill is not None:
            check_backfill(pipeline.operators)
        mode = mode_of(pipeline, {}, wish.mode, streams)
        _check(pipeline, mode, wish.master)
        if wish.report is not None:
            check_writable(wish.report)
            check_report(pipeline, wish.report)
            check_places(pipeline, wish.report)
        _prepare_state(wish)
        ignores = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        with (
            quiet_py4j(),
            _handled(signal.SIGTERM, _leave),
            sessions.session_for(wish.master) as spark,
            kept_apart(),
            _handled(signal.SIGINT, signal.SIG_IGN if ignores else _interrupt),
        ):
            outcome = run(
                pipeline,
                spark,
                mode=mode,
                state=wish.state,
                duration_s=wish.duration_s,
                begin_from=wish.begin_from,
                until_committed=wish.until_committed,
                backfill=wish.backfill,
            ).report
    except JobFailed as failed:
        outcome = failed.report
        outcome.failure = outcome.failure or str(failed)
    except (PipelineError, SparkUnavailable, OSError, ValueError) as error:
        raise WrongUsage(in_words(error)) from None
    told = _conclude(outcome, pipeline.dead_letters_path, wish, out)
    return DONE if outcome.ok and told else FAILED


def _require_packages() -> None:
    """Raise `WrongUsage` if a package is missing that modules for Spark import."""
    from anabranch.spark_bridge.errors import SparkUnavailable
    from anabranch.spark_bridge.local.session import require_packages

    try:
        require_packages()
    except SparkUnavailable as error:
        raise WrongUsage(str(error)) from None


def _interrupt(*_: object) -> None:
    """In the place of PySpark's own handler, which calls the JVM while another call waits for
    it."""
    raise KeyboardInterrupt


def _leave(*_: object) -> None:
    """As a second Ctrl-C does: Spark and its workers end."""
    sys.exit(INTERRUPTED)


@contextmanager
def _handled(number: signal.Signals, act: Callable[..., None] | signal.Handlers) -> Iterator[None]:
    before = signal.signal(number, act)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def quiet_py4j() -> Iterator[None]:
    """Py4J logs a traceback for each call that an interrupt or a failed batch has ended, partly as
    the root logger. The exception that is raised besides has what failed."""
    root, py4j = logging.getLogger(), logging.getLogger("py4j")
    level = py4j.level
    root.addFilter(_no_interrupted_call)
    py4j.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        root.removeFilter(_no_interrupted_call)
        py4j.setLevel(level)


def _no_interrupted_call(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("KeyboardInterrupt while sending command")


def _check(pipeline: Pipeline, mode: str, master: str) -> None:
    """Raise `PipelineError` for what the Spark at `master` cannot do, or would lose at its end."""
    from anabranch.spark_engine.refusing import unread
    from anabranch.spark_engine.running import check

    connect = master.startswith(sessions.CONNECT)
    check(pipeline, {}, bounded=mode == "batch", connect=connect)
    if found := [*unread(pipeline, catalog_ends=sessions.is_local(master))]:
        raise PipelineError("; ".join(found))


def _prepare_state(wish: SparkWish) -> None:
    """As for processes: a run that is there is gone on with, or given up, if that is asked for."""
    from anabranch.spark_engine.state import StateFolder

    if wish.state is None:
        return
    unfinished = False
    if wish.state.exists() or not wish.resume:
        with StateFolder(wish.state).held() as folder:
            if wish.fresh:
                folder.clear()
            unfinished = folder.begun and not folder.ended
    if wish.resume and not unfinished:
        raise WrongUsage(
            f"{wish.state} keeps no run that could go on; leave out --resume to begin one"
        )
    if unfinished and not (wish.resume or wish.may_resume):
        raise WrongUsage(
            f"{wish.state} keeps a run that has not ended: go on with it by --resume, or give it "
            "up by --fresh"
        )


def _conclude(outcome: SparkReport, dead_letters: Path, wish: SparkWish, out: TextIO) -> bool:
    """Whether the report is where it was to go."""
    lines = [*outcome.lines(dead_letters)]
    saves = wish.until_committed or wish.backfill is not None
    if saves and outcome.ok and wish.state is not None:
        lines.append(f"savepoint: {wish.state / 'savepoint'}; a run goes on with --from that")
    say("\n".join(lines), out)
    if wish.as_json:
        say(outcome.to_json(), nl=False)
    if wish.report is None:
        return True
    try:
        put_report(outcome.to_json().encode(), wish.report)
    except OSError as error:
        say(f"  the report could not be written to {str(wish.report)!r}: {error}", sys.stderr)
        return False
    return True


def lines_of_sections(planned: Plan, master: str) -> list[str]:
    """What the Spark at `master` would do in which section; raises `WrongUsage` if it cannot."""
    _require_packages()
    from anabranch.spark_engine.mapping import mapped
    from anabranch.spark_engine.running import mode_of

    try:
        mode = mode_of(planned.pipeline, {}, "auto", False)
        _check(planned.pipeline, mode, master)
    except PipelineError as error:
        raise WrongUsage(str(error)) from None
    sections = mapped(planned.pipeline.operators)
    how = "as one batch" if mode == "batch" else "as a stream of batches"
    lines = ["", f"on Spark {how}, with a shuffle before each line but the first:"]
    for number in range(sections.sections):
        names = [
            f"event time of {s.operator} (one task)" if s.reads_time else s.operator
            for s in sections.of_section(number)
        ]
        lines.append(f"  {', '.join(names)}")
    return lines
