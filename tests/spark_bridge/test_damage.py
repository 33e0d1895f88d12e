"""Whatever bit of whatever file of the gateway is another one, or its end is gone: the file is
refused by its name, and nothing of it is taken for data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.runtime.storage.record_log import framed as as_record
from anabranch.runtime.storage.replaced import replace_file
from anabranch.spark_bridge.collecting import Collect
from anabranch.spark_bridge.durable import Damaged, sealed, unsealed
from anabranch.spark_bridge.feed_register import SpoolFile
from anabranch.spark_bridge.frames import FrameError
from anabranch.spark_bridge.gateway_limits import GatewayLimits
from anabranch.spark_bridge.log import LogError, claim_stream, read_stream, stream_dir
from anabranch.spark_bridge.log_reader import StreamLog
from anabranch.spark_bridge.messages import Ack
from anabranch.spark_bridge.places import Place, PlaceUnknown, write_place
from anabranch.spark_bridge.receiving import STAGE_FILE, StageNote, read_note
from anabranch.spark_bridge.sink import SparkCollect
from tests.runtime.storage.test_record_log import damaged
from tests.spark_bridge.support import context, drain, logged
from tests.spark_bridge.test_ends import spool


async def test_a_spool_is_refused_from_there_on(tmp_path: Path) -> None:
    split = spool(tmp_path / "s", ["a", 1], [[2.5, "no text"]], ["b"], dead=(1,))
    for what in damaged(tmp_path / "s"):
        with pytest.raises(FrameError, match=split["path"]):
            pytest.fail(f"{what}: {await drain(split)}")


async def log_of(run_dir: Path, *puts: int, **settings: Any) -> Path:
    writer = SparkCollect("words", "word string", **settings).open(context(run_dir))
    for number in puts:
        data, _ = writer.stage([f"{number} {word}" for word in "ab"])
        await writer.put(number, data)
    (part,) = (path for path in (run_dir / "spark/collect/words").iterdir() if path.is_dir())
    return part  # and its writer has not closed it


def words(log: StreamLog, part: str, end: int) -> list[str]:
    log.refresh()
    return [row["word"] for row in logged(log, part, end, "word string")]


async def test_a_log_of_results_is_refused_by_its_reader_and_by_its_writers_next_incarnation(
    tmp_path: Path,
) -> None:
    part = await log_of(tmp_path, 1, 2, 3, segment_bytes_max=50)
    *full, newest = sorted(part.glob("*.seg"))
    assert len(full) == 2
    for path in full:
        for what in damaged(path):
            with pytest.raises(FrameError, match=str(path)):
                pytest.fail(f"{what}: {words(StreamLog(part.parent), part.name, 6)}")
    for what in damaged(newest):
        if what.endswith("another one"):
            with pytest.raises(FrameError, match=str(newest)):
                pytest.fail(f"{what}: {words(StreamLog(part.parent), part.name, 6)}")
        else:
            with pytest.raises(LogError, match=f"{newest} has lost its last rows"):
                pytest.fail(f"{what}: {await log_of(tmp_path, 4)}")
    assert len(words(StreamLog(part.parent), part.name, 6)) == 6


def test_a_staged_part_is_none_so_that_spark_sends_it_again(tmp_path: Path) -> None:
    files = (SpoolFile("parts/q/0/0/00000.spool", 3, 90),)
    note = StageNote("lines", "q", "r", 0, 0, "t", files)
    path = tmp_path / STAGE_FILE
    path.write_bytes(as_record(msgspec.msgpack.encode(note)))
    assert read_note(tmp_path) == note
    assert [what for what in damaged(path) if read_note(tmp_path) is not None] == []


def test_results_of_an_earlier_version_are_refused(tmp_path: Path) -> None:
    """They were no batches of Arrow."""
    claim_stream(tmp_path, "word string")
    path = tmp_path / "stream.json"
    info = unsealed(path)
    del info["rows"]
    replace_file(path, sealed(info))
    with pytest.raises(LogError, match="results of an earlier version of Anabranch; collect them"):
        read_stream(tmp_path)


def acks(state: Path) -> Path:
    folder = stream_dir(state, "words")
    info = claim_stream(folder, "word string")
    collect = Collect(state, {"words": "word string"}, GatewayLimits())
    collect.acknowledge(
        Ack(stream="words", generation=info.generation, subscriber="query", parts={})
    )
    return folder / "acks.json"


def stream(state: Path) -> Path:
    claim_stream(stream_dir(state, "words"), "word string")
    return stream_dir(state, "words") / "stream.json"


def place(state: Path) -> Path:
    return write_place(state, "127.0.0.1:1234", "secret")


SMALL: list[tuple[Callable[[Path], Path], Callable[[Path], object], type[Exception]]] = [
    (acks, lambda s: Collect(s, {"words": "word string"}, GatewayLimits()), Damaged),
    (stream, lambda s: read_stream(stream_dir(s, "words")), LogError),
    (place, Place.of_run, PlaceUnknown),
]


@pytest.mark.parametrize(("make", "read", "error"), SMALL, ids=["acks", "stream", "gateway"])
def test_a_small_file_is_refused(
    make: Callable[[Path], Path],
    read: Callable[[Path], object],
    error: type[Exception],
    tmp_path: Path,
) -> None:
    path = make(tmp_path)
    for what in damaged(path):
        with pytest.raises(error, match=str(path)):
            pytest.fail(f"{what}: {read(tmp_path)}")
    read(tmp_path)


def test_a_file_sealed_by_hand_tells_what_it_says() -> None:
    assert sealed({"ended": True}).startswith(b'{"ended": true, "crc": ')
