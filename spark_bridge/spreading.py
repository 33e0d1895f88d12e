"""Runs of an experiment on a Spark cluster: one task per seed, their figures as Parquet.

Workers import what jobs are made of, so Anabranch must be installed where they run.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.spark_bridge import local_spark
from anabranch.spark_bridge.errors import SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[2]"
_LOCAL = re.compile(r"local\[(\d+)\]|local")


@dataclass(frozen=True)
class OverSpark:
    """Calls `run()` of jobs on the cluster at `master`, jobs of one `seed` in one task.

    `master`: as Spark writes it: `local[2]` on this machine, `spark://host:7077` elsewhere.
    Raises `SparkUnavailable` if PySpark, PyArrow or Java is missing, or the cluster is not there.
    """

    master: str = LOCAL

    def __call__(self, jobs: Sequence[Any], progress: Callable[[int, int], None]) -> list[Any]:
        tasks: dict[int, list[int]] = {}
        for i, job in enumerate(jobs):
            tasks.setdefault(job.seed, []).append(i)
        parts = [[jobs[i] for i in some] for some in tasks.values()]
        with session_at(self.master) as spark:
            distributed = spark.sparkContext.parallelize(parts, max(1, len(parts)))
            found = distributed.map(_run_all).collect()
        progress(len(jobs), len(jobs))
        by_job = {
            i: result
            for some, results in zip(tasks.values(), found, strict=True)
            for i, result in zip(some, results, strict=True)
        }
        return [by_job[i] for i in range(len(jobs))]


def _run_all(jobs: Sequence[Any]) -> list[Any]:
    return [job.run() for job in jobs]


@contextlib.contextmanager
def session_at(master: str) -> Iterator[SparkSession]:
    """A session of one's own on this machine, or one at a cluster, for a `with` block."""
    local = _LOCAL.fullmatch(master)
    if local is not None:
        with local_spark.session("anabranch experiment", int(local[1] or 1)) as spark:
            yield spark
        return
    local_spark.check_packages()
    from pyspark.sql import SparkSession

    try:
        spark = SparkSession.builder.appName("anabranch experiment").master(master).getOrCreate()
    except Exception as error:
        raise SparkUnavailable(f"no session at {master}: {error}") from error
    try:
        yield spark
    finally:
        spark.stop()


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
