"""A part of the log over the incarnations of its writer: every row once, and none ever changes."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from anabranch.runtime.plan.ends import passing
from anabranch.spark_bridge.log import LogError
from anabranch.spark_bridge.log_reader import StreamLog
from anabranch.spark_bridge.sink import LogWriter, SparkCollect
from tests.runtime.dying import survives
from tests.spark_bridge.support import context, logged

PUTS = 4


def opened(run_dir: Path, **settings: Any) -> LogWriter:
    return SparkCollect("words", "word string", **settings).open(context(run_dir))


def data(writer: LogWriter, number: int) -> bytes:
    """Two frames, so that half of them may be there."""
    first, _ = writer.stage([f"{number} {'x' * 40}"])
    second, _ = writer.stage([f"{number} b", f"{number} c"])
    return first + second


def words(run_dir: Path) -> list[str]:
    """As the gateway reads them, of all parts."""
    log = StreamLog(run_dir / "spark/collect/words")
    log.refresh()
    return [
        row["word"]
        for part, end in log.ends().items()
        for row in logged(log, part, end, "word string")
    ]


def incarnation(run_dir: Path, **settings: Any) -> None:
    """Puts everything again, as one does of which nobody knows anything."""

    async def main() -> None:
        writer = opened(run_dir, **settings)
        for number in range(1, PUTS + 1):
            await writer.put(number, data(writer, number))
            assert writer.last_put() >= number

    asyncio.run(main())


EXPECTED = [word for n in range(1, PUTS + 1) for word in (f"{n} {'x' * 40}", f"{n} b", f"{n} c")]


@pytest.mark.parametrize(
    "settings",
    [{}, {"segment_bytes_max": 150}, {"sync": True, "segment_bytes_max": 150}],
    ids=["one segment", "several", "synced"],
)
def test_a_death_at_any_point_leaves_every_row_once_and_changes_none(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    points, survived = 0, False
    while not survived:
        folder = tmp_path / str(points)
        folder.mkdir()
        survived = survives(lambda at=folder: incarnation(at, **settings), points)  # type: ignore[misc]
        seen = words(folder) if (folder / "spark/collect/words").exists() else []
        assert seen == EXPECTED[: len(seen)]
        incarnation(folder, **settings)
        assert words(folder) == EXPECTED
        points += 1
    assert points > 20


def test_one_that_dies_again_and_again_comes_to_its_end(tmp_path: Path) -> None:
    for points in range(12, 26):
        folder = tmp_path / str(points)
        folder.mkdir()
        for _ in range(20):
            if survives(lambda at=folder: incarnation(at, segment_bytes_max=150), points):  # type: ignore[misc]
                break
        assert words(folder) == EXPECTED


async def test_a_later_incarnation_goes_on_in_the_same_part(tmp_path: Path) -> None:
    first = opened(tmp_path)
    await first.put(1, data(first, 1))
    second = opened(tmp_path)  # the first was killed: it has closed nothing
    assert second.last_put() == 1
    await second.put(2, data(second, 2))
    assert words(tmp_path) == EXPECTED[:6]
    assert [p.name for p in (tmp_path / "spark/collect/words").iterdir() if p.is_dir()] == ["out.0"]


async def test_what_a_part_held_that_readers_have_deleted_is_not_put_again(tmp_path: Path) -> None:
    first = opened(tmp_path)
    await first.put(1, data(first, 1))
    await first.close()
    log = StreamLog(tmp_path / "spark/collect/words")
    log.refresh()
    log.drop_below({"out.0": 3})
    second = opened(tmp_path)
    await second.put(1, data(second, 1))
    assert words(tmp_path) == []
    await second.put(2, data(second, 2))
    assert words(tmp_path) == EXPECTED[3:6]


async def test_a_part_that_was_closed_stays_as_it_is(tmp_path: Path) -> None:
    first = opened(tmp_path)
    await first.put(1, data(first, 1))
    await first.close()
    second = opened(tmp_path)
    assert second.last_put() == 1
    await second.put(2, data(second, 2))
    log = StreamLog(tmp_path / "spark/collect/words")
    log.refresh()
    assert log.ends() == {"out.0": 3, "out.0-2": 3}


async def test_a_full_disk_is_told_and_the_rest_follows_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, real = opened(tmp_path), os.write
    await writer.put(1, data(writer, 1))
    written: list[int] = []

    def full(fd: int, piece: bytes) -> int:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(real(fd, bytes(piece)[:70]))
        return written[0]

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match=r"cannot write results: No space left.*out\.0") as caught:
        await writer.put(2, data(writer, 2))
    assert passing(caught.value)
    seen = words(tmp_path)
    monkeypatch.undo()
    await writer.put(2, data(writer, 2))
    assert words(tmp_path) == EXPECTED[:6]
    assert words(tmp_path)[: len(seen)] == seen


async def test_lost_power_that_leaves_zeros_is_mended(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    await writer.put(1, data(writer, 1))
    (segment,) = (tmp_path / "spark/collect/words/out.0").glob("*.seg")
    size = segment.stat().st_size
    await writer.put(2, data(writer, 2))
    whole = segment.stat().st_size
    os.truncate(segment, size)
    os.truncate(segment, whole)
    again = opened(tmp_path)
    await again.put(2, data(again, 2))
    assert words(tmp_path) == EXPECTED[:6]


async def test_a_number_that_was_left_out_is_told(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    with pytest.raises(LogError, match="lacks piece 1 of what was put into"):
        await writer.put(2, data(writer, 2))


async def test_an_operator_that_survives_lost_power_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    lasting = dataclasses.replace(context(tmp_path), durable="power")
    writer = SparkCollect("words", "word string").open(lasting)
    synced.clear()
    await writer.write(["a"])
    assert len(synced) == 2  # where the rows will lie, then the rows
