"""A real Spark feeds a pipeline, and repeats itself as Spark does."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.spark_bridge import finish, write
from tests.runtime.processes import PATIENCE_S
from tests.spark_bridge.threaded import GatewayThread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


class Lines:
    """Text files of numbered lines, and a query from them to the gateway."""

    def __init__(self, spark: SparkSession, gateway: GatewayThread, tmp_path: Path) -> None:
        self.spark = spark
        self.gateway = gateway
        self.folder = tmp_path / "lines"
        self.folder.mkdir()
        self.checkpoint = tmp_path / "checkpoint"
        self.expected: list[str] = []

    def add(self, name: str, count: int = 500) -> None:
        lines = [f"{name} {n}" for n in range(count)]
        draft = self.folder / f".{name}"
        draft.write_text("".join(f"{line}\n" for line in lines))
        draft.rename(self.folder / f"{name}.txt")
        self.expected.extend(lines)

    def frame(self) -> DataFrame:
        reader = self.spark.readStream.format("text").option("maxFilesPerTrigger", 2)
        return reader.load(str(self.folder))

    def start(self, frame: DataFrame | None = None) -> StreamingQuery:
        writer = (frame if frame is not None else self.frame()).writeStream.format("anabranch")
        return (
            writer.option("run", self.gateway.run)
            .option("stream", "lines")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def run(self, frame: DataFrame | None = None) -> None:
        query = self.start(frame)
        assert query.awaitTermination(60), "the query does not end"

    def forget_last_commit(self) -> None:
        """As if Spark had been killed between the gateway's commit and its own."""
        last = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)

    def check(self) -> None:
        assert sorted(self.gateway.rows("lines")) == sorted(self.expected)


@pytest.fixture
def lines(spark: SparkSession, gateway: GatewayThread, tmp_path: Path) -> Lines:
    return Lines(spark, gateway, tmp_path)


def test_every_line_arrives_once_in_several_batches(lines: Lines) -> None:
    for name in "abcde":
        lines.add(name)
    lines.run()
    lines.check()
    assert lines.gateway.status().feed.batches_committed == 3


def test_a_batch_repeated_after_a_restart_from_the_checkpoint_is_recognised(lines: Lines) -> None:
    for name in "abc":
        lines.add(name)
    lines.run()
    lines.forget_last_commit()
    lines.add("d")
    lines.run()
    lines.check()
    counts = lines.gateway.status().feed
    assert counts.batches_repeated == 1
    assert counts.parts_skipped >= 1


def test_a_new_checkpoint_is_a_new_query(lines: Lines, tmp_path: Path) -> None:
    lines.add("a")
    lines.run()
    lines.checkpoint = tmp_path / "another"
    lines.run()
    assert sorted(lines.gateway.rows("lines")) == sorted(lines.expected * 2)


def test_a_task_that_failed_after_sending_is_run_again_without_a_trace(lines: Lines) -> None:
    from pyspark.sql.functions import udf

    lines.add("a", 25_000)  # several Arrow batches

    def stumble(line: str) -> str:
        """Fails in the first attempt of the task, near its end."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if line == "a 24999" and context.attemptNumber() == 0:
            raise RuntimeError("stumbled")
        return line

    stumbling = udf(stumble, "string", useArrow=False)
    lines.run(lines.frame().select(stumbling("value").alias("value")))
    lines.check()
    assert lines.gateway.status().feed.parts_begun == 2


def test_a_task_that_fails_while_it_sends_is_run_again(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the gateway is the one who stumbles: it cuts the first connection that sends rows."""
    from anabranch.spark_bridge.receiving import Receiver

    lines.add("a", 3000)
    stumbled = threading.Event()
    real = Receiver.take

    def take(self: Receiver, body: bytes) -> Any:
        if not stumbled.is_set():
            stumbled.set()
            raise ConnectionResetError("stumbled")
        return real(self, body)

    monkeypatch.setattr(Receiver, "take", take)
    lines.run()
    assert stumbled.is_set()
    lines.check()


