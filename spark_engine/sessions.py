"""The Spark session of `anabranch run --on spark`: on this host, or of a cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anabranch.runtime.values.checks import PipelineError
from anabranch.spark_bridge.local_spark import check_packages, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL = re.compile(r"local(?:\[(\d+|\*)\])?")


@contextmanager
def session_for(master: str | None) -> Iterator[SparkSession]:
    """`master`: `local[N]`, `local[*]` (the default), or the address of a cluster's master.

    Raises `SparkUnavailable` if something is missing, and `PipelineError` for no such master."""
    local = _LOCAL.fullmatch(master or "local[*]")
    if local is not None:
        cores = os.cpu_count() or 1 if local[1] == "*" else int(local[1] or 1)
        if cores < 1:
            raise PipelineError(f"--on spark={master}: expected one core or more")
        with session("anabranch", cores) as spark:
            yield spark
        return
    if "://" not in (master or "") and master not in {"yarn"}:
        raise PipelineError(
            f"--on spark={master}: expected local[N], or the address of a master such as "
            "spark://host:7077, k8s://… or yarn"
        )
    check_packages()
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("anabranch").master(str(master)).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
