"""Where `--on spark[=MASTER]` leads to: a session of Spark on this host, of a cluster, or of a
server of Spark Connect."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from anabranch.runtime.values.checks import PipelineError
from anabranch.spark_bridge.errors import SparkUnavailable
from anabranch.spark_bridge.local.session import check_packages, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINE = "spark"
ALL_CORES = "local[*]"
CONNECT = "sc://"
STANDALONE = "spark://"
_MASTER_PORT = 7077
_CONNECT_PORT = 15002
_CONNECT_PACKAGES = ("grpc", "grpc_status", "google.rpc")
_ANSWER_S = 10.0
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


def is_connect(session: Any) -> bool:
    """Whether it is one of Spark Connect, where Spark itself is another process's."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def is_local(master: str) -> bool:
    """Whether Spark is started for it on this host, and ends with the session."""
    return _LOCAL.fullmatch(master) is not None


@contextmanager
def session_for(master: str, app_name: str = "anabranch") -> Iterator[SparkSession]:
    """`master`: `local[N]`, `local[*]`, or the address of a cluster's master, or of a server of
    Spark Connect.

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
            "spark://host:7077, sc://host, k8s://… or yarn"
        )
    check_packages()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    if master.startswith(CONNECT):
        _check_connect(master)
        builder = builder.remote(master)
    else:
        _check_standalone(master)
        builder = builder.master(master)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        raise SparkUnavailable(f"no session at {master}: {error}") from error
    try:
        yield spark
    finally:
        spark.stop()


def _check_connect(address: str) -> None:
    """Raise `SparkUnavailable` if packages are missing or nothing answers: the client itself would
    try for minutes."""
    for package in _CONNECT_PACKAGES:
        if not _is_there(package):
            raise SparkUnavailable(
                f"Spark Connect needs the package {package}, which is not installed. "
                "Get it with `pip install 'pyspark[connect]'`."
            )
    parts = urlsplit(address)
    try:
        host, port = parts.hostname or "", parts.port or _CONNECT_PORT
        socket.create_connection((host, port), _ANSWER_S).close()
    except (OSError, ValueError) as error:
        raise SparkUnavailable(
            f"no server of Spark Connect answers at {address} ({error}); start one with Spark's "
            "sbin/start-connect-server.sh"
        ) from None


def _check_standalone(master: str) -> None:
    """Raise `SparkUnavailable` if `master` names masters of a cluster of Spark's own, and none of
    them answers: Spark itself would try for a minute, and then tell something else."""
    if not master.startswith(STANDALONE):
        return
    reason: Exception | None = None
    for address in master.removeprefix(STANDALONE).split(","):
        try:
            parts = urlsplit(f"//{address}")
            place = parts.hostname or "", parts.port or _MASTER_PORT
            socket.create_connection(place, _ANSWER_S).close()
            return
        except (OSError, ValueError) as error:
            reason = error
    raise SparkUnavailable(
        f"no master of Spark answers at {master} ({reason}); start one with Spark's "
        "sbin/start-master.sh"
    )


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
