"""`ab.spark.run(pipeline, session)`: carry out a pipeline as a job of Spark."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.spans import Moment, check_backfill, span_of
from anabranch.runtime.plan.ends import Source
from anabranch.runtime.plan.spec import Span
from anabranch.runtime.savepoint.folder import Savepoint, SavepointError
from anabranch.runtime.savepoint.inputs import Position, positions_of
from anabranch.runtime.storage.patience import describe_refusal, remedy
from anabranch.runtime.storage.state_folder import StateError
from anabranch.runtime.values.checks import PipelineError
from anabranch.spark_bridge.sessions import is_connect
from anabranch.spark_bridge.sink import SparkCollect
from anabranch.spark_engine import frames, savepoints
from anabranch.spark_engine.delivering import deliver
from anabranch.spark_engine.ends import SparkRows, SparkTable
from anabranch.spark_engine.failing import JobFailed, told
from anabranch.spark_engine.job import Job, job_of
from anabranch.spark_engine.refusing import is_bounded, over_connect, refusals
from anabranch.spark_engine.report import SparkReport
from anabranch.spark_engine.rows import Kind, Row
from anabranch.spark_engine.savepoints import opened, state_rows
from anabranch.spark_engine.shipping import shipped
from anabranch.spark_engine.state import BackfillRecord, StateFolder
from anabranch.spark_engine.streaming import stream
from anabranch.spark_engine.targets import Targets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Mode = Literal["auto", "batch", "stream"]
_PARTITIONS_MAX = 32


@dataclass(frozen=True)
class Result:
    """`report`: what was counted. `frame(sink)`: what a sink of rows has got."""

    report: SparkReport
    _pipeline: Pipeline
    _job: Job | None = None
    _done: DataFrame | None = None

    def frame(self, sink: str) -> DataFrame:
        """What the sink made by `ab.spark.table` or `ab.spark.collect` has got, as a DataFrame."""
        operator = next((o for o in self._pipeline.operators.values() if o.name == sink), None)
        if operator is None or not isinstance(operator.sink, SparkTable | SparkCollect):
            raise PipelineError(f"{sink!r} is no sink made by ab.spark.table or ab.spark.collect")
        assert self._job is not None  # streams have no such sinks
        assert self._done is not None
        number = self._job.plan.stations[sink].number
        return frames.table_frame(self._done, number, operator.sink.schema)


def run(
    pipeline: Pipeline,
    session: SparkSession,
    *,
    mode: Mode = "auto",
    inputs: Mapping[str, DataFrame] | None = None,
    partitions: int | None = None,
    state: str | Path | None = None,
    duration_s: float | None = None,
    begin_from: str | Path | None = None,
    until_committed: bool = False,
    backfill: Span | tuple[Moment, Moment] | None = None,
) -> Result:
    """Run a pipeline on Spark, and return when its input has ended.

    `mode`: as one "batch", which needs an input with an end, or as a "stream", batch after batch;
    "auto": as a batch if it can be and no `state` is given. `inputs`: DataFrames whose rows come in
    the place of what sources read, by their names. `partitions`: into how many parts the work is
    divided (default: as Spark's own shuffles, 32 at most).
    `state`: folder of a stream, which driver and workers see. A stream that is there and has not
    ended goes on; without a folder a stream cannot be resumed. `duration_s`: the input of a stream
    ends then at the latest.

    `begin_from`: a savepoint, of a run on processes or of a stream here. `until_committed`: when
    the input of a stream ends, no window ends and no timer fires, and `state` has a savepoint.
    `backfill`: a batch of the tuples whose event times are in this span, which leaves a savepoint
    in `state`, such as ("2026-01-01", "2026-06-30").

    Raises `PipelineError` for what Spark cannot do, before anything starts, and `JobFailed` if the
    job fails, or too many tuples have become dead letters.
    """
    given = dict(inputs or {})
    if backfill is not None:
        span = backfill if isinstance(backfill, Span) else span_of(*backfill)
        others = (duration_s is None, begin_from is None, not until_committed, mode != "stream")
        if not all(others):
            raise PipelineError("a backfill is a batch, and takes of these options only state")
        return _backfill(pipeline, session, given, partitions, span, state)
    streams = state is not None or duration_s is not None or until_committed
    chosen = mode_of(pipeline, given, mode, streams)
    check(pipeline, given, bounded=chosen == "batch", connect=is_connect(session))
    parts = partitions_of(session, partitions)
    start = None if begin_from is None else Path(begin_from)
    if chosen == "batch":
        return _batch(pipeline, session, given, parts, opened(pipeline, start, given))
    report = stream(
        pipeline,
        session,
        given,
        partitions=parts,
        state=None if state is None else Path(state),
        duration_s=duration_s,
        begin_from=start,
        until_committed=until_committed,
    )
    return Result(report, pipeline)


def _backfill(
    pipeline: Pipeline,
    session: SparkSession,
    given: Mapping[str, DataFrame],
    partitions: int | None,
    span: Span,
    state: str | Path | None,
) -> Result:
    check_backfill(pipeline.operators, given)
    check(pipeline, given)
    path = savepoints.free_place(state)
    with StateFolder(path.parent).held() as folder:
        if folder.begun:
            raise StateError(
                f"state folder {str(folder.path)!r} holds a run on Spark; name another folder for "
                "the savepoint"
            )
        parts = partitions_of(session, partitions)
        return _batch(pipeline, session, given, parts, None, Leaving(folder, span))


@dataclass(frozen=True)
class Leaving:
    """What a backfill leaves, and where."""

    folder: StateFolder
    span: Span

    def save(self, pipeline: Pipeline, job: Job, done: DataFrame, report: SparkReport) -> None:
        """Raises `SavepointError`."""
        kept = frames.of_kinds(done, Kind.KEPT).orderBy("to", "bucket", "lane", "number")
        nothing_read = {name: Position() for name in sources_of(pipeline)}
        rows, counts = frames.rows_in(kept), report.operators
        path = self.folder.savepoint
        try:
            savepoints.write(path, pipeline, job, rows, nothing_read, counts, self.span)
        except OSError as error:
            raise SavepointError(
                f"the savepoint could not be written: {describe_refusal(error)}; {remedy(error)}, "
                "and begin the backfill again by the same command"
            ) from error


def mode_of(
    pipeline: Pipeline, given: Mapping[str, Any], mode: str, wants_stream: bool
) -> Literal["batch", "stream"]:
    if mode == "batch":
        if wants_stream:
            options = "state, duration_s and until_committed"
            raise PipelineError(f"{options} are for streams: mode='stream'")
        return "batch"
    if mode == "stream":
        return "stream"
    if mode != "auto":
        raise PipelineError(f"mode must be auto, batch or stream, got {mode!r}")
    streams = any(frame.isStreaming for frame in given.values())
    can_be = is_bounded(pipeline, given) and not streams
    return "batch" if can_be and not wants_stream else "stream"


def _batch(
    pipeline: Pipeline,
    session: SparkSession,
    given: Mapping[str, DataFrame],
    partitions: int,
    savepoint: Savepoint | None,
    backfill: Leaving | None = None,
) -> Result:
    span = None if backfill is None else backfill.span
    span = span if savepoint is None else savepoint.head.span
    job = job_of(pipeline, partitions=partitions, started_s=time.time(), paced=False, span=span)
    data, began = shipped(job), time.monotonic()
    rows = _input(session, pipeline, job, given, savepoint)
    if backfill is not None and (died := backfill.folder.backfill()) is not None:
        Targets(pipeline, died.tag).rewind(died.positions, 0)
    targets = Targets(pipeline, secrets.token_hex(4))
    targets.prepare(adds=savepoint is not None)  # from here on nothing refuses it
    report = SparkReport(pipeline.name, "batch", batches=1)
    with _whole(targets, None if backfill is None else backfill.folder):
        try:
            done = frames.carried_out(job, data, rows, ends=backfill is None)
            deliver(pipeline, job, done, targets, report)
            _write_tables(pipeline, job, done)
            report.wall_s = time.monotonic() - began
            report.judge(pipeline, ended=True)
            if backfill is not None and report.ok:
                backfill.save(pipeline, job, done, report)
        except Exception as error:
            raise JobFailed(told(error), report) from error
    if not report.ok:
        raise JobFailed(report.failure, report)
    return Result(report, pipeline, job, done)


@contextmanager
def _whole(targets: Targets, folder: StateFolder | None) -> Iterator[None]:
    """What a batch writes is taken back if it fails. If the driver of a backfill dies, the next
    one in its `folder` does that."""
    before = targets.positions()
    if folder is not None:
        folder.begin_backfill(BackfillRecord(targets.tag, before))
    try:
        yield
    except BaseException:
        targets.rewind(before, 0)
        raise
    finally:
        targets.close()
        if folder is not None:
            folder.end_backfill()


def check(
    pipeline: Pipeline,
    given: Mapping[str, object],
    *,
    bounded: bool = True,
    connect: bool = False,
) -> None:
    """Raise `PipelineError` if Spark cannot do it. `connect`: through Spark Connect."""
    pipeline.validate()
    for name in given:
        if name not in pipeline.operators:
            raise PipelineError(f"inputs: the pipeline has no source {name!r}")
    found = refusals(pipeline, given, bounded=bounded)
    if connect and not bounded:
        found.append(over_connect())
    if found:
        raise PipelineError(
            f"pipeline {pipeline.name!r} cannot run on Spark as it is: " + "; ".join(found)
        )


def partitions_of(session: SparkSession, wanted: int | None) -> int:
    if wanted is not None:
        if wanted < 1:
            raise PipelineError(f"partitions must be 1 or more, got {wanted}")
        return wanted
    usual = int(session.conf.get("spark.sql.shuffle.partitions") or 1)
    return max(1, min(usual, _PARTITIONS_MAX))


def sources_of(pipeline: Pipeline) -> dict[str, tuple[int, Source]]:
    """By name, with their places among the sources."""
    found = [(o.name, o.source) for o in pipeline.operators.values() if o.source is not None]
    return {name: (n, source) for n, (name, source) in enumerate(found)}


def _input(
    session: SparkSession,
    pipeline: Pipeline,
    job: Job,
    given: Mapping[str, DataFrame],
    savepoint: Savepoint | None,
) -> DataFrame:
    rows: list[Row] = [*state_rows(job, savepoint), *frames.begins(job)]
    begun = positions_of(pipeline, savepoint)
    tables: list[DataFrame] = []
    for name, (order, source) in sources_of(pipeline).items():
        frame = given.get(name)
        if frame is None and isinstance(source, SparkRows):
            frame = source.rows(session)
        if frame is not None:
            tables.append(frames.frame_of_table(frame, job.plan, name, order))
            continue
        ours = job.operators[job.plan.stations[name].operator].source
        assert ours is not None
        source.prepare()
        # Of a live run, splits may be parts of its time.
        left = begun[name].rest(name, source) if name in begun else ours.splits()
        splits = dict(enumerate(left))
        rows += frames.split_rows(job.plan, name, order, splits, job.partitions)
    frame_ = frames.frame_of_rows(session, rows)
    for table in tables:
        frame_ = frame_.unionAll(table)
    return frame_


def _write_tables(pipeline: Pipeline, job: Job, done: DataFrame) -> None:
    for operator in pipeline.operators.values():
        if isinstance(operator.sink, SparkTable):
            number = job.plan.stations[operator.name].number
            frame = frames.table_frame(done, number, operator.sink.schema)
            mode = "append" if operator.sink.append else "overwrite"
            frame.write.mode(mode).saveAsTable(operator.sink.name)
