"""A real Spark collects the results of a pipeline."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.spark_bridge import read
from tests.spark_bridge.support import until
from tests.spark_bridge.threaded import GatewayThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.spark

Row = tuple[str, int]


def results(first: int, end: int) -> list[Row]:
    return [(f"row {n}", n) for n in range(first, end)]


class Collector:
    """A query from the gateway to Parquet."""

    def __init__(self, spark: SparkSession, gateway: GatewayThread, tmp_path: Path) -> None:
        self.spark = spark
        self.gateway = gateway
        self.out = tmp_path / "out"
        self.checkpoint = tmp_path / "checkpoint"

    def prepare(self, **options: object) -> DataStreamWriter:
        reader = self.spark.readStream.format("anabranch").option("run", self.gateway.run)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        frame = reader.option("stream", "out").load()
        writer = frame.writeStream.format("parquet").option("path", str(self.out))
        return writer.option("checkpointLocation", str(self.checkpoint))

    def run(self, **options: object) -> None:
        query = self.prepare(**options).trigger(availableNow=True).start()
        assert query.awaitTermination(60), "the query does not end"
        self.batches = [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]

    def found(self) -> list[Row]:
        rows = self.spark.read.parquet(str(self.out)).orderBy("n").collect()
        return [(row["text"], row["n"]) for row in rows]

    def forget_last_commit(self) -> None:
        last = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def collector(spark: SparkSession, gateway: GatewayThread, tmp_path: Path) -> Collector:
    return Collector(spark, gateway, tmp_path)


def test_a_stream_collects_every_row_once_over_several_runs(collector: Collector) -> None:
    collector.gateway.write("out", results(0, 1000), "sink.0")
    collector.gateway.write("out", results(1000, 1500), "sink.1")
    collector.run()
    assert collector.found() == results(0, 1500)
    collector.gateway.write("out", results(1500, 2000), "sink.2")
    collector.run()
    assert collector.found() == results(0, 2000)


def test_a_micro_batch_takes_no_more_than_its_bound_fairly_from_all_parts(
    collector: Collector,
) -> None:
    collector.gateway.write("out", results(0, 900), "sink.0")
    collector.gateway.write("out", results(900, 1000), "sink.1")
    collector.run(maxRowsPerTrigger=400)
    assert collector.found() == results(0, 1000)
    assert collector.batches == [400, 400, 200]


def test_a_batch_repeated_after_a_restart_reads_the_same_rows(collector: Collector) -> None:
    collector.gateway.write("out", results(0, 600), "sink.0")
    collector.run(maxRowsPerTrigger=200)
    collector.forget_last_commit()
    collector.gateway.write("out", results(600, 700), "sink.0")
    collector.gateway.stop()
    collector.gateway.start()
    collector.run(maxRowsPerTrigger=200)
    assert collector.found() == results(0, 700)


def test_parts_of_instances_that_left_disappear_and_nothing_is_missed(
    collector: Collector,
) -> None:
    folder = collector.gateway.run_dir / "spark" / "collect" / "out"
    for n in range(4):
        collector.gateway.write("out", results(n * 100, n * 100 + 100), f"sink.{n}")
        collector.run()
    assert collector.found() == results(0, 400)
    # The last batch is acknowledged only when a next one is made.
    assert sorted(p.name for p in folder.iterdir() if p.is_dir()) == ["sink.3"]


def test_a_running_query_collects_what_comes_while_it_runs(collector: Collector) -> None:
    query = collector.prepare().start()
    try:
        for n in range(4):
            collector.gateway.write("out", results(n * 100, n * 100 + 100), f"sink.{n}")
            query.processAllAvailable()
            assert collector.found() == results(0, n * 100 + 100)
    finally:
        query.stop()
    assert collector.gateway.status().rows_uncollected == 0
    collector.gateway.do(until(lambda: collector.gateway.status().connections == 0))


def test_a_query_may_begin_at_the_end(collector: Collector) -> None:
    collector.gateway.write("out", results(0, 100), "sink.0")
    query = collector.prepare(startingOffsets="latest", subscriber="late").start()
    try:
        query.processAllAvailable()
        collector.gateway.write("out", results(100, 200), "sink.1")
        query.processAllAvailable()
    finally:
        query.stop()
    assert collector.found() == results(100, 200)


def test_offsets_do_not_carry_over_to_another_log(collector: Collector) -> None:
    collector.gateway.write("out", results(0, 10))
    collector.run()
    collector.gateway.stop()
    shutil.rmtree(collector.gateway.run_dir)
    collector.gateway.start()
    collector.gateway.write("out", results(0, 50))
    with pytest.raises(Exception, match=r"new checkpoint"):
        collector.run()


def test_a_table_is_read_whole_or_in_part(spark: SparkSession, gateway: GatewayThread) -> None:
    frame = read(spark, gateway.run, "out")
    assert frame.schema.simpleString() == "struct<text:string,n:bigint>"
    assert frame.collect() == []
    gateway.write("out", results(0, 30_000), "sink.0")
    gateway.write("out", results(30_000, 31_000), "sink.1")
    frame = read(spark, gateway.run, "out", tasks=3)
    assert frame.rdd.getNumPartitions() == 3
    assert sorted(tuple(row) for row in frame.collect()) == sorted(results(0, 31_000))
    assert frame.agg({"n": "sum"}).first()[0] == sum(range(31_000))  # type: ignore[index]
    narrow = (
        spark.read.format("anabranch")
        .schema("n int")
        .option("run", gateway.run)
        .option("stream", "out")
        .load()
    )
    assert narrow.filter("n < 3").orderBy("n").collect() == [(0,), (1,), (2,)]
    assert frame.limit(5).count() == 5  # a reader that stops early hurts nobody
    assert gateway.status().refused == 0


def test_a_stream_that_does_not_exist_is_named(spark: SparkSession, gateway: GatewayThread) -> None:
    with pytest.raises(Exception, match="no sink of the pipeline writes stream 'other'"):
        read(spark, gateway.run, "other")
