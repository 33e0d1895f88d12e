"""What has left a pipe, on a disk on which each call may be the last one of its process, or be
refused."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from anabranch.runtime.ports.disk import using
from anabranch.runtime.sources import open_stdin
from anabranch.runtime.sources.spool import DiskError, Spool
from anabranch.runtime.values.kinds import EventKind
from anabranch.runtime.world.disk import Killed, MemoryDisk
from anabranch.runtime.world.disk_faults import Blow, DiskFaults

TEXT = bytes(range(256)) * 3
FOLDER = Path("/spool")
PIECE_BYTES = 200


class At(DiskFaults):
    """One call, the first one being 0, ends so."""

    def __init__(self, call: int, blow: Blow) -> None:
        self.left = call
        self._blow = blow

    def blow(self, process: str, call: str, path: Path, size: int) -> Blow | None:
        self.left -= 1
        return self._blow if self.left == -1 else None


@pytest.fixture
def pipe() -> Iterator[int]:
    out, into = os.pipe()
    os.write(into, TEXT)
    os.close(into)
    yield out
    os.close(out)


def taken_from(pipe: int, disk: MemoryDisk, process: str) -> bytes:
    """All that is in the spool when the pipe has ended; a full disk is tried again."""
    with using(disk.store_of(process)):
        spool = Spool(FOLDER, piece_bytes=PIECE_BYTES)
        while True:
            try:
                if not spool.take(pipe, 70):
                    break
            except DiskError:
                continue
        found = b""
        while block := spool.read(len(found), 64):
            found += block
        spool.close()
        return found


@pytest.mark.parametrize("after", [0, 1, 50])
@pytest.mark.parametrize("call", range(30))
def test_a_death_leaves_each_byte_in_the_pipe_or_in_the_spool(
    pipe: int, call: int, after: int
) -> None:
    faults = At(call, Blow(0, after))
    disk = MemoryDisk(faults)
    with suppress(Killed):
        taken_from(pipe, disk, "first")
    assert faults.left < 0  # there are so many calls
    assert taken_from(pipe, disk, "second") == TEXT


@pytest.mark.parametrize("call", range(3, 17))
def test_what_finds_no_room_stays_in_the_pipe(pipe: int, call: int) -> None:
    faults = At(call, Blow(errno.ENOSPC, 30))
    assert taken_from(pipe, MemoryDisk(faults), "only") == TEXT
    assert faults.left < 0


def test_a_disk_with_little_room_takes_what_it_has_room_for(pipe: int) -> None:
    disk = MemoryDisk()
    disk.room = 100
    with using(disk.store_of("only")):
        spool = Spool(FOLDER, piece_bytes=PIECE_BYTES)
        assert (spool.take(pipe, 70), spool.take(pipe, 70)) == (70, 30)
        with pytest.raises(DiskError, match="No space left on device"):
            spool.take(pipe, 70)
        disk.room = None
        assert (spool.take(pipe, 70), spool.end) == (70, 170)


def test_an_empty_pipe_is_no_fault_of_the_disk() -> None:
    out, into = os.pipe()
    try:
        with using(MemoryDisk().store_of("only")), pytest.raises(BlockingIOError):
            Spool(FOLDER).take(out, 70)
    finally:
        os.close(out)
        os.close(into)


class FullAtFirst(DiskFaults):
    """The first calls that need room find none."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def blow(self, process: str, call: str, path: Path, size: int) -> Blow | None:
        if call not in ("make", "extend", "folder") or not self.left:
            return None
        self.left -= 1
        return Blow(errno.ENOSPC)


async def test_standard_input_waits_for_room_from_the_first_file_on(
    pipe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_stdin, "_RETRY_S", 0)
    told: list[EventKind] = []
    faults = FullAtFirst(5)
    disk = MemoryDisk(faults)
    with using(disk.store_of("only")):
        read = open_stdin.SpooledInput(
            pipe, FOLDER, lambda kind, _: told.append(kind), changed=False
        )
        found = b""
        while block := await read.block(len(found), 64):
            found += block
        read.remove()
        assert not disk.store_of("looks").exists(FOLDER)
    assert (found, faults.left) == (TEXT, 0)
    assert told == [EventKind.WAITS, EventKind.GOES_ON] * (len(told) // 2)


async def test_standard_input_on_a_disk_that_cannot_be_written_says_so(pipe: int) -> None:
    with using(MemoryDisk(At(0, Blow(errno.EACCES))).store_of("only")):
        read = open_stdin.SpooledInput(pipe, FOLDER, lambda *_: None, changed=False)
        with pytest.raises(PermissionError):
            await read.block(0, 64)
