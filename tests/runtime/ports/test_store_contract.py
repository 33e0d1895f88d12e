"""What a store promises, asked of the real one and of the one in memory in the same words: where
nothing goes wrong, no caller can tell which of them it has."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.ports.disk import DISK, store, using
from anabranch.runtime.ports.store import File, Store
from anabranch.runtime.world.disk import MemoryDisk

NAMES = ("a", "sub/a", "b", "sub/c", "sub", "a/under", "sub/deep/x", "sub/deep")
names = st.sampled_from(NAMES)
places = st.integers(0, 5)
sizes = st.integers(0, 1100)
data = st.binary(max_size=40) | st.integers(500, 600).map(bytes)

READ, WRITE, BOTH = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
MAKE, NEW, EMPTY = os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_CREAT | os.O_TRUNC
opening = st.tuples(
    st.just("open"),
    names,
    st.sampled_from([BOTH | MAKE, BOTH | EMPTY, WRITE | NEW, READ, WRITE, BOTH]),
    st.booleans(),
)
calls = st.one_of(
    opening,
    opening,
    opening,
    st.tuples(st.just("append"), places, st.lists(data, min_size=1, max_size=3)),
    st.tuples(st.just("write"), places, data, sizes),
    st.tuples(st.just("read"), places, sizes, sizes),
    st.tuples(st.just("truncate"), places, sizes),
    st.tuples(
        st.sampled_from(["sync", "sync_data", "status", "lock", "unlock", "twin", "close"]), places
    ),
    st.tuples(st.sampled_from(["read_all", "status_of", "exists", "is_folder", "is_file"]), names),
    st.tuples(st.sampled_from(["names", "remove", "remove_folder", "sync_folder"]), names),
    st.tuples(st.just("make_folder"), names, st.booleans()),
    st.tuples(st.just("rename"), names, names),
)


class Asked:
    """A store, the folder in which it is asked, and the files that are open."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.files: list[tuple[File, bool]] = []
        """And whether it was opened for appending."""

    def answer(self, call: tuple[Any, ...]) -> Any:
        """What is returned, or the error, by what callers see of it."""
        name, *args = call
        try:
            return getattr(self, f"_{name}", lambda *args: self._simple(name, *args))(*args)
        except OSError as error:
            return type(error).__name__, error.errno

    def close(self) -> None:
        for file, _ in self.files:
            file.close()

    def _open(self, name: str, flags: int, appends: bool) -> None:
        flags |= os.O_APPEND * appends
        self.files.append((self.store.open(self.folder / name, flags), appends))

    def _file(self, place: int) -> tuple[File, bool] | None:
        return self.files[place % len(self.files)] if self.files else None

    def _append(self, place: int, pieces: list[bytes]) -> None:
        if (found := self._file(place)) and found[1]:
            found[0].append(*pieces)

    def _write(self, place: int, data: bytes, at: int) -> None:
        if (found := self._file(place)) and not found[1]:
            found[0].write(data, at)

    def _read(self, place: int, size: int, at: int) -> bytes | None:
        return found[0].read(size, at) if (found := self._file(place)) else None

    def _truncate(self, place: int, size: int) -> None:
        if found := self._file(place):
            found[0].truncate(size)

    def _lock(self, place: int) -> bool | None:
        return found[0].lock(wait=False) if (found := self._file(place)) else None

    def _twin(self, place: int) -> None:
        if found := self._file(place):
            self.files.append((found[0].twin(), found[1]))

    def _close(self, place: int) -> None:
        """Nothing else may be asked of it then."""
        if self.files:
            self.files.pop(place % len(self.files))[0].close()

    def _status(self, place: int) -> Any:
        return seen(found[0].status()) if (found := self._file(place)) else None

    def _simple(self, name: str, on: int | str) -> Any:
        if isinstance(on, int):
            return getattr(found[0], name)() if (found := self._file(on)) else None
        return getattr(self.store, name)(self.folder / on)

    def _names(self, name: str) -> list[str]:
        return sorted(self.store.names(self.folder / name))

    def _read_all(self, name: str) -> bytes:
        return self.store.read(self.folder / name)

    def _status_of(self, name: str) -> Any:
        return seen(self.store.status(self.folder / name))

    def _sync_folder(self, name: str) -> None:
        if self.store.is_folder(self.folder / name):
            self.store.sync_folder(self.folder / name)

    def _make_folder(self, name: str, parents: bool) -> None:
        self.store.make_folder(self.folder / name, parents=parents)

    def _rename(self, old: str, new: str) -> None:
        if self.store.is_file(self.folder / old) and not self.store.is_folder(self.folder / new):
            self.store.rename(self.folder / old, self.folder / new)


def seen(status: os.stat_result) -> tuple[bool, int, int]:
    """Kind, length and names: of a folder, the system's own business."""
    if stat.S_ISDIR(status.st_mode):
        return True, 0, 0
    return False, status.st_size, status.st_nlink


@contextmanager
def both_stores() -> Iterator[tuple[Asked, Asked]]:
    folder = Path(tempfile.mkdtemp())
    memory = MemoryDisk().store_of("one")
    memory.make_folder(folder, parents=True)
    real, simulated = Asked(DISK, folder), Asked(memory, folder)
    for asked in (real, simulated):
        asked.store.make_folder(folder / "sub")
    try:
        yield real, simulated
    finally:
        real.close()
        shutil.rmtree(folder)


@given(st.lists(calls, min_size=5, max_size=40))
def test_nobody_can_tell_a_disk_in_memory_from_a_real_one(asked: list[tuple[Any, ...]]) -> None:
    with both_stores() as (real, simulated):
        for call in asked:
            assert simulated.answer(call) == real.answer(call), call
        for name in NAMES:
            for question in ("read_all", "names", "status_of"):
                assert simulated.answer((question, name)) == real.answer((question, name))


@pytest.fixture(params=["real", "in memory"])
def one(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "real":
        return DISK
    memory = MemoryDisk().store_of("one")
    memory.make_folder(tmp_path, parents=True)
    return memory


def test_a_file_that_is_open_outlives_its_name(one: Store, tmp_path: Path) -> None:
    file = one.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    file.write(b"said", 0)
    one.remove(tmp_path / "a")
    assert (file.read(9, 0), file.status().st_nlink) == (b"said", 0)
    other = one.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    assert other.read(9, 0) == b""
    assert other.status().st_ino != file.status().st_ino


def test_a_lock_is_of_one_file_and_its_twins_and_goes_with_the_last(
    one: Store, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    first, second = (one.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    twin = first.twin()
    assert first.lock(wait=False)
    assert twin.lock(wait=False)
    assert not second.lock(wait=False)
    first.close()
    assert not second.lock(wait=False)
    twin.close()
    assert second.lock(wait=True)


async def test_what_is_done_beside_the_loop_has_ended_when_it_says_so(one: Store) -> None:
    done: list[int] = []
    await one.in_thread(lambda: done.append(1))
    assert done == [1]
    task = asyncio.ensure_future(one.in_thread(lambda: done.append(2)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [1, 2]

    def refused() -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        await one.in_thread(refused)


async def test_a_process_has_the_store_that_it_is_given_and_so_have_its_tasks() -> None:
    memory = MemoryDisk().store_of("one")

    async def task() -> Store:
        return store()

    with using(memory):
        running = asyncio.ensure_future(task())
        assert store() is memory
        assert await asyncio.to_thread(store) is memory
    assert store() is DISK
    assert await running is memory
