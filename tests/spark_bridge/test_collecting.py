"""Results of a pipeline: the same rows at every fetch, until everybody has acknowledged them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from anabranch.spark_bridge import messages as m
from anabranch.spark_bridge.client import Link
from anabranch.spark_bridge.gateway_limits import GatewayLimits
from anabranch.spark_bridge.log import LogError
from anabranch.spark_bridge.log_reader import StreamLog
from anabranch.spark_bridge.sink import LogWriter, SparkCollect
from anabranch.spark_bridge.wire import Refused
from tests.runtime.processes import PATIENCE_S
from tests.spark_bridge.support import Running, ask, context, fetch, latest, start, until

SCHEMA = "text string, score long"
SINK = SparkCollect("scores", SCHEMA)


def opened(run_dir: Path, instance: str = "out.0", sink: SparkCollect = SINK) -> LogWriter:
    return sink.open(context(run_dir, instance))


async def serve(run_dir: Path, **options: object) -> Running:
    return await start(run_dir / "spark", collects={"scores": SCHEMA}, **options)  # type: ignore[arg-type]


def rows(first: int, end: int) -> list[dict[str, object]]:
    return [{"text": f"row {n}", "score": n} for n in range(first, end)]


async def ack(running: Running, subscriber: str, **parts: int) -> None:
    end = await latest(running.place, "scores")
    named = {name.replace("_", "."): row for name, row in parts.items()}
    await ask(
        running.place,
        m.Ack(stream="scores", subscriber=subscriber, generation=end.generation, parts=named),
    )


async def test_any_range_of_rows_comes_the_same_again_and_again(tmp_path: Path) -> None:
    running = await serve(tmp_path, limits=GatewayLimits(block_rows=7))
    writer = opened(tmp_path)
    for first in range(0, 50, 10):
        assert await writer.write(rows(first, first + 10)) == []
    end = await latest(running.place, "scores")
    assert end.parts == {"out.0": 50}
    for first, last in ((0, 50), (3, 4), (9, 31), (50, 50), (0, 50)):
        found = await fetch(running.place, "scores", end.generation, "out.0", first, last)
        assert found == rows(first, last)
    await writer.close()
    await running.close()


async def test_instances_write_beside_each_other_and_may_come_at_any_time(tmp_path: Path) -> None:
    running = await serve(tmp_path)
    assert (await latest(running.place, "scores")).parts == {}
    first = opened(tmp_path, "out.0")
    await first.write(rows(0, 2))
    second = opened(tmp_path, "out.1")
    await second.write(rows(2, 5))
    assert (await latest(running.place, "scores")).parts == {"out.0": 2, "out.1": 3}
    await first.close()
    again = opened(tmp_path, "out.0")  # as in a later run over the same state
    await again.write(rows(5, 6))
    assert (await latest(running.place, "scores")).parts == {"out.0": 2, "out.0-2": 1, "out.1": 3}
    await second.close()
    await again.close()
    await running.close()


async def test_a_question_for_news_is_held_until_there_are_any(tmp_path: Path) -> None:
    running = await serve(tmp_path)
    question = m.Latest(stream="scores", known={}, wait_ms=10_000)
    waiting = asyncio.create_task(ask(running.place, question))
    writer = opened(tmp_path)
    await until(lambda: running.gateway.status().connections)
    await writer.write(rows(0, 1))
    answer = await asyncio.wait_for(waiting, PATIENCE_S)
    assert isinstance(answer, m.Offsets)
    assert answer.parts == {"out.0": 1}
    nothing_new = m.Latest(stream="scores", known=answer.parts, wait_ms=20)
    assert await ask(running.place, nothing_new) == answer
    await writer.close()
    await running.close()


async def test_columns_can_be_chosen(tmp_path: Path) -> None:
    running = await serve(tmp_path)
    writer = opened(tmp_path)
    await writer.write(rows(0, 2))
    end = await latest(running.place, "scores")
    got = await fetch(running.place, "scores", end.generation, "out.0", 0, 2, ["score"])
    assert got == [{"score": 0}, {"score": 1}]
    with pytest.raises(Refused, match="no column 'worth'"):
        await fetch(running.place, "scores", end.generation, "out.0", 0, 2, ["worth"])
    await writer.close()
    await running.close()


async def test_offsets_of_another_log_are_refused(tmp_path: Path) -> None:
    running = await serve(tmp_path)
    writer = opened(tmp_path)
    await writer.write(rows(0, 2))
    with pytest.raises(Refused, match="emptied or replaced"):
        await fetch(running.place, "scores", "0123", "out.0", 0, 2)
    generation = (await latest(running.place, "scores")).generation
    for part, end in (("out.0", 3), ("out.7", 1)):
        with pytest.raises(Refused, match="another log"):
            await fetch(running.place, "scores", generation, part, 0, end)
    await writer.close()
    await running.close()


async def test_a_restarted_gateway_serves_the_same_rows(tmp_path: Path) -> None:
    first = await serve(tmp_path)
    writer = opened(tmp_path)
    await writer.write(rows(0, 5))
    before = await latest(first.place, "scores")
    await first.close()
    await writer.write(rows(5, 8))  # instances do not mind
    second = await serve(tmp_path)
    after = await latest(second.place, "scores")
    assert (after.generation, after.parts) == (before.generation, {"out.0": 8})
    found = await fetch(second.place, "scores", before.generation, "out.0", 2, 8)
    assert found == rows(2, 8)
    await writer.close()
    await second.close()


async def test_a_torn_frame_at_the_end_is_no_row(tmp_path: Path) -> None:
    running = await serve(tmp_path)
    writer = opened(tmp_path)
    await writer.write(rows(0, 3))
    await writer.write(rows(3, 6))
    (segment,) = (tmp_path / "spark/collect/scores/out.0").glob("*.seg")
    segment.write_bytes(segment.read_bytes()[:-1])  # the writer was killed in the middle
    assert (await latest(running.place, "scores")).parts == {"out.0": 3}
    await running.close()
    await writer.close()


# --- acknowledgements and retention ------------------------------------------------------------

SMALL = SparkCollect("scores", SCHEMA, segment_bytes_max=100)


async def test_rows_are_kept_until_the_slowest_subscriber_has_them(tmp_path: Path) -> None:
    running = await serve(tmp_path)
    writer = opened(tmp_path, sink=SMALL)
    for first in range(0, 40, 10):
        await writer.write(rows(first, first + 10))
    generation = (await latest(running.place, "scores")).generation
    folder = tmp_path / "spark/collect/scores/out.0"
    await ask(running.place, m.Oldest(stream="scores", subscriber="slow"))
    await ack(running, "quick", out_0=40)
    assert len(list(folder.glob("*.seg"))) == 4
    await ack(running, "slow", out_0=20)
    assert len(list(folder.glob("*.seg"))) == 2
    found = await fetch(running.place, "scores", generation, "out.0", 20, 40)
    assert found == rows(20, 40)
    with pytest.raises(Refused, match=r"rows 0 to 20 .* acknowledged and deleted.*subscriber"):
        await fetch(running.place, "scores", generation, "out.0", 0, 40)
    oldest = await ask(running.place, m.Oldest(stream="scores"))
    assert isinstance(oldest, m.Offsets)
    assert oldest.parts == {"out.0": 20}
    await writer.close()
    await running.close()


async def test_acknowledgements_survive_a_restart(tmp_path: Path) -> None:
    running = await serve(tmp_path)
    writer = opened(tmp_path, sink=SMALL)
    for first in range(0, 40, 10):
        await writer.write(rows(first, first + 10))
    await ack(running, "slow", out_0=10)
    await running.close()
    running = await serve(tmp_path)
    await ack(running, "quick", out_0=40)
    assert len(list((tmp_path / "spark/collect/scores/out.0").glob("*.seg"))) == 3
    await writer.close()
    await running.close()


async def test_the_part_of_an_instance_that_left_goes_when_all_was_acknowledged(
    tmp_path: Path,
) -> None:
    running = await serve(tmp_path)
    writer = opened(tmp_path)
    await writer.write(rows(0, 10))
    await ack(running, "one", out_0=10)
    assert (tmp_path / "spark/collect/scores/out.0").is_dir()  # it may still be written
    await writer.close()
    other = opened(tmp_path, "out.1")
    await other.write(rows(0, 1))
    await ack(running, "one", out_0=10)
    assert not (tmp_path / "spark/collect/scores/out.0").exists()
    assert (await latest(running.place, "scores")).parts == {"out.1": 1}
    await other.close()
    await running.close()


async def test_a_full_log_stops_the_writer_until_rows_are_acknowledged(tmp_path: Path) -> None:
    running = await serve(tmp_path)
    writer = opened(tmp_path, sink=SparkCollect("scores", SCHEMA, log_bytes_max=1))
    await writer.write(rows(0, 10))
    writer._looked_s = float("-inf")  # as if the second between two looks had passed
    waiting = asyncio.create_task(writer.write(rows(10, 20)))
    folder = tmp_path / "spark/collect/scores/out.0"
    await until(lambda: len(list(folder.glob("*.seg"))) == 2)  # it waits, and makes room for it
    assert (await latest(running.place, "scores")).parts == {"out.0": 10}
    assert not waiting.done()
    await ack(running, "one", out_0=10)
    assert await asyncio.wait_for(waiting, PATIENCE_S) == []
    assert (await latest(running.place, "scores")).parts == {"out.0": 20}
    await writer.close()
    await running.close()


async def test_the_gateway_knows_when_all_results_were_fetched(tmp_path: Path) -> None:
    running = await serve(tmp_path)
    assert await running.gateway.collected(5)
    writer = opened(tmp_path)
    await writer.write(rows(0, 10))
    await writer.close()
    assert not await running.gateway.collected(0.01)
    with await asyncio.to_thread(Link, running.place):  # a query that might ask again
        generation = (await latest(running.place, "scores")).generation
        await fetch(running.place, "scores", generation, "out.0", 0, 10)
        assert running.gateway.status().rows_uncollected == 0
        assert not await running.gateway.collected(0.01)
    assert await running.gateway.collected(10)
    await running.close()


async def test_a_release_ends_the_wait_for_collection(tmp_path: Path) -> None:
    running = await serve(tmp_path)
    writer = opened(tmp_path)
    await writer.write(rows(0, 10))
    waiting = asyncio.create_task(running.gateway.collected(10))
    await ask(running.place, m.Release())
    assert await waiting
    await writer.close()
    await running.close()


# --- what streams there are --------------------------------------------------------------------


async def test_a_stream_describes_itself(tmp_path: Path) -> None:
    running = await serve(tmp_path)
    answer = await ask(running.place, m.Describe(stream="scores"))
    assert isinstance(answer, m.Description)
    assert answer.schema == SCHEMA
    with pytest.raises(Refused, match=r"no sink .* writes stream 'counts'; collected: scores"):
        await ask(running.place, m.Describe(stream="counts"))
    await running.close()


async def test_an_undeclared_stream_is_served_once_a_sink_has_written_it(tmp_path: Path) -> None:
    running = await start(tmp_path / "spark")
    with pytest.raises(Refused, match="no sink"):
        await latest(running.place, "scores")
    writer = opened(tmp_path)
    await writer.write(rows(0, 1))
    assert (await latest(running.place, "scores")).parts == {"out.0": 1}
    await writer.close()
    await running.close()


def test_results_of_another_schema_are_not_mixed_in(tmp_path: Path) -> None:
    opened(tmp_path)._part.close()
    with pytest.raises(LogError, match="another name"):
        opened(tmp_path, sink=SparkCollect("scores", "text string"))
    same = SparkCollect("scores", "text STRING,score bigint")
    opened(tmp_path, "out.1", same)._part.close()


def test_a_reader_sees_segments_that_are_made_while_it_looks(tmp_path: Path) -> None:
    async def write(first: int) -> None:
        await writer.write(rows(first, first + 10))

    writer = opened(tmp_path, sink=SMALL)
    log = StreamLog(tmp_path / "spark/collect/scores")
    for first in range(0, 100, 10):
        asyncio.run(write(first))
        if first % 30 == 0:
            log.refresh()
            assert log.ends() == {"out.0": first + 10}
            assert sum(s.rows for s in log.slices("out.0", 0, first + 10)) == first + 10
    writer._part.close()


async def test_who_waits_for_the_end_is_answered_when_it_comes(tmp_path: Path) -> None:
    running = await serve(tmp_path, limits=GatewayLimits(wait_period_s=0.01))
    waiting = asyncio.create_task(ask(running.place, m.Ending()))
    await until(lambda: running.gateway.status().connections)
    done, _ = await asyncio.wait([waiting], timeout=0.1)
    assert not done
    running.gateway.complete()
    assert isinstance(await asyncio.wait_for(waiting, PATIENCE_S), m.Ok)
    await running.close()
