"""A Spark of one's own on this machine: quiet, bound to 127.0.0.1, and surely gone at the end."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from anabranch.spark_bridge.errors import SparkUnavailable
from anabranch.spark_bridge.local.java import find_java
from anabranch.spark_bridge.local.spark_home import LOG_VARIABLE, make_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYSPARK_MIN = (4, 2)
"""Admission control and Arrow writers of streams are as new as that."""
STOP_TIMEOUT_S = 20.0
_TASK_ATTEMPTS = 4
_LOG_TAIL_LINES = 20
_CHECKPOINT_CLASS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_DROPPED_VARIABLES = ("SPARK_REMOTE", "SPARK_CONNECT_MODE", "PYSPARK_GATEWAY_PORT")


@contextlib.contextmanager
def session(
    app_name: str = "anabranch",
    cores: int = 2,
    *,
    conf: Mapping[str, Any] | None = None,
    log: str | Path | None = None,
) -> Iterator[SparkSession]:
    """A Spark session for a `with` block; everything of it ends with the block.

    `conf`: settings of Spark that go before ours. `log`: file for what Spark says (default: a
    temporary one, whose end is shown if Spark does not start). Raises `SparkUnavailable` if
    PySpark, PyArrow or Java is missing, saying how to get it, and `RuntimeError` if this
    process has a Spark already.
    """
    check_packages()
    folder = Path(tempfile.mkdtemp(prefix="anabranch-spark-"))
    log_path = Path(log).absolute() if log is not None else folder / "spark.log"
    try:
        with _environment(_variables(folder, log_path)):
            spark = _start(_settings(app_name, cores, folder, conf or {}), log_path)
            try:
                yield spark
            finally:
                _stop(spark)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def require_packages() -> None:
    """Raise `SparkUnavailable` if one is not installed."""
    for package in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            raise SparkUnavailable(
                f"Spark needs the package {package}, which is not installed. "
                "Get it with `pip install 'anabranch[spark]'`."
            )


def check_packages() -> None:
    require_packages()
    import pyspark

    version = tuple(int(n) for n in pyspark.__version__.split(".")[:2])
    if version < PYSPARK_MIN:
        raise SparkUnavailable(
            f"pyspark {pyspark.__version__} is too old for the bridge. "
            "Get a newer one with `pip install -U 'anabranch[spark]'`."
        )
    if pyspark.SparkContext._active_spark_context is not None:
        raise RuntimeError(
            "this process has a Spark session already; use that one "
            "(format('anabranch') works in any), or stop it first"
        )


def _variables(folder: Path, log: Path) -> dict[str, str]:
    home = make_home(folder)
    return {
        "JAVA_HOME": str(find_java()),
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(home / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # The JVM that only works out the command line of the real one need not be optimised.
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        LOG_VARIABLE: str(log),
    }


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set for the JVM and its Python processes; as before afterwards."""
    names = [*variables, *_DROPPED_VARIABLES]
    before = {name: os.environ.get(name) for name in names}
    for name in _DROPPED_VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _settings(app_name: str, cores: int, folder: Path, conf: Mapping[str, Any]) -> dict[str, str]:
    ours = {
        "spark.app.name": app_name,
        "spark.master": f"local[{cores},{_TASK_ATTEMPTS}]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.default.parallelism": str(cores),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.streaming.stopTimeout": f"{STOP_TIMEOUT_S:.0f}s",
    }
    if importlib.util.find_spec("pandas") is None:
        # Otherwise every Python UDF warns that it cannot use Arrow.
        ours["spark.sql.execution.pythonUDF.arrow.enabled"] = "false"
    return {**ours, **{name: str(value) for name, value in conf.items()}}


def _start(settings: Mapping[str, str], log: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with signals_later():
            spark: SparkSession = builder.getOrCreate()
    except BaseException as error:
        _end_jvm()
        if isinstance(error, Exception):
            raise SparkUnavailable(f"Spark did not start: {error}\n{_tail(log)}") from error
        raise
    try:
        _use_quick_checkpoints(spark, settings)
        # PySpark's own search does not see an editable install.
        from anabranch.spark_bridge.datasource import AnabranchDataSource

        spark.dataSource.register(AnabranchDataSource)
    except BaseException:
        _stop(spark)
        raise
    return spark


@contextlib.contextmanager
def signals_later() -> Iterator[None]:
    """Ctrl-C acts when the block is done, however often it comes, and so does SIGTERM if it has a
    handler: a JVM that only starts is not known here yet, and would stay when this process has
    gone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in handlers.items() if callable(handler)}
    came: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        came.append(signum)

    for number in before:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            if (
                signal.getsignal(number) is note
            ):  # PySpark has its own of Ctrl-C from some moment on
                signal.signal(number, handler)
    if came:
        before[signal.Signals(came[0])](came[0], None)


def _use_quick_checkpoints(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """On a local disk Spark forks processes to write each checkpoint file, 100 ms a batch.

    Another class of its own does without, and is as safe against a kill. It is internal, so it
    is used only if this Spark has it and the user did not choose.
    """
    chosen = "spark.sql.streaming.checkpointFileManagerClass"
    if chosen in settings:
        return
    try:
        spark._jvm.java.lang.Class.forName(_CHECKPOINT_CLASS)  # type: ignore[union-attr]
        spark.conf.set(chosen, _CHECKPOINT_CLASS)
        spark.conf.set("spark.sql.streaming.checkpoint.fileChecksum.enabled", "false")
    except Exception:
        spark.conf.unset(chosen)


def _stop(spark: SparkSession) -> None:
    """End queries, session and JVM, each even if the one before made trouble."""
    with contextlib.suppress(Exception):
        for query in spark.streams.active:
            with contextlib.suppress(Exception):
                query.stop()
    with contextlib.suppress(Exception):
        spark.stop()
    _end_jvm()


def _end_jvm() -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    if gateway is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return
    with contextlib.suppress(OSError):
        assert process.stdin is not None
        process.stdin.close()  # the JVM ends when this pipe does
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-_LOG_TAIL_LINES:])
