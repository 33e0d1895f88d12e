"""The two ends that a pipeline sees: the source which Spark feeds, the sink which it collects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Split
from anabranch.runtime.processing.payload import Encoder
from anabranch.runtime.values.checks import PipelineError
from anabranch.spark_bridge.frames import FrameError, framed
from anabranch.spark_bridge.sink import SparkCollect
from anabranch.spark_bridge.source import SparkFeed
from tests.spark_bridge.support import context, drain


def spool(path: Path, *frames: list[Any], dead: tuple[int, ...] = ()) -> Split:
    encoder = Encoder(DEFAULT_LIMITS)
    path.write_bytes(
        b"".join(framed(encoder.encode(f), len(f), n in dead) for n, f in enumerate(frames))
    )
    rows = sum(map(len, frames))
    return {"id": "lines:0", "path": str(path), "at": 0, "skip": 0, "rows": rows}


@pytest.mark.parametrize("tuples_max", [1, 2, 3, 4, 100])
async def test_a_split_read_in_pieces_by_many_instances_is_read_once(
    tmp_path: Path, tuples_max: int
) -> None:
    split: Split | None = spool(tmp_path / "s", [1, 2, 3], [4], [5, 6])
    found: list[Any] = []
    while split is not None:
        reader = SparkFeed("lines").open(split, context(tmp_path))
        chunk = await reader.read(tuples_max, 2**20)
        found.extend(chunk.tuples if chunk is not None else [])
        split = reader.remainder()
        reader.close()
    assert found == [1, 2, 3, 4, 5, 6]


async def test_a_file_stays_until_nobody_will_have_to_read_it_again(tmp_path: Path) -> None:
    reader = SparkFeed("lines").open(spool(tmp_path / "s", [1], [2]), context(tmp_path))
    await reader.read(10, 2**20)
    await reader.read(10, 2**20)
    behind = reader.remainder()  # what a process that dies now leaves to the next one
    assert behind is not None
    assert await reader.read(10, 2**20) is None
    assert reader.remainder() is None
    reader.close()
    assert (tmp_path / "s").exists()
    next_incarnation = SparkFeed("lines").open(behind, context(tmp_path))
    assert await next_incarnation.read(10, 2**20) is None
    next_incarnation.done()
    assert not (tmp_path / "s").exists()
    once_more = SparkFeed("lines").open(behind, context(tmp_path))
    assert await once_more.read(10, 2**20) is None
    once_more.done()


async def test_long_rows_come_in_small_chunks(tmp_path: Path) -> None:
    rows = ["x" * 1000] * 10
    reader = SparkFeed("lines").open(spool(tmp_path / "s", rows), context(tmp_path))
    chunk = await reader.read(1000, 2500)
    assert chunk is not None
    assert len(chunk.tuples) == 2
    reader.close()


async def test_dead_rows_come_as_dead_letters_and_count(tmp_path: Path) -> None:
    split = spool(tmp_path / "s", ["a"], [[b"\xff", "no text"]], ["b"], dead=(1,))
    rows, dead = await drain(split)
    assert rows == ["a", "b"]
    assert [(d.tuple, d.reason, d.where) for d in dead] == [(b"\xff", "no text", "lines:0")]


async def test_a_file_that_was_cut_is_an_error_not_an_end(tmp_path: Path) -> None:
    split = spool(tmp_path / "s", ["a"], ["b"])
    path = tmp_path / "s"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FrameError, match="1 rows are missing"):
        await drain(split)


async def test_a_file_that_is_gone_is_an_error_that_says_which_rows_are_missing(
    tmp_path: Path,
) -> None:
    split = spool(tmp_path / "s", ["a"])
    await drain(split)
    with pytest.raises(FileNotFoundError, match=r"split lines:0 has been read .* 1 rows"):
        await drain(split)


async def test_tuples_that_do_not_fit_are_dead_letters_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    writer = SparkCollect("scores", "text string, score long").open(context(tmp_path))
    dead = await writer.write([{"text": "a", "score": 1}, {"text": "b", "score": "two"}, None, "c"])
    reasons = {repr(d.tuple): d.reason for d in dead}
    misfit = {"text": "b", "score": "two"}
    assert sorted(reasons) == sorted(map(repr, [misfit, None, "c"]))
    assert reasons[repr(misfit)].startswith("column 'score': expected long, got str 'two'")
    assert writer._part.rows == 1
    await writer.close()


async def test_a_sync_sink_survives_a_power_cut_after_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    for sync in (False, True):
        sink = SparkCollect("scores", "text string", sync=sync)
        writer = sink.open(context(tmp_path, f"out.{int(sync)}"))
        synced.clear()
        await writer.write(["a"])
        assert bool(synced) is sync
        await writer.close()


async def test_wide_rows_are_kept_in_pieces(tmp_path: Path) -> None:
    writer = SparkCollect("texts", "text string").open(context(tmp_path))
    await writer.write(["x" * 300_000] * 9)
    (segment,) = (tmp_path / "spark/collect/texts/out.0").glob("*.seg")
    assert segment.stat().st_size > 9 * 300_000
    assert writer._part.rows == 9
    await writer.close()


def test_mistakes_are_reported_where_the_pipeline_is_written() -> None:
    with pytest.raises(PipelineError, match="stream name"):
        SparkFeed("no spaces")
    with pytest.raises(PipelineError, match=r"collect 'x': column 'text': .* no type 'varchars'"):
        SparkCollect("x", "text varchars")
    pipeline = Pipeline("p")
    pipeline.source("in", SparkFeed("lines")).sink("out", SparkCollect("x", "text string"))
    pipeline.validate()


def test_a_feed_has_no_splits_before_spark_sends_any() -> None:
    assert list(SparkFeed("lines").splits()) == []
    assert not SparkFeed.bounded
    assert SparkFeed.scalable


def test_a_run_without_a_lasting_folder_for_its_results_is_not_resumed() -> None:
    """What had not been collected went with the folder of the run."""
    with pytest.raises(
        PipelineError, match=r"collect 'counts': results .* begin anew with --fresh"
    ):
        SparkCollect("counts", "word string").prepare_to_resume()


async def test_a_run_is_resumed_if_its_results_are_there(tmp_path: Path) -> None:
    sink = SparkCollect("counts", "word string", state=tmp_path)
    with pytest.raises(FileNotFoundError, match="the folder is gone"):
        sink.prepare_to_resume()
    await sink.open(context(tmp_path)).close()
    sink.prepare_to_resume()