def test_a_commit_that_fails_fails_the_query_and_a_restart_makes_it_good(lines: Lines) -> None:
    lines.add("a")
    lines.gateway.board.failing = True  # the batch is committed, but the commit raises
    with pytest.raises(Exception, match="the board is not there"):
        lines.run()
    lines.gateway.board.failing = False
    lines.add("b")
    lines.run()
    lines.check()
    assert lines.gateway.status().feed.batches_repeated == 1


def test_a_query_stopped_in_the_middle_of_a_batch_goes_on_later(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.spark_bridge.feeding import Feed

    lines.add("a", 3000)
    staging = threading.Event()

    def is_behind(self: Feed, stream: str) -> bool:
        staging.set()
        return True  # the task waits

    with monkeypatch.context() as patch:
        patch.setattr(Feed, "is_behind", is_behind)
        query = lines.start()
        assert staging.wait(PATIENCE_S)
        query.stop()
    assert lines.gateway.rows("lines") == []
    lines.run()
    lines.check()


def test_a_gateway_that_comes_back_elsewhere_is_found_and_knows_all(lines: Lines) -> None:
    lines.add("a")
    lines.run()
    lines.gateway.stop()
    lines.gateway.start()
    lines.forget_last_commit()
    lines.add("b")
    lines.run()
    lines.check()
    assert lines.gateway.status().feed.batches_repeated == 1


def test_a_batch_write_ends_the_input_when_told_so(
    spark: SparkSession, gateway: GatewayThread
) -> None:
    frame = spark.range(100).selectExpr("id", "cast(id as string) as text")
    write(frame, gateway.run, "rows", final=True)
    assert gateway.board.ended == ["rows"]
    found = sorted(gateway.rows("rows"), key=lambda row: row["id"])
    assert found == [{"id": n, "text": str(n)} for n in range(100)]


def test_a_named_write_is_done_once(spark: SparkSession, gateway: GatewayThread) -> None:
    frame = spark.range(10)
    for _ in range(2):
        write(frame, gateway.run, "rows", writeId="load of today")
    write(frame, gateway.run, "rows", writeId="load of tomorrow")
    assert sorted(gateway.rows("rows")) == sorted([*range(10), *range(10)])


def test_an_empty_table_is_written_and_ends_the_input(
    spark: SparkSession, gateway: GatewayThread
) -> None:
    write(spark.createDataFrame([], "a string"), gateway.run, "rows", final=True)
    assert gateway.rows("rows") == []
    assert gateway.board.ended == ["rows"]


def test_rows_larger_than_a_frames_good_size_arrive(
    spark: SparkSession, gateway: GatewayThread
) -> None:
    frame = spark.range(6).selectExpr("repeat(cast(id as string), 5000000) as text")
    write(frame.coalesce(1), gateway.run, "rows")
    assert gateway.rows("rows") == [str(n) * 5_000_000 for n in range(6)]


def test_text_that_is_no_utf8_does_not_stop_the_query(lines: Lines) -> None:
    (lines.folder / "bad.txt").write_bytes(b"good\nb\xffd\nfine\n")
    lines.run()
    assert lines.gateway.rows("lines") == ["good", "fine"]


def test_mistakes_are_told_clearly(
    lines: Lines, spark: SparkSession, gateway: GatewayThread
) -> None:
    frame = spark.range(1)
    with pytest.raises(Exception, match="did you mean 'writeId'"):
        write(frame, gateway.run, "rows", writId="x")
    with pytest.raises(Exception, match="use mode"):
        frame.write.format("anabranch").mode("overwrite").option("stream", "s").save()
    address = gateway._running.place.addresses[0]
    with pytest.raises(Exception, match="token is not this run's"):
        write(frame, address, "rows", token="guess")
    finish(gateway.run, "rows")
    with pytest.raises(Exception, match="declared finished"):
        write(frame, gateway.run, "rows")
