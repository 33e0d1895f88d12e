"""Journals that were torn, damaged, removed or taken: what a death leaves is gone on from, and of
everything else it is said what is the matter."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.journal import journal as journals
from anabranch.runtime.live.journal.journal import (
    DRAWN,
    Journal,
    JournalError,
    Record,
    read_journal,
    segments,
)
from anabranch.runtime.storage.extent import Extent, ExtentFile, extent_path, read_extent
from tests.runtime.faulty import as_nobody, folder_of_all
from tests.runtime.network import Network
from tests.runtime.processes import PATIENCE_S
from tests.runtime.virtual_time import in_virtual_time

RECORDS = [
    Record([("part", "core", n), ("frame", 0, n, 0, 2)], [b"head%d" % n, bytes([n]) * (40 * n)])
    for n in range(1, 6)
]


def written(path: Path, records: list[Record] = RECORDS, *, power: bool = False) -> list[int]:
    """Write a segment of a journal; returns where each record ends."""
    journal = Journal(path, power=power)
    ends = []
    for record in records:
        journal.append(record)
        ends.append(journal.size)
    journal.close()
    return ends


def read(path: Path, *, power: bool = False) -> list[Record]:
    return list(read_journal(path, power=power))


def noted(path: Path, part: int, size: int) -> None:
    """Let the extent of a journal be this."""
    extent = ExtentFile(path)
    extent.note(part, size)
    extent.close()


@pytest.mark.parametrize("power", [False, True])
def test_a_journal_that_a_death_ends_at_any_byte_tells_all_that_was_whole(
    tmp_path: Path, power: bool
) -> None:
    path = tmp_path / "a.journal"
    ends = written(path, power=power)
    ((_, segment),) = segments(path)
    data = segment.read_bytes()
    for length in range(len(data) + 1):
        segment.write_bytes(data[:length])
        whole = [end for end in (0, *ends) if end <= length]
        noted(path, 1, whole[-1])
        assert read(path, power=power) == RECORDS[: len(whole) - 1]


@pytest.mark.parametrize("length", [0, 1, 511, 512, 1023])
def test_an_extent_that_was_cut_is_refused_unless_power_may_have_done_it(
    tmp_path: Path, length: int
) -> None:
    path = tmp_path / "a.journal"
    written(path)
    os.truncate(extent_path(path), length)
    with pytest.raises(JournalError, match=r"its extent '.*/extents/a\.journal' is damaged"):
        read(path)
    assert read(path, power=True) == RECORDS


@pytest.mark.parametrize("lost", range(1, 6))
def test_a_journal_without_its_last_records_is_refused(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "a.journal"
    ends = [0, *written(path)]
    os.truncate(f"{path}.1", ends[-1 - lost])
    told = rf"a\.journal\.1' has lost its last records, {ends[-1] - ends[-1 - lost]:,} of "
    with pytest.raises(JournalError, match=told):
        read(path)


async def incarnations(path: Path, count: int, *, power: bool) -> list[int]:
    """Write so many segments, as incarnations that died before their snapshot was whole, and an
    empty one behind the first; where the records of the first one end."""
    ends = [0]
    for incarnation in range(count):
        journal = Journal(path, power=power)
        for record in RECORDS:
            journal.append(record)
            if not incarnation:
                ends.append(journal.size)
        if power:
            await journal.synced()
        journal.close()
        if not incarnation:
            Journal(path, power=power).close()
    return ends


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("lost", range(1, 6))
@pytest.mark.parametrize("later", [1, 2])
@in_virtual_time
async def test_a_segment_before_the_last_one_without_its_last_records_is_refused(
    tmp_path: Path, later: int, lost: int, power: bool
) -> None:
    path = tmp_path / "a.journal"
    ends = await incarnations(path, 1 + later, power=power)
    assert read(path, power=power) == RECORDS * (1 + later)
    os.truncate(f"{path}.1", ends[-1 - lost])
    with pytest.raises(JournalError, match=r"a\.journal\.1' has lost its last records, .* bytes, "):
        read(path, power=power)


@in_virtual_time
async def test_what_power_may_have_taken_of_a_segment_is_not_missed(tmp_path: Path) -> None:
    """The name of the next one may be on the disk before the last records of this one."""
    path = tmp_path / "a.journal"
    ends = written(path, power=True)
    journal = Journal(path, power=True)
    journal.append(RECORDS[0])
    await journal.synced()
    journal.close()
    os.truncate(f"{path}.1", ends[1])
    assert read(path, power=True) == [*RECORDS[:2], RECORDS[0]]


def test_a_journal_without_its_last_segment_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    written(path, RECORDS[:3])
    written(path, RECORDS[3:])
    os.unlink(f"{path}.2")
    with pytest.raises(JournalError, match=r"a\.journal\.2' has lost its last records, it is gone"):
        read(path)


@pytest.mark.parametrize("loss", ["gone", "damaged"])
def test_a_journal_without_its_extent_is_refused(tmp_path: Path, loss: str) -> None:
    path = tmp_path / "a.journal"
    written(path)
    extent = extent_path(path)
    if loss == "gone":
        extent.unlink()
    else:
        extent.write_bytes(b"\x55" * extent.stat().st_size)
    with pytest.raises(JournalError, match=r"its extent .*a\.journal'.*; put it back"):
        read(path)


@in_virtual_time
async def test_an_extent_never_runs_ahead_of_what_is_on_the_disk(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.journal", power=True)
    journal.append(RECORDS[0])
    assert read_extent(journal.path, power=False) == Extent(0, 0)
    await journal.synced()
    assert read_extent(journal.path, power=False) == Extent(1, journal.size)
    journal.close()


def test_a_record_whose_extent_cannot_be_noted_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "a.journal")
    journal.append(RECORDS[0])

    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(ExtentFile, "note", refuse)
        with pytest.raises(OSError, match="cannot write the journal"):
            journal.append(RECORDS[1])
    journal.append(RECORDS[2])
    journal.close()
    assert read(journal.path) == [RECORDS[0], RECORDS[2]]


@pytest.mark.parametrize("power", [False, True])
def test_any_byte_that_changed_before_the_last_record_is_told(tmp_path: Path, power: bool) -> None:
    path = tmp_path / "a.journal"
    ends = written(path, power=power)
    ((_, segment),) = segments(path)
    data = segment.read_bytes()
    for at in range(ends[-2]):
        segment.write_bytes(changed(data, at))
        begin = max(end for end in (0, *ends) if end <= at)
        told = rf"a\.journal\.1' (is damaged at byte {begin:,}:|has lost its last records)"
        with pytest.raises(JournalError, match=told):
            read(path, power=power)


def test_any_byte_that_changed_in_the_last_record_is_told(tmp_path: Path) -> None:
    """Pieces too: what they hold, such as the state of keys, is nowhere else."""
    path = tmp_path / "a.journal"
    ends = written(path)
    ((_, segment),) = segments(path)
    data = segment.read_bytes()
    for at in range(ends[-2], ends[-1]):
        segment.write_bytes(changed(data, at))
        with pytest.raises(JournalError, match=r"is damaged at|has lost its last records"):
            read(path)


def test_a_last_record_that_power_was_lost_over_counts_as_never_written(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    ends = written(path, power=True)  # and no extent of records that were never synced
    ((_, segment),) = segments(path)
    data = segment.read_bytes()
    for at in range(ends[-2], ends[-1]):
        segment.write_bytes(changed(data, at))
        assert read(path, power=True) == RECORDS[:-1]
    segment.write_bytes(data[: ends[-2]] + bytes(len(data) - ends[-2]))
    assert read(path, power=True) == RECORDS[:-1]


def test_what_no_death_leaves_is_damage_also_in_the_last_record(tmp_path: Path) -> None:
    """A process that dies leaves the beginning of what it wrote, and never something else."""
    path = tmp_path / "a.journal"
    ends = written(path)
    ((_, segment),) = segments(path)
    data = segment.read_bytes()
    entries = ends[-2] + 12  # behind the lengths and the checksum
    for changes in (changed(data, entries + 3), data + bytes(100)):
        segment.write_bytes(changes)
        with pytest.raises(JournalError, match="was not written by the instance"):
            read(path)


def changed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]


def test_incarnations_that_died_before_they_wrote_anything_leave_empty_segments(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.journal"
    written(path, RECORDS[:2])
    written(path, [])
    written(path, RECORDS[2:])
    assert read(path) == RECORDS


@pytest.mark.parametrize("missing", [1, 2])
def test_a_segment_that_is_missing_is_named(tmp_path: Path, missing: int) -> None:
    path = tmp_path / "a.journal"
    for record in RECORDS[:3]:
        written(path, [record])
    os.unlink(f"{path}.{missing}")
    with pytest.raises(JournalError, match=rf"a\.journal\.{missing} is not there; put it back"):
        read(path)


@pytest.mark.parametrize("left", [[], [1], [1, 2], [2]])
def test_segments_before_a_whole_snapshot_are_not_missed(tmp_path: Path, left: list[int]) -> None:
    """Whatever a death, or lost power, leaves of them while they are removed."""
    path = tmp_path / "a.journal"
    written(path, RECORDS[:1])
    written(path, RECORDS[1:2])
    written(path, [*RECORDS[2:4], Record([DRAWN], [])])
    written(path, RECORDS[4:])
    for number in {1, 2} - {*left}:
        os.unlink(f"{path}.{number}")
    assert read(path) == [*RECORDS[2:4], Record([DRAWN], []), RECORDS[4]]


def test_a_record_that_the_present_program_cannot_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone:
        def __reduce__(self) -> Any:
            return _made_before, ()

    path = tmp_path / "a.journal"
    written(path, [Record([("part", "pump", Gone())], [])])
    monkeypatch.delattr("tests.runtime.live.journal.test_faults_journal._made_before")
    with pytest.raises(JournalError, match=r"cannot be read at byte 0: AttributeError: .*another"):
        read(path)


def _made_before() -> int:
    return 1


def test_a_journal_that_may_not_be_read_is_named() -> None:
    with folder_of_all() as folder:
        path = folder / "a.journal"
        written(path)
        os.chmod(f"{path}.1", 0)
        os.chmod(extent_path(path).parent, 0o755)
        os.chmod(extent_path(path), 0o644)
        told = r"cannot read the journal .*a\.journal\.1': Permission denied"
        with as_nobody(), pytest.raises(JournalError, match=told):
            read(path)


def test_half_a_record_that_could_not_be_cut_off_is_cut_off_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or all that follows would be lost to whoever reads it."""
    path = tmp_path / "a.journal"
    journal = Journal(path)
    journal.append(RECORDS[0])
    real_writev, real_ftruncate = os.writev, os.ftruncate

    def half(fd: int, buffers: list[bytes]) -> int:
        real_writev(fd, [*buffers[:2], buffers[2][:5]])
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def fails(fd: int, length: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "writev", half)
    monkeypatch.setattr(os, "ftruncate", fails)
    for _ in range(2):
        with pytest.raises(OSError, match="cannot write the journal: Input/output error") as met:
            journal.append(RECORDS[1])
        assert met.value.filename == str(path)
    monkeypatch.setattr(os, "writev", real_writev)
    with pytest.raises(OSError, match="cannot write the journal"):
        journal.append(RECORDS[1])
    monkeypatch.setattr(os, "ftruncate", real_ftruncate)
    journal.append(RECORDS[1])
    journal.close()
    assert read(path) == RECORDS[:2]


