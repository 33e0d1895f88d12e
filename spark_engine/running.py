"""`ab.spark.run(pipeline, session)`: carry out a pipeline as a job of Spark."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.runtime.ends import Source
from anabranch.runtime.graph import Pipeline, PipelineError
from anabranch.spark_bridge.sink import SparkCollect
from anabranch.spark_engine import frames
from anabranch.spark_engine.ends import SparkRows, SparkTable
from anabranch.spark_engine.failing import JobFailed, told
from anabranch.spark_engine.job import Job, job_of
from anabranch.spark_engine.refusing import refusals
from anabranch.spark_engine.report import SparkReport
from anabranch.spark_engine.rows import Kind, Row
from anabranch.spark_engine.shipping import shipped
from anabranch.spark_engine.targets import Targets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTITIONS_MAX = 32


@dataclass(frozen=True)
class Result:
    """`report`: what was counted. `frame(sink)`: what a sink of rows has got."""

    report: SparkReport
    _pipeline: Pipeline
    _job: Job
    _done: DataFrame

    def frame(self, sink: str) -> DataFrame:
        """What the sink made by `ab.spark.table` or `ab.spark.collect` has got, as a DataFrame."""
        operator = next((o for o in self._pipeline.operators.values() if o.name == sink), None)
        if operator is None or not isinstance(operator.sink, SparkTable | SparkCollect):
            raise PipelineError(f"{sink!r} is no sink made by ab.spark.table or ab.spark.collect")
        number = self._job.plan.stations[sink].number
        return frames.table_frame(self._done, number, operator.sink.schema)


def run(
    pipeline: Pipeline,
    session: SparkSession,
    *,
    inputs: Mapping[str, DataFrame] | None = None,
    partitions: int | None = None,
) -> Result:
    """Run a pipeline whose input has an end as a batch job, and return when it has ended.

    `inputs`: DataFrames whose rows come in the place of what sources read, by their names.
    `partitions`: into how many parts the work is divided (default: as Spark's own shuffles, 32 at
    most). Raises `PipelineError` for what Spark cannot do, before anything starts, and `JobFailed`
    if the job fails, or too many tuples have become dead letters.
    """
    given = dict(inputs or {})
    check(pipeline, given)
    job = job_of(
        pipeline,
        partitions=partitions_of(session, partitions),
        started_s=time.time(),
        paced=False,
    )
    data, began = shipped(job), time.monotonic()
    rows = _input(session, pipeline, job, given)
    targets = Targets(pipeline, secrets.token_hex(4))
    targets.prepare()  # from here on nothing refuses it
    report = SparkReport(pipeline.name, "batch", batches=1)
    try:
        done = frames.carried_out(job, data, rows, ends=True)
        deliver(pipeline, job, done, targets, report)
        _write_tables(pipeline, job, done)
    except Exception as error:
        raise JobFailed(told(error), report) from error
    finally:
        targets.close()
    report.wall_s = time.monotonic() - began
    report.judge(pipeline, ended=True)
    if not report.ok:
        raise JobFailed(report.failure, report)
    return Result(report, pipeline, job, done)


def check(pipeline: Pipeline, given: Mapping[str, object], *, bounded: bool = True) -> None:
    """Raise `PipelineError` if Spark cannot do it."""
    pipeline.validate()
    for name in given:
        if name not in pipeline.operators:
            raise PipelineError(f"inputs: the pipeline has no source {name!r}")
    found = refusals(pipeline, given, bounded=bounded)
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
    session: SparkSession, pipeline: Pipeline, job: Job, given: Mapping[str, DataFrame]
) -> DataFrame:
    rows: list[Row] = frames.begins(job)
    tables: list[DataFrame] = []
    for name, (order, source) in sources_of(pipeline).items():
        frame = given.get(name)
        if frame is None and isinstance(source, SparkRows):
            frame = source.frame if source.frame is not None else session.table(source.table)
        if frame is not None:
            tables.append(frames.frame_of_table(frame, job.plan, name, order))
            continue
        ours = job.operators[job.plan.stations[name].operator].source
        assert ours is not None
        source.prepare()
        splits = dict(enumerate(ours.splits()))
        rows += frames.split_rows(job.plan, name, order, splits, job.partitions)
    frame_ = frames.frame_of_rows(session, rows)
    for table in tables:
        frame_ = frame_.unionAll(table)
    return frame_


def deliver(
    pipeline: Pipeline, job: Job, done: DataFrame, targets: Targets, report: SparkReport
) -> None:
    """Put what the sinks have handed in, dead letters, and counts where they belong."""
    tables = [
        job.plan.stations[o.name].number
        for o in pipeline.operators.values()
        if isinstance(o.sink, SparkTable | SparkCollect)
    ]
    names = {s.number: s.operator for s in job.plan.stations.values() if not s.reads_time}
    for row in frames.rows_in(frames.of_kinds(done, Kind.COUNTS)):
        report.add(json.loads(row.data))
    wanted = frames.of_kinds(done, Kind.OUT, Kind.LETTERS, without=tables)
    targets.put(frames.rows_in(wanted), names)
    targets.flush()


def _write_tables(pipeline: Pipeline, job: Job, done: DataFrame) -> None:
    for operator in pipeline.operators.values():
        if isinstance(operator.sink, SparkTable):
            number = job.plan.stations[operator.name].number
            frame = frames.table_frame(done, number, operator.sink.schema)
            mode = "append" if operator.sink.append else "overwrite"
            frame.write.mode(mode).saveAsTable(operator.sink.name)
