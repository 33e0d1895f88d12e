"""Jobs on a Spark cluster: one task per seed, what they give in their order, and as Parquet.

A job has a `seed` and a method `run`. Workers import what jobs are made of, so Anabranch must be
installed where they run.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.spark_bridge.errors import SparkUnavailable
from anabranch.spark_bridge.sessions import is_connect, session_for

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

LOCAL = "local[2]"
WAVE_TASKS = 4
_COLUMNS = "task int, data binary"


@dataclass(frozen=True)
class OverSpark:
    """Calls `run()` of jobs on the cluster at `master`, jobs of one `seed` in one task.

    `master`: as Spark writes it: `local[2]` on this machine, `spark://host:7077` elsewhere.
    Raises `SparkUnavailable` if PySpark, PyArrow or Java is missing, or the cluster is not there.
    """

    master: str = LOCAL

    def __call__(self, jobs: Sequence[Any], progress: Callable[[int, int], None]) -> list[Any]:
        with session_for(self.master, "anabranch experiment") as spark:
            found = run_on(spark, jobs)
        progress(len(jobs), len(jobs))
        return found


def run_on(spark: SparkSession, jobs: Sequence[Any]) -> list[Any]:
    """What the jobs give, in their order."""
    import pyarrow as pa
    from pyspark import cloudpickle
    from pyspark.sql.functions import col

    tasks: dict[int, list[int]] = {}
    for number, job in enumerate(jobs):
        tasks.setdefault(job.seed, []).append(number)
    shipped = [
        cloudpickle.dumps([jobs[number] for number in task])  # type: ignore[no-untyped-call]
        for task in tasks.values()
    ]
    schema = pa.schema([("task", pa.int32()), ("data", pa.binary())])
    rows = pa.table([range(len(shipped)), shipped], schema=schema)
    frame = spark.createDataFrame(rows, schema=_COLUMNS)
    spread = frame.repartitionById(max(1, len(shipped)), col("task"))
    done = spread.mapInArrow(_run_tasks, _COLUMNS).collect()
    found = {row["task"]: pickle.loads(row["data"]) for row in done}
    by_job = {
        number: result
        for task, numbers in enumerate(tasks.values())
        for number, result in zip(numbers, found[task], strict=True)
    }
    return [by_job[number] for number in range(len(jobs))]


def in_waves(spark: SparkSession, jobs: Iterator[Any]) -> Iterator[Any]:
    """What each job gives. They are taken as they are needed: so many at once that each core of the
    cluster has some, and a long one among them does not keep the others waiting for long."""
    # A session of Spark Connect does not know how many cores there are.
    own = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    cores = own if is_connect(spark) else spark.sparkContext.defaultParallelism
    wave = WAVE_TASKS * max(1, cores)
    while some := [*itertools.islice(jobs, wave)]:
        yield from run_on(spark, some)


def _run_tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        for task, data in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            given = pickle.dumps([job.run() for job in pickle.loads(data)])
            yield pa.record_batch(
                [pa.array([task], pa.int32()), pa.array([given], pa.binary())],
                names=["task", "data"],
            )


def write_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """A table with one row per run as a Parquet file. Raises `SparkUnavailable` without PyArrow."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise SparkUnavailable(
            "results as Parquet need the package pyarrow: pip install 'anabranch[spark]'"
        ) from None
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path)