def test_records_on_a_disk_that_takes_less_and_less_are_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(7)
    path = tmp_path / "a.journal"
    journal = Journal(path)
    real_writev, real_write, room = os.writev, os.write, 0

    def writev(fd: int, buffers: list[bytes]) -> int:
        return write(fd, b"".join(buffers))

    def write(fd: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real_write(fd, bytes(data)[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "writev", writev)
    monkeypatch.setattr(os, "write", write)
    kept: list[Record] = []
    for record in RECORDS * 20:
        room = rng.randrange(600)
        try:
            journal.append(record)
        except OSError:
            assert read(path) == kept
        else:
            kept.append(record)
    monkeypatch.setattr(os, "writev", real_writev)
    monkeypatch.setattr(os, "write", real_write)
    journal.close()
    assert read(path) == kept
    assert 10 < len(kept) < 90


def test_a_segment_that_cannot_be_begun_leaves_the_present_one_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.journal"
    journal = Journal(path)
    journal.append(RECORDS[0])
    real = os.open

    def full(name: Any, flags: int, mode: int = 0o777) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OSError, match="cannot begin a new part of the journal: Too many"):
        journal.begin_segment()
    journal.append(RECORDS[1])
    monkeypatch.setattr(os, "open", real)
    journal.begin_segment()
    journal.append(RECORDS[2])
    journal.close()
    assert [number for number, _ in segments(path)] == [1, 2]
    assert read(path) == RECORDS[:3]


def test_a_journal_that_cannot_be_begun_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "a.journal", os.open

    def full(name: Any, flags: int, mode: int = 0o777) -> int:
        if str(name).endswith(".1"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(name, flags, mode)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OSError, match="No space left"):
        Journal(path)
    monkeypatch.setattr(os, "open", real)
    written(path)
    assert read(path) == RECORDS


def test_a_journal_that_was_removed_is_not_written_into_the_void(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    journal = Journal(path)
    journal.append(RECORDS[0])
    os.unlink(f"{path}.1")
    with pytest.raises(JournalError, match=r"a\.journal' was removed while the run writes it"):
        journal.append(RECORDS[1])
    journal.close()


@in_virtual_time
async def test_the_names_of_an_extent_and_a_new_segment_are_on_the_disk_before_they_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync, os.fdatasync

    def note(sync: Callable[[int], None]) -> Callable[[int], None]:
        def noted(fd: int) -> None:
            synced.append(os.readlink(f"/proc/self/fd/{fd}").removeprefix(str(tmp_path)))
            sync(fd)

        return noted

    monkeypatch.setattr(os, "fsync", note(real[0]))
    monkeypatch.setattr(os, "fdatasync", note(real[1]))
    journal = Journal(tmp_path / "a.journal", power=True)
    for _ in range(2):
        journal.append(RECORDS[0])
        await journal.synced()
    journal.begin_segment()
    await journal.synced()
    journal.close()
    first, second = "/a.journal.1", "/a.journal.2"
    names = ["/extents", ""]
    assert synced == [first, *names, first, second, *names]


@in_virtual_time
async def test_a_disk_that_cannot_sync_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fails)
    journal = Journal(tmp_path / "a.journal", power=True)
    with pytest.raises(OSError, match="cannot sync the journal: Input/output error") as met:
        await asyncio.wait_for(journal.synced(), PATIENCE_S)
    assert met.value.filename == str(tmp_path / "a.journal")
    journal.close()


def chain(out: Path) -> ab.Pipeline:
    pipeline = ab.Pipeline("chain")
    numbers = pipeline.source("numbers", ab.items(range(5_000)))
    numbers.map("double", lambda n: 2 * n).sink("out", ab.jsonl(out))
    return pipeline


@pytest.fixture
async def killed(tmp_path: Path) -> AsyncIterator[tuple[Network, InstanceId]]:
    """A run in which an instance was killed after it had recorded something."""
    network = Network(chain(tmp_path / "out.jsonl"), tmp_path, journals=True)
    await network.start()
    (double,) = network.mortals("double")
    await network.until(lambda: network.instances[double].path.counts.processed > 0)
    network.kill(double)
    yield network, double
    await network.abandon()


@in_virtual_time
async def test_an_incarnation_whose_journal_is_gone_does_not_begin_from_nothing(
    killed: tuple[Network, InstanceId], tmp_path: Path
) -> None:
    network, double = killed
    for _, segment in segments(tmp_path / f"{double}.journal"):
        segment.unlink()
    with pytest.raises(JournalError, match=r"double\.0\.journal' is gone, and with it what double"):
        await network.revive(double)


@in_virtual_time
async def test_a_journal_of_somebody_else_is_not_taken(
    killed: tuple[Network, InstanceId], tmp_path: Path
) -> None:
    network, double = killed
    for _, segment in segments(tmp_path / "double.0.journal"):
        segment.unlink()
    for number, segment in segments(tmp_path / "out.0.journal"):
        (tmp_path / f"double.0.journal.{number}").write_bytes(segment.read_bytes())
    os.replace(extent_path(tmp_path / "out.0.journal"), extent_path(tmp_path / "double.0.journal"))
    with pytest.raises(JournalError, match=r"is that of out\.0, not of double\.0"):
        await network.revive(double)


@pytest.mark.parametrize("keyed", [False, True])
@in_virtual_time
async def test_a_journal_older_than_the_results_at_the_target_is_refused(
    tmp_path: Path, keyed: bool
) -> None:
    """An older copy, its extent with it: only the target knows better."""
    network = Network(long(tmp_path / "out.jsonl", keyed), tmp_path, journals=True)
    await network.start()
    (out,) = network.mortals("out")
    target, path = tmp_path / "out.jsonl", tmp_path / f"{out}.journal"
    await network.until(lambda: target.exists() and target.stat().st_size > 0)
    older, size = files_of(path), target.stat().st_size
    await network.until(lambda: target.stat().st_size > size + 20_000)  # more than two pieces
    network.kill(out)
    for file in files_of(path).keys() - older.keys():
        file.unlink()
    for file, data in older.items():
        file.write_bytes(data)
    told = r"target of the results has piece [\d,]+ of this instance, and its journal '(.+)' ends"
    with pytest.raises(JournalError, match=told) as failed:
        await network.revive(out)
    assert repr(str(path)) in str(failed.value)
    await network.abandon()


def long(path: Path, keyed: bool) -> ab.Pipeline:
    pipeline = ab.Pipeline("numbers")
    numbers: Any = pipeline.source("numbers", ab.generate(lambda n: n, rate=2000, count=200_000))
    (numbers.key_by(lambda n: n % 50) if keyed else numbers).sink("out", ab.jsonl(path))
    return pipeline


def files_of(journal: Path) -> dict[Path, bytes]:
    paths = [extent_path(journal), *(segment for _, segment in segments(journal))]
    return {path: path.read_bytes() for path in paths}


def test_a_journal_is_written_by_one_incarnation_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has to be dead, however it ended, before it can be gone on from."""
    monkeypatch.setattr(journals, "LOCK_TIMEOUT_S", 0.1)
    path = tmp_path / "a.journal"
    first = Journal(path)
    first.append(RECORDS[0])
    with pytest.raises(JournalError, match=r"a\.journal is written by another process"):
        Journal(path)
    first.append(RECORDS[1])
    assert read(path) == RECORDS[:2]
    assert [number for number, _ in segments(path)] == [1]
    first.close()
    Journal(path).close()


@in_virtual_time
async def test_a_journal_that_is_removed_while_it_is_written_fails_its_instance(
    tmp_path: Path,
) -> None:
    network = Network(chain(tmp_path / "out.jsonl"), tmp_path, journals=True)
    await network.start()
    (double,) = network.mortals("double")
    await network.until(lambda: network.instances[double].path.counts.processed > 0)
    for _, segment in segments(tmp_path / "double.0.journal"):
        segment.unlink()
    with pytest.raises(JournalError, match="was removed while the run writes it"):
        await network.running[double]
    await network.abandon()
