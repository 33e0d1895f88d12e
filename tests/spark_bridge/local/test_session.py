"""A Spark of one's own: quiet, local, gone at the end, and clear when it cannot be had."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.spark_bridge.errors import SparkUnavailable
from anabranch.spark_bridge.local.session import session, signals_later
from anabranch.spark_bridge.local.spark_home import make_home
from tests.runtime.processes import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_a_missing_package_is_named_with_the_way_to_get_it(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str, *args: Any) -> Any:
        return None if name == missing else real(name, *args)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    with (
        pytest.raises(SparkUnavailable, match=rf"{missing}.*pip install 'anabranch\[spark\]'"),
        session(),
    ):
        pass


def test_a_pyspark_without_spark_is_told_from_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").touch()
    for name in [n for n in sys.modules if n.partition(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with pytest.raises(SparkUnavailable, match="comes without Spark itself"):
        make_home(tmp_path)


def test_the_home_has_all_of_spark_but_its_python_and_its_voice(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    home = make_home(tmp_path)
    assert any((home / "jars").glob("spark-core_*.jar"))
    assert (home / "bin" / "spark-class").exists()
    assert not (home / "python").exists()
    assert os.access(home / "bin" / "spark-submit", os.X_OK)
    assert "rootLogger" in (home / "conf" / "log4j2.properties").read_text()


@pytest.mark.spark
def test_a_second_session_in_a_process_is_refused(spark: SparkSession) -> None:
    with pytest.raises(RuntimeError, match="has a Spark session already"), session():
        pass


@pytest.mark.spark
def test_only_this_machine_is_listened_to(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


STARTS_TWICE = f"""
import os, sys
from anabranch.spark_bridge.local import session as sessions
from anabranch.spark_bridge.local.session import session
sessions.STOP_TIMEOUT_S = {PATIENCE_S}  # on a busy machine Java needs longer to end than is granted
before = dict(os.environ)
with session("first") as spark:
    process = spark.sparkContext._gateway.proc
    spark.readStream.format("rate").load().writeStream.format("noop").start()
assert process.returncode == 0, process.returncode
assert dict(os.environ) == before
with session("second") as spark:
    assert spark.range(3).count() == 3
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("spark")  # skipped with it
def test_a_session_is_silent_leaves_nothing_and_can_be_started_again(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", STARTS_TWICE],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert [p.name for p in tmp_path.iterdir()] == ["tmp"]
    assert [p.name for p in (tmp_path / "tmp").iterdir() if "anabranch" in p.name] == []


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_spark_that_does_not_start_shows_what_it_said(tmp_path: Path) -> None:
    code = (
        "from anabranch.spark_bridge.local.session import session\n"
        "two = '-XX:+UseSerialGC -XX:+UseParallelGC'\n"
        "with session(conf={'spark.driver.extraJavaOptions': two}): pass\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=tmp_path,
    )
    assert ran.returncode == 1
    assert "SparkUnavailable: Spark did not start" in ran.stderr
    assert "Multiple garbage collectors selected" in ran.stderr


class Signalled(Exception):
    """What a handler of these tests raises."""


def signalled(number: signal.Signals, times: int, reached: list[int]) -> None:
    """So many signals come while a JVM starts."""
    with signals_later():
        for _ in range(times):
            signal.raise_signal(number)
        reached.append(times)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_wait_until_a_jvm_that_starts_is_known(
    number: signal.Signals,
) -> None:
    def act(*_: object) -> None:
        raise Signalled

    reached = list[int]()
    before = signal.signal(number, act)
    try:
        for times in (1, 2):
            with pytest.raises(Signalled):
                signalled(number, times, reached)
            assert signal.getsignal(number) is act
    finally:
        signal.signal(number, before)
    assert reached == [1, 2]
