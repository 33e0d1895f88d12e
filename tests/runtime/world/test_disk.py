"""What can go wrong with a disk in memory does, and nothing else."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.ports.disk import store, using
from anabranch.runtime.ports.store import SECTOR_BYTES, File, Store
from anabranch.runtime.world.disk import Killed, MemoryDisk
from anabranch.runtime.world.disk_faults import (
    AllOf,
    Blow,
    ByChance,
    DiskFaults,
    KilledAt,
    Left,
    Lengths,
    SomeOf,
)

A, B = Path("/a"), Path("/b")
MAKE = os.O_RDWR | os.O_CREAT
LOG = MAKE | os.O_APPEND


class OnlyAt(DiskFaults):
    """One kind of call meets this."""

    def __init__(self, call: str, blow: Blow) -> None:
        self._meets = call, blow

    def blow(self, process: str, call: str, path: Path, size: int) -> Blow | None:
        return self._meets[1] if call == self._meets[0] else None


def synced(one: Store, path: Path, data: bytes) -> File:
    file = one.open(path, LOG)
    file.append(data)
    file.sync()
    one.sync_folder(path.parent)
    return file


def after_loss(disk: MemoryDisk, left: Left) -> Store:
    disk.lose_power(left)
    return disk.store_of("next")


def test_a_loss_of_power_leaves_what_was_synced() -> None:
    disk = MemoryDisk()
    one = disk.store_of("one")
    synced(one, A, b"kept").append(b"lost")
    one.open(B, LOG).append(b"lost, too")
    after = after_loss(disk, Left())
    assert (after.names(Path("/")), after.read(A)) == (["a"], b"kept")


@pytest.mark.parametrize(
    ("left", "found"),
    [
        (AllOf(), {"a": b"kept more", "b": b"new"}),
        (AllOf(contents=False), {"a": b"kept", "b": b""}),
        (AllOf(named=False), {"a": b"kept more"}),
        (Lengths(contents=False), {"a": b"kept\0\0\0\0\0", "b": b"\0\0\0"}),
    ],
)
def test_of_the_rest_it_leaves_what_it_is_told_to(left: Left, found: dict[str, bytes]) -> None:
    disk = MemoryDisk()
    one = disk.store_of("one")
    synced(one, A, b"kept").append(b" more")
    one.open(B, LOG).append(b"new")
    after = after_loss(disk, left)
    assert {name: after.read(Path("/") / name) for name in after.names(Path("/"))} == found


@given(st.integers(0, 1000))
def test_a_loss_of_power_leaves_whole_sectors_and_whole_renames(seed: int) -> None:
    disk = MemoryDisk()
    one = disk.store_of("one")
    file = one.open(A, MAKE)
    file.write(b"1" * 4 * SECTOR_BYTES, 0)
    file.sync()
    one.sync_folder(A.parent)
    file.write(b"2" * 3 * SECTOR_BYTES, SECTOR_BYTES)
    synced_b = one.open(B, LOG)
    synced_b.append(b"in place")
    synced_b.sync()
    one.rename(B, A)
    after = after_loss(disk, SomeOf(random.Random(seed)))
    found = after.read(A)
    if found == b"in place":
        assert after.names(Path("/")) == ["a"]
        return
    sectors = [found[at : at + SECTOR_BYTES] for at in range(0, len(found), SECTOR_BYTES)]
    assert sectors[0] == b"1" * SECTOR_BYTES
    assert {one for sector in sectors for one in {*sector}} <= {*b"12"}
    assert all(len({*sector}) == 1 for sector in sectors)


def test_what_a_failed_sync_has_lost_the_next_one_does_not_bring() -> None:
    disk = MemoryDisk()
    one = disk.store_of("one")
    file = synced(one, A, b"kept")
    file.append(b" lost")
    disk.faults = OnlyAt("sync", Blow(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    disk.faults = DiskFaults()
    assert file.read(99, 0) == b"kept lost"
    file.sync()
    file.append(b" new")
    file.sync()
    assert after_loss(disk, AllOf()).read(A) != b"kept lost new"


def test_a_full_disk_takes_a_beginning_and_has_room_again_when_files_go() -> None:
    disk = MemoryDisk(room=10)
    one = disk.store_of("one")
    synced(one, B, b"1234")
    file = one.open(A, LOG)
    with pytest.raises(OSError, match="No space left") as met:
        file.append(b"12345678")
    assert met.value.errno == errno.ENOSPC
    assert one.read(A) == b"123456"
    file.truncate(0)
    one.remove(B)
    file.append(b"1234567890")


def test_a_read_that_fails_fails() -> None:
    disk = MemoryDisk()
    one = disk.store_of("one")
    file = synced(one, A, b"kept")
    disk.faults = OnlyAt("read", Blow(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        file.read(1, 0)
    with pytest.raises(OSError, match="Input/output error"):
        one.read(A)


@pytest.mark.parametrize("after", [0, 3, -1])
def test_nothing_that_a_killed_process_does_in_the_end_has_an_effect(after: int) -> None:
    killed: list[str] = []
    disk = MemoryDisk(KilledAt(1, after))
    one = disk.store_of("one", lambda: killed.append("one"))
    other = disk.store_of("other")
    file = one.open(A, LOG)
    assert file.lock(wait=False)

    def work() -> None:
        try:
            file.append(b"12345")
        finally:
            file.truncate(0)

    with pytest.raises(Killed):
        work()
    for call in (lambda: one.remove(A), lambda: file.append(b"6"), file.sync, lambda: one.read(A)):
        with pytest.raises(Killed):
            call()
    assert killed == ["one"]
    assert other.read(A) == b"12345"[: after % 5 if after >= 0 else after]
    assert other.open(A, LOG).lock(wait=False)


async def test_a_process_that_is_killed_while_a_sync_takes_its_time_syncs_nothing() -> None:
    disk = MemoryDisk(ByChance(random.Random(1), sync_s=1e-3))
    one = disk.store_of("one")
    file = one.open(A, LOG)
    file.append(b"said")
    running = asyncio.ensure_future(one.in_thread(file.sync))
    await asyncio.sleep(0)
    one.kill()
    with pytest.raises(Killed):
        await running
    assert after_loss(disk, AllOf(contents=False)).read(A) == b""


def test_the_same_seed_does_the_same() -> None:
    def met(seed: int) -> dict[str, int]:
        faults = ByChance(random.Random(seed), full=0.2, unreadable=0.2, unsyncable=0.2)
        with using(MemoryDisk(faults).store_of("one")):
            for _ in range(200):
                try:
                    file = store().open(A, LOG)
                    file.append(b"1")
                    file.sync()
                    file.read(1, 0)
                except OSError:
                    pass
        return faults.met

    assert met(7) == met(7) != met(8)
    assert {*met(7)} == {"full", "unreadable", "unsyncable"}
