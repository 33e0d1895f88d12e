"""Spark's batches become splits: once each, whole, whatever is repeated."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.spark_bridge import messages as m
from anabranch.spark_bridge.client import Link
from anabranch.spark_bridge.gateway_limits import GatewayLimits
from anabranch.spark_bridge.places import Place
from anabranch.spark_bridge.wire import Refused
from tests.runtime.processes import PATIENCE_S
from tests.spark_bridge.support import Board, FakeQuery, Running, ask, drain, start, texts, until


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    it = await start(tmp_path)
    yield it
    await it.close()


@pytest.fixture
def query(running: Running) -> FakeQuery:
    return FakeQuery(running.place)


async def test_rows_go_no_further_before_the_commit(running: Running, query: FakeQuery) -> None:
    part = await query.stage(0, 0, [texts("a", "b")])
    assert running.board.splits == {}
    await query.commit(0, [part])
    assert await running.board.rows("lines") == ["a", "b"]


def open_to_others(folder: Path) -> list[Path]:
    """The files in it that other users can read if they can enter the folder."""
    found: list[Path] = []
    for path in folder.iterdir():
        mode = path.stat().st_mode
        if path.is_dir():
            found += open_to_others(path) if mode & 0o011 else []
        elif mode & 0o044:
            found.append(path)
    return found


async def test_nobody_else_can_read_what_lies_in_a_folder_that_is_open_to_all(
    tmp_path: Path,
) -> None:
    before = os.umask(0o022)
    try:
        state = tmp_path / "state"
        state.mkdir()
        it = await start(state, collects={"counts": "word string"})
        await FakeQuery(it.place).feed(0, "a secret")
        await it.close()
    finally:
        os.umask(before)
    assert list(state.glob("feed/parts/*/*/*/*.spool"))
    assert open_to_others(state) == []


async def test_parts_are_published_in_the_order_of_partitions(
    running: Running, query: FakeQuery
) -> None:
    late = await query.stage(0, 1, [texts("c", "d")])
    early = await query.stage(0, 0, [texts("a"), texts("b")])
    await query.commit(0, [late, early])
    assert await running.board.rows("lines") == ["a", "b", "c", "d"]


async def test_the_attempts_that_a_commit_does_not_name_are_dropped(
    running: Running, query: FakeQuery
) -> None:
    loser = await query.stage(0, 0, [texts("a")])
    winner = await query.stage(0, 0, [texts("a")])
    await query.commit(0, [winner])
    assert await running.board.rows("lines") == ["a"]
    assert running.gateway.status().feed.parts_dropped == 1
    with pytest.raises(Refused, match="not staged"):
        await query.commit(1, [loser])


async def test_a_repeated_batch_is_skipped_and_its_commit_only_confirmed(
    running: Running, query: FakeQuery
) -> None:
    await query.feed(0, "a")
    assert await query.is_skipped(0, 0, texts("a"))
    assert (await query.commit(0, [])).repeated
    await query.feed(1, "b")
    assert (await query.commit(0, [])).repeated
    assert await running.board.rows("lines") == ["a", "b"]


async def test_another_query_with_the_same_batch_id_is_no_repetition(running: Running) -> None:
    await FakeQuery(running.place, query="one").feed(0, "a")
    await FakeQuery(running.place, query="two").feed(0, "b")
    assert await running.board.rows("lines") == ["a", "b"]


async def test_a_commit_of_what_is_not_staged_is_refused_whole(
    running: Running, query: FakeQuery
) -> None:
    part = await query.stage(0, 0, [texts("a")])
    with pytest.raises(Refused, match="partition 1 is not staged"):
        await query.commit(0, [part, (1, "nobody")])
    assert running.board.splits == {}
    assert not (await query.commit(0, [part])).repeated


async def test_a_commit_may_not_name_two_attempts_of_a_partition(
    running: Running, query: FakeQuery
) -> None:
    parts = [await query.stage(0, 0, [texts("a")]), await query.stage(0, 0, [texts("a")])]
    with pytest.raises(Refused, match="two attempts"):
        await query.commit(0, parts)


async def test_an_abort_drops_what_is_staged_and_never_what_is_committed(
    running: Running, query: FakeQuery
) -> None:
    first = await query.stage(0, 0, [texts("a")])
    await query.commit(0, [first])
    await query.abort(0, [first])
    second = await query.stage(1, 0, [texts("b")])
    await query.abort(1, [second])
    with pytest.raises(Refused, match="not staged"):
        await query.commit(1, [second])
    assert await running.board.rows("lines") == ["a"]


async def test_a_newer_run_shuts_out_the_older_one(running: Running, query: FakeQuery) -> None:
    old_part = await query.stage(0, 0, [texts("a")])
    newer = FakeQuery(running.place, run="run-b")
    new_part = await newer.stage(0, 0, [texts("a")])
    with pytest.raises(Refused, match="replaced by run run-b"):
        await query.commit(0, [old_part])
    with pytest.raises(Refused, match="replaced by run run-b"):
        await query.stage(0, 0, [texts("a")])
    await query.abort(0, [new_part])  # a shut-out driver cannot hurt
    await newer.commit(0, [new_part])
    assert await running.board.rows("lines") == ["a"]


async def test_an_empty_part_counts_but_makes_no_split(running: Running, query: FakeQuery) -> None:
    empty = await query.stage(0, 0, [])
    full = await query.stage(0, 1, [texts("a")])
    await query.commit(0, [empty, full])
    assert len(running.board.splits["lines"]) == 1
    only = await query.stage(1, 0, [])
    await query.commit(1, [only])
    assert (await query.commit(1, [])).repeated


async def test_a_long_part_becomes_several_splits(tmp_path: Path) -> None:
    running = await start(tmp_path, limits=GatewayLimits(spool_file_bytes=10_000))
    query = FakeQuery(running.place)
    lines = [f"{n:06d} " + "x" * 50 for n in range(10_000)]
    await query.feed(0, *lines)
    assert len(running.board.splits["lines"]) > 3
    assert await running.board.rows("lines") == lines
    await running.close()


async def test_columns_become_dicts_and_lists_on_request(
    running: Running, query: FakeQuery
) -> None:
    rows = pa.record_batch(
        [pa.array(["a", None]), pa.array([1, 2], pa.int64()), pa.array([[1.5], []])],
        names=["text", "n", "more"],
    )
    for epoch, shape in enumerate(("auto", "list")):
        part = await query.stage(epoch, 0, [rows], shape)  # type: ignore[arg-type]
        await query.commit(epoch, [part])
    assert await running.board.rows("lines") == [
        {"text": "a", "n": 1, "more": [1.5]},
        {"text": None, "n": 2, "more": []},
        ["a", 1, [1.5]],
        [None, 2, []],
    ]


async def test_points_in_time_come_in_utc(running: Running, query: FakeQuery) -> None:
    zoned = pa.array([1_600_000_000_000_000, None], pa.timestamp("us", tz="Europe/Paris"))
    part = await query.stage(0, 0, [pa.record_batch([zoned], names=["t"])])
    await query.commit(0, [part])
    first, second = await running.board.rows("lines")
    assert first.isoformat() == "2020-09-13T12:26:40+00:00"
    assert second is None


async def test_text_that_is_no_utf8_becomes_a_dead_letter(
    running: Running, query: FakeQuery
) -> None:
    raw = pa.array([b"good", b"b\xffd", b"fine"], pa.binary())
    bad = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    part = await query.stage(0, 0, [pa.record_batch([bad], names=["value"])])
    await query.commit(0, [part])
    rows, dead = await drain(running.board.splits["lines"][0])
    assert rows == ["good", "fine"]
    assert [(d.tuple, d.where) for d in dead] == [(b"b\xffd", "lines:0")]
    assert "UTF-8" in dead[0].reason


async def test_bytes_that_are_no_arrow_are_refused_and_hurt_nobody(
    running: Running, query: FakeQuery
) -> None:
    def send_rubbish() -> None:
        with Link(running.place) as link:
            link.ask(query.stage_request(0, 0), texts().schema.serialize().to_pybytes())
            link.tell(m.Rows(), b"rubbish")
            link.ask(m.Staged(rows=1, crc=0))

    def begin_with_rubbish() -> None:
        with Link(running.place) as link:
            link.ask(query.stage_request(0, 0), b"rubbish")

    with pytest.raises(Refused, match="not an Arrow record batch"):
        await asyncio.to_thread(send_rubbish)
    with pytest.raises(Refused, match="not an Arrow schema"):
        await asyncio.to_thread(begin_with_rubbish)
    await query.feed(0, "a")
    assert await running.board.rows("lines") == ["a"]


async def test_a_part_that_breaks_off_is_forgotten(running: Running, query: FakeQuery) -> None:
    def break_off() -> None:
        with Link(running.place) as link:
            link.ask(query.stage_request(0, 0), texts().schema.serialize().to_pybytes())
            link.tell(m.Rows(), texts("a").serialize().to_pybytes())

    await asyncio.to_thread(break_off)
    incoming = running.state / "feed" / "incoming"
    await until(lambda: not list(incoming.iterdir()))
    await query.feed(0, "b")
    assert await running.board.rows("lines") == ["b"]


async def test_a_part_that_came_damaged_is_refused(running: Running, query: FakeQuery) -> None:
    def damage() -> None:
        with Link(running.place) as link:
            link.ask(query.stage_request(0, 0), texts().schema.serialize().to_pybytes())
            link.tell(m.Rows(), texts("a").serialize().to_pybytes())
            link.ask(m.Staged(rows=1, crc=12345))

    with pytest.raises(Refused, match="not as they were sent"):
        await asyncio.to_thread(damage)


async def test_a_batch_above_the_limit_is_refused_with_advice(tmp_path: Path) -> None:
    running = await start(tmp_path, limits=GatewayLimits(batch_bytes_max=1000))
    with pytest.raises(Refused, match="maxFilesPerTrigger"):
        await FakeQuery(running.place).feed(0, *["x" * 100] * 50)
    await running.close()


async def test_spark_waits_while_the_pipeline_is_behind(tmp_path: Path) -> None:
    running = await start(tmp_path, limits=GatewayLimits(unread_files_max=0))
    query = FakeQuery(running.place)
    await query.feed(0, "a")
    waiting = asyncio.create_task(query.feed(1, "b"))
    await until(lambda: running.gateway.status().waiting)
    assert await running.board.rows("lines") == ["a"]
    await asyncio.wait_for(waiting, PATIENCE_S)
    await running.close()


# --- the end of the input ----------------------------------------------------------------------


async def test_finish_is_told_after_all_that_was_committed(
    running: Running, query: FakeQuery
) -> None:
    await query.feed(0, "a")
    await query.ask(m.Finish(stream="lines"))
    assert running.board.ended == ["lines"]
    with pytest.raises(Refused, match="declared finished"):
        await query.feed(1, "b")
    assert await query.is_skipped(0, 0, texts("a"))  # repeating is no new input


async def test_a_final_batch_ends_the_input(running: Running, query: FakeQuery) -> None:
    part = await query.stage(0, 0, [texts("a")])
    await query.commit(0, [part], final=True)
    assert running.board.ended == ["lines"]
    assert (await query.commit(0, [part], final=True)).repeated


async def test_an_end_is_remembered_for_this_run_of_the_pipeline_only(tmp_path: Path) -> None:
    first = await start(tmp_path)
    await ask(first.place, m.Finish(stream="lines"))
    await first.close()
    again = await start(tmp_path)
    assert again.board.ended == ["lines"]
    await again.close()
    other = await start(tmp_path, pipeline_run="run-2")
    assert other.board.ended == []
    await FakeQuery(other.place).feed(0, "a")
    assert await other.board.rows("lines") == ["a"]
    await other.close()


async def test_a_run_without_a_name_has_an_open_input(tmp_path: Path) -> None:
    running = await start(tmp_path, pipeline_run="")
    for epoch in range(2):
        await FakeQuery(running.place).feed(epoch, "a")
    assert running.board.ended == []
    await running.close()


async def test_a_stream_that_no_source_reads_is_refused(tmp_path: Path) -> None:
    running = await start(tmp_path, feeds=["lines"])
    with pytest.raises(Refused, match=r"no source .* reads stream 'words'; fed: lines"):
        await FakeQuery(running.place, stream="words").feed(0, "a")
    await running.close()


# --- restarts of the gateway -------------------------------------------------------------------


async def test_a_restarted_gateway_knows_what_was_committed_and_what_is_staged(
    tmp_path: Path,
) -> None:
    first = await start(tmp_path)
    query = FakeQuery(first.place)
    await query.feed(0, "a")
    part = await query.stage(1, 0, [texts("b")])
    await first.close()
    second = await start(tmp_path, first.board)
    query.place = second.place
    assert (await query.commit(0, [])).repeated
    assert not (await query.commit(1, [part])).repeated
    assert await second.board.rows("lines") == ["a", "b"]
    await second.close()


async def test_what_was_read_is_not_published_again_after_a_restart(tmp_path: Path) -> None:
    first = await start(tmp_path)
    query = FakeQuery(first.place)
    await query.feed(0, "a")
    assert await first.board.rows("lines") == ["a"]
    await query.feed(1, "b")
    await first.close()
    second = await start(tmp_path)
    assert [s["id"] for s in second.board.splits["lines"]] == ["lines:1"]
    assert await second.board.rows("lines") == ["b"]
    await FakeQuery(second.place, run="run-b").feed(2, "c")
    assert second.board.splits["lines"][-1]["id"] == "lines:2"
    await second.close()


async def test_what_could_not_be_published_is_published_later(tmp_path: Path) -> None:
    running = await start(tmp_path)
    query = FakeQuery(running.place)
    part = await query.stage(0, 0, [texts("a")])
    running.board.failing = True
    with pytest.raises(Refused, match="the board is not there"):
        await query.commit(0, [part])
    running.board.failing = False
    assert (await query.commit(0, [part])).repeated  # Spark repeats after an error
    assert await running.board.rows("lines") == ["a"]
    await running.close()


async def test_an_older_run_stays_shut_out_over_a_restart(tmp_path: Path) -> None:
    first = await start(tmp_path)
    await FakeQuery(first.place, run="old").feed(0, "a")
    await FakeQuery(first.place, run="new").feed(1, "b")
    await first.close()
    second = await start(tmp_path)
    with pytest.raises(Refused, match="replaced by run new"):
        await FakeQuery(second.place, run="old").feed(2, "c")
    await second.close()


async def test_a_stage_that_nobody_commits_is_swept_away(tmp_path: Path) -> None:
    limits = GatewayLimits(stage_ttl_s=0.0, sweep_period_s=0.02)
    running = await start(tmp_path, limits=limits)
    await FakeQuery(running.place).stage(0, 0, [texts("a")])
    await until(lambda: running.gateway.status().feed.parts_dropped)
    await until(lambda: not list((tmp_path / "feed" / "parts").iterdir()))
    await running.close()


async def test_a_gateway_whose_address_is_removed_tells_it_again(tmp_path: Path) -> None:
    """By a cleaner of temporary files, in a run that lasts for weeks."""
    running = await start(tmp_path, limits=GatewayLimits(sweep_period_s=0.02))
    before = Place.of_run(tmp_path)
    (tmp_path / "gateway.json").unlink()
    await until((tmp_path / "gateway.json").exists)
    assert Place.of_run(tmp_path) == before
    await running.close()


async def test_a_journal_written_anew_says_the_same(tmp_path: Path) -> None:
    limits = GatewayLimits(journal_bytes_max=1, sweep_period_s=0.02)
    running = await start(tmp_path, limits=limits)
    query = FakeQuery(running.place)
    for epoch in range(5):
        await query.feed(epoch, f"row {epoch}")
    assert await running.board.rows("lines") == [f"row {n}" for n in range(5)]
    journal = tmp_path / "feed" / "journal"
    await until(lambda: journal.stat().st_size < 150)
    await query.feed(5, "more")
    await running.close()
    second = await start(tmp_path, Board())
    assert (await FakeQuery(second.place).commit(5, [])).repeated
    assert await second.board.rows("lines") == ["more"]
    await second.close()
