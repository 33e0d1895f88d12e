"""What a job has computed goes from Spark to where it belongs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.spark_bridge.sink import SparkCollect
from anabranch.spark_engine import frames
from anabranch.spark_engine.ends import SparkTable
from anabranch.spark_engine.job import Job
from anabranch.spark_engine.report import SparkReport
from anabranch.spark_engine.rows import Kind
from anabranch.spark_engine.targets import Targets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
