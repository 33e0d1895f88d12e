"""The gateway of a real run is killed again and again while a real Spark feeds and collects."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.spark_bridge import finish, release, wait
from anabranch.spark_bridge.client import GatewayLost
from anabranch.spark_bridge.places import GATEWAY_FILE
from tests.runtime.processes import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes by /proc"),
]


FILES = 24
LINES = 50
KILLS = 4
TIMEOUT_S = PATIENCE_S
PIPELINE = """
import anabranch as ab

pipeline = ab.Pipeline("shout")
lines = pipeline.source("lines", ab.spark.feed("lines", state={state!r}))
loud = lines.map("upper", str.upper)
loud.sink("out", ab.spark.collect("loud", "text string", state={state!r}))
"""


class Shout:
    """`anabranch run` of a pipeline between two ends of Spark."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "shout.state"
        self.report = folder / "report.json"
        self.killed: set[int] = set()
        script = folder / "shout.py"
        script.write_text(PIPELINE.format(state=str(self.state)))
        command = [sys.executable, "-m", "anabranch.cli", "run", str(script), "--report"]
        self.process = subprocess.Popen(
            [*command, str(self.report)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        until(lambda: (self.state / GATEWAY_FILE).exists() or self.process.poll() is not None)
        assert self.process.poll() is None, self.process.communicate()[0]

    def kill_gateway(self) -> None:
        """One that has not been killed yet."""
        while not (pids := set(self._gateways()) - self.killed):
            time.sleep(0.01)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.killed |= pids

    def _gateways(self) -> Iterator[int]:
        """Processes of the run by that name."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                head, _, rest = stat.read_text().rpartition(")")
            except OSError:
                continue
            _state, _parent, _group, session, *_ = rest.split()
            if head.endswith("(ab:service0") and int(session) == self.process.pid:
                yield int(stat.parent.name)

    def end(self) -> dict[str, Any]:
        output, _ = self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0, output
        report: dict[str, Any] = json.loads(self.report.read_text())
        return report


@pytest.fixture
def shout(tmp_path: Path) -> Iterator[Shout]:
    running = Shout(tmp_path)
    yield running
    if running.process.poll() is None:
        running.process.kill()
    running.process.communicate()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@contextmanager
def kills(shout: Shout, seed: int) -> Iterator[threading.Event]:
    """In a thread beside; the event is set when there have been enough."""
    dice = random.Random(seed)
    enough, over = threading.Event(), threading.Event()

    def go() -> None:
        for _ in range(KILLS):
            if over.wait(dice.uniform(0.5, 2.0)):
                return
            shout.kill_gateway()
        enough.set()

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield enough
    finally:
        over.set()
        thread.join()


def insist(start: Callable[[], StreamingQuery]) -> None:
    """Start the query again from its checkpoint until it has ended by itself, as its owner would:
    tasks are tried again by Spark, a commit that finds its parts missing is not."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        query = start()
        try:
            assert query.awaitTermination(TIMEOUT_S), "the query does not end"
            return
        except Exception:
            if time.monotonic() > deadline:
                raise


def repeat(work: Callable[[], None]) -> None:
    """Over deaths of the gateway in the middle of an answer."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return work()
        except GatewayLost:
            if time.monotonic() > deadline:
                raise


def test_every_row_arrives_once_while_the_gateway_is_killed(
    spark: SparkSession, shout: Shout, tmp_path: Path
) -> None:
    texts, out = tmp_path / "texts", tmp_path / "out"
    texts.mkdir()
    expected = [f"LINE {n}" for n in range(FILES * LINES)]

    def add(file: int) -> None:
        draft = texts / f".{file}"
        numbers = range(file * LINES, (file + 1) * LINES)
        draft.write_text("".join(f"line {n}\n" for n in numbers))
        draft.rename(texts / f"{file}.txt")

    def feed() -> StreamingQuery:
        reader = spark.readStream.format("text").option("maxFilesPerTrigger", 1)
        writer = reader.load(str(texts)).writeStream.format("anabranch").option("stream", "lines")
        return (
            writer.option("run", str(shout.state))
            .option("checkpointLocation", str(tmp_path / "feed"))
            .trigger(availableNow=True)
            .start()
        )

    def collect() -> StreamingQuery:
        reader = spark.readStream.format("anabranch").option("stream", "loud")
        frame = reader.option("run", str(shout.state)).option("maxRowsPerTrigger", 200).load()
        writer = frame.writeStream.format("parquet").option("path", str(out))
        return (
            writer.option("checkpointLocation", str(tmp_path / "collect"))
            .trigger(availableNow=True)
            .start()
        )

    with kills(shout, 1) as enough:
        file = 0
        while not enough.is_set() or file < FILES:
            for _ in range(4):
                if file < FILES:
                    add(file)
                    file += 1
            insist(feed)
            insist(collect)
    repeat(lambda: finish(shout.state, "lines"))
    shout.kill_gateway()
    repeat(lambda: wait(shout.state))
    shout.kill_gateway()  # while it lingers
    insist(collect)
    found = [row["text"] for row in spark.read.parquet(str(out)).collect()]
    assert sorted(found) == sorted(expected)
    repeat(lambda: release(shout.state))
    report = shout.end()
    events = [e["kind"] for e in report["events"] if e["instance"] == "service spark"]
    happened = [kind for kind in events if kind != "dies_often"]
    assert happened.count("died") == len(shout.killed) == KILLS + 2
    # A gateway that was killed before it was at work has resumed nothing.
    resumed_after = [before for before, kind in pairwise(["", *happened]) if kind == "resumed"]
    assert set(resumed_after) == {"died"}
    assert happened[-1] == "resumed"
