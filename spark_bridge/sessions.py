"""Where `--on spark[=MASTER]` leads to: a session of Spark on this host, or of a cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anabranch.runtime.values.checks import PipelineError
from anabranch.spark_bridge.errors import SparkUnavailable
from anabranch.spark_bridge.local.session import check_packages, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINE = "spark"
ALL_CORES = "local[*]"
_LOCAL = re.compile(r"local(?:\[(\d+|\*)\])?")


def master_of(text: str, default: str = ALL_CORES) -> str:
    """What `spark` or `spark=MASTER` names. Raises `PipelineError`."""
    engine, equals, master = text.partition("=")
    if engine != ENGINE or (equals and not master):
        raise PipelineError(
            f"--on {text!r}: expected spark, or spark=MASTER such as spark=local[4] or "
            "spark=spark://host:7077"
        )
    return master or default


@contextmanager
def session_for(master: str, app_name: str = "anabranch") -> Iterator[SparkSession]:
    """`master`: `local[N]`, `local[*]`, or the address of a cluster's master.

    Raises `SparkUnavailable` if something is missing or the cluster is not there, and
    `PipelineError` for no such master."""
    local = _LOCAL.fullmatch(master)
    if local is not None:
        cores = os.cpu_count() or 1 if local[1] == "*" else int(local[1] or 1)
        if cores < 1:
            raise PipelineError(f"--on spark={master}: expected one core or more")
        with session(app_name, cores) as spark:
            yield spark
        return
    if "://" not in master and master not in {"yarn"}:
        raise PipelineError(
            f"--on spark={master}: expected local[N], or the address of a master such as "
            "spark://host:7077, k8s://… or yarn"
        )
    check_packages()
    from pyspark.sql import SparkSession

    try:
        spark = SparkSession.builder.appName(app_name).master(master).getOrCreate()
    except Exception as error:
        raise SparkUnavailable(f"no session at {master}: {error}") from error
    try:
        yield spark
    finally:
        spark.stop()
