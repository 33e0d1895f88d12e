"""The pipeline and the session of docs/spark.md, as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import anabranch as ab
from anabranch.spark_bridge.places import GATEWAY_FILE
from tests.runtime.processes import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
PIPELINE, SESSION = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TIMEOUT_S = PATIENCE_S


def test_spark_feeds_the_pipeline_of_the_page_and_collects_from_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shout.py").write_text(PIPELINE)
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("so much\ndepends\n")

    @contextmanager
    def of_the_tests(_: str) -> Iterator[SparkSession]:
        """One session serves all tests; a second one would end with it."""
        yield spark

    monkeypatch.setattr(ab.spark, "session", of_the_tests)
    here = SESSION.replace('"texts"', repr(str(tmp_path / "texts")))
    for name in ("shout.state", "feed.checkpoint", "collect.checkpoint", "loud.parquet"):
        here = here.replace(f'"{name}"', repr(str(tmp_path / name)))  # a JVM has its own folder
    with subprocess.Popen(
        [sys.executable, "-m", "anabranch.cli", "run", "shout.py"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as running:  # fmt: skip
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while not (tmp_path / "shout.state" / GATEWAY_FILE).exists():
                assert time.monotonic() < deadline
                assert running.poll() is None
                time.sleep(0.02)
            exec(compile(here, "docs/spark.md", "exec"), {})
            told, _ = running.communicate(timeout=TIMEOUT_S)
        finally:
            running.kill()
    assert running.returncode == 0, told
    rows = spark.read.parquet(str(tmp_path / "loud.parquet")).collect()
    assert sorted(row["text"] for row in rows) == ["DEPENDS", "SO MUCH"]
