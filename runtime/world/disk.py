"""A disk in memory, which outlives simulated processes and can lose its power.

Each process reaches it by a store of its own (`MemoryDisk.store_of`). When the process is killed,
the store is shut: whatever still runs of the process gets `Killed` from each call, and changes
nothing. What may go wrong is decided by `faults` (`runtime.world.disk_faults`), which are asked
before each call.

Of each file there are the contents that processes see and those that are on the disk, and of each
folder the names likewise. A loss of power (`lose_power`) leaves what is on the disk, and as much of
the rest as `faults` decides, sector by sector and name by name.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from anabranch.runtime.ports.descriptors import descriptors
from anabranch.runtime.ports.store import File, Held, Store, T
from anabranch.runtime.world.disk_faults import NO_FAULTS, NOTHING_LEFT, Blow, DiskFaults, Left
from anabranch.runtime.world.disk_nodes import Change, DiskNode

PATHS_KEPT = 4_096


class Killed(BaseException):
    """The process has been killed, so nothing of it may go on. Not to be handled by it."""


def refusal(error: int, path: Path | None = None) -> OSError:
    """Of the class that belongs to the number."""
    told = os.strerror(error)
    return OSError(error, told) if path is None else OSError(error, told, str(path))


class MemoryDisk:
    """`room`: how many bytes all files may have together; None: any number. `faults`: what goes
    wrong, and when. `calls`: how often the disk was asked for something."""

    def __init__(self, faults: DiskFaults = NO_FAULTS, room: int | None = None) -> None:
        self.faults = faults
        self.room = room
        self.calls = 0
        self._root = DiskNode(1, stat.S_IFDIR | 0o777)
        self._nodes = 1
        self._changes = 0
        self._stores: list[MemoryStore] = []

    def store_of(self, process: str, on_killed: Callable[[], None] = lambda: None) -> MemoryStore:
        """For a process that begins. `on_killed`: called when a fault kills it."""
        store = MemoryStore(self, process, on_killed)
        self._stores = [one for one in self._stores if one.is_open]
        self._stores.append(store)
        return store

    def lose_power(self, left: Left = NOTHING_LEFT) -> None:
        """All processes end with it."""
        self.end_all()
        places = sorted(place for node in self._folders() for place, _ in node.changes)
        count = left.names(len(places))
        self._root.lose_power(left, [*places, self._changes + 1][count])

    def end_all(self) -> None:
        """All processes end."""
        for store in self._stores:
            store.kill()

    @property
    def size(self) -> int:
        """Of all files that have a name."""
        return sum(len(node.data) for node in self._root.all_below())

    # -- for stores ------------------------------------------------------------------------------

    def make(self, mode: int) -> DiskNode:
        self._nodes += 1
        return DiskNode(self._nodes, mode)

    def change(self, folder: DiskNode, *together: Change) -> None:
        """Let names of a folder mean something else, all at once."""
        self._changes += 1
        folder.change(self._changes, [*together])

    def _folders(self) -> set[DiskNode]:
        """All that there are, and those that are there again if power is lost."""
        found: set[DiskNode] = set()
        to_see = [self._root]
        while to_see:
            node = to_see.pop()
            if node not in found:
                found.add(node)
                to_see += node.names.values()
                to_see += node.kept_names.values()
                to_see += [x.node for _, some in node.changes for x in some if x.node is not None]
        return found

    def find(self, path: Path) -> DiskNode:
        """Raises `FileNotFoundError`, `NotADirectoryError`."""
        node = self._root
        for name in _parts(os.fspath(path)):
            if not node.is_folder:
                raise refusal(errno.ENOTDIR, path)
            if name not in node.names:
                raise refusal(errno.ENOENT, path)
            node = node.names[name]
        return node

    def folder_of(self, path: Path) -> tuple[DiskNode, str]:
        folder = self.find(path.parent)
        if not folder.is_folder:
            raise refusal(errno.ENOTDIR, path)
        return folder, path.name

    def room_for(self, more: int) -> int:
        """How many of so many bytes there is room for."""
        return more if self.room is None else max(0, min(more, self.room - self.size))


@lru_cache(maxsize=PATHS_KEPT)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in os.path.normpath(path).split("/") if part not in {"", "."})


class _Opened:
    """What the files share that are twins; it holds the lock."""

    def __init__(self, node: DiskNode, flags: int) -> None:
        access = flags & os.O_ACCMODE
        self.node = node
        self.reads = access != os.O_WRONLY
        self.writes = access != os.O_RDONLY
        self.appends = bool(flags & os.O_APPEND)
        self.files = 0

    def let_go(self) -> None:
        if self.node.holder is self:
            self.node.holder = None


class MemoryFile(File):
    def __init__(self, store: MemoryStore, opened: _Opened, path: Path) -> None:
        self._store = store
        self._opened = opened
        self._path = path
        self._is_open = True
        opened.files += 1

    def append(self, *pieces: bytes) -> None:
        data = b"".join(pieces)
        opened = self._used(self._opened.writes)
        assert opened.appends, "the file was not opened for appending"
        blow = self._store.asks("append", self._path, len(data))
        self._put(opened.node, data, len(opened.node.data), blow)

    def write(self, data: bytes, at: int) -> None:
        opened = self._used(self._opened.writes)
        assert not opened.appends, "the file was opened for appending"
        grows = at + len(data) > len(opened.node.data)
        blow = self._store.asks("extend" if grows else "write", self._path, len(data))
        self._put(opened.node, data, at, blow)

    def _put(self, node: DiskNode, data: bytes, at: int, blow: Blow | None) -> None:
        taken = len(data) if blow is None else blow.after
        more = max(0, at + taken - len(node.data))
        room = self._store.disk.room_for(more)
        is_full = room < more
        if is_full:
            taken -= more - room
        if taken > 0:
            node.write(data[:taken], at)
        self._store.suffers(blow)
        if is_full:
            raise refusal(errno.ENOSPC)

    def read(self, size: int, at: int) -> bytes:
        node = self._used(self._opened.reads).node
        self._store.suffers(self._store.asks("read", self._path, size))
        if node.is_folder:
            raise refusal(errno.EISDIR)
        return bytes(node.data[at : at + size])

    def take(self, source: int, size: int, at: int) -> int:
        """Where worlds have no descriptors of their own, from one of the system."""
        node = self._used(self._opened.writes).node
        blow = self._store.asks("extend", self._path, size)
        if blow is not None and blow.error:  # what is moved is reported, and no error behind it
            self._store.suffers(blow)
        wanted = size if blow is None else blow.after
        room = self._store.disk.room_for(wanted)
        if wanted and not room:
            raise refusal(errno.ENOSPC)
        data = b""
        if room:
            if not descriptors().can_read(source):
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            data = descriptors().read(source, room)
            node.write(data, at)
        self._store.suffers(blow)
        return len(data)

    def truncate(self, size: int) -> None:
        node = self._used(True).node
        if not self._opened.writes:
            raise refusal(errno.EINVAL)
        self._store.suffers(self._store.asks("truncate", self._path, 0))
        more = size - len(node.data)
        if more > 0 and self._store.disk.room_for(more) < more:
            raise refusal(errno.ENOSPC)
        node.resize(size)

    def sync(self) -> None:
        node = self._used(True).node
        blow = self._store.asks("sync", self._path, 0)
        if blow is not None and blow.error:
            node.sync_in_part(blow.left)
        self._store.suffers(blow)
        node.sync()

    def sync_data(self) -> None:
        self.sync()

    def status(self) -> os.stat_result:
        return self._used(True).node.status()

    def lock(self, *, wait: bool) -> bool:
        opened = self._used(True)
        holder = opened.node.holder
        if holder not in (None, opened):
            if wait:
                raise RuntimeError(f"{self._path} is locked, and all wait while one waits here")
            return False
        opened.node.holder = opened
        return True

    def unlock(self) -> None:
        self._used(True).let_go()

    def twin(self) -> MemoryFile:
        return self._store.opens(self._used(True), self._path)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._opened.files -= 1
            if not self._opened.files:
                self._opened.let_go()

    @property
    def is_open(self) -> bool:
        return self._is_open

    def _used(self, may: bool) -> _Opened:
        self._store.must_live()
        if not self._is_open or not may:
            raise refusal(errno.EBADF)
        return self._opened


class MemoryStore(Store):
    def __init__(self, disk: MemoryDisk, process: str, on_killed: Callable[[], None]) -> None:
        self.disk = disk
        self.process = process
        self.is_open = True
        self._on_killed = on_killed
        self._files: list[MemoryFile] = []

    def kill(self) -> None:
        """The process has ended. Its files are closed, and nothing that it calls has an effect."""
        self.is_open = False
        for file in self._files:
            file.close()
        self._files.clear()

    # -- for files -------------------------------------------------------------------------------

    def must_live(self) -> None:
        if not self.is_open:
            raise Killed(self.process)

    def asks(self, what: str, path: Path, size: int) -> Blow | None:
        """Count a call, and decide what becomes of it."""
        self.must_live()
        self.disk.calls += 1
        return self.disk.faults.blow(self.process, what, path, size)

    def suffers(self, blow: Blow | None) -> None:
        if blow is None:
            return
        if blow.error:
            raise refusal(blow.error)
        self.kill()
        self._on_killed()
        raise Killed(self.process)

    def opens(self, opened: _Opened, path: Path) -> MemoryFile:
        self._files = [file for file in self._files if file.is_open]
        file = MemoryFile(self, opened, path)
        self._files.append(file)
        return file

    # -- as a store ------------------------------------------------------------------------------

    def open(self, path: Path, flags: int, mode: int = 0o600) -> MemoryFile:
        makes = bool(flags & os.O_CREAT) and not self.exists(path)
        self.suffers(self.asks("make" if makes else "open", path, 0))
        folder, name = self._place(path)
        node = folder.names.get(name)
        if node is None:
            if not flags & os.O_CREAT:
                raise refusal(errno.ENOENT, path)
            node = self.disk.make(stat.S_IFREG | mode)
            self.disk.change(folder, Change(name, node))
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            raise refusal(errno.EEXIST, path)
        elif node.is_folder and flags & (os.O_CREAT | os.O_ACCMODE):
            raise refusal(errno.EISDIR, path)
        if flags & os.O_TRUNC:
            node.resize(0)
        return self.opens(_Opened(node, flags), path)

    def read(self, path: Path) -> bytes:
        self.suffers(self.asks("read", path, 0))
        node = self.disk.find(path)
        if node.is_folder:
            raise refusal(errno.EISDIR, path)
        return bytes(node.data)

    def status(self, path: Path) -> os.stat_result:
        self.must_live()
        return self.disk.find(path).status()

    def names(self, folder: Path) -> list[str]:
        self.suffers(self.asks("names", folder, 0))
        return sorted(self.disk.find(folder).names) if self.is_folder(folder) else []

    def make_folder(self, path: Path, mode: int = 0o777, *, parents: bool = False) -> None:
        self.suffers(self.asks("folder", path, 0))
        if parents and not self.exists(path.parent):
            self.make_folder(path.parent, parents=True)
        folder, name = self._place(path)
        if name not in folder.names:
            self.disk.change(folder, Change(name, self.disk.make(stat.S_IFDIR | mode)))
        elif not folder.names[name].is_folder:
            raise refusal(errno.EEXIST, path)

    def rename(self, old: Path, new: Path) -> None:
        self.suffers(self.asks("rename", new, 0))
        source, name = self._place(old)
        target, new_name = self._place(new)
        node, there = source.names.get(name), target.names.get(new_name)
        if node is None:
            raise refusal(errno.ENOENT, old)
        if node is there:
            return
        if there is not None:
            _check_gives_way(node, there, new)
        if source is target:
            self.disk.change(source, Change(name, None), Change(new_name, node))
        else:
            self.disk.change(target, Change(new_name, node))
            self.disk.change(source, Change(name, None))

    def remove(self, path: Path) -> None:
        self.suffers(self.asks("remove", path, 0))
        try:
            folder, name = self._place(path)
        except FileNotFoundError:
            return
        if name not in folder.names:
            return
        if folder.names[name].is_folder:
            raise refusal(errno.EISDIR, path)
        self.disk.change(folder, Change(name, None))

    def remove_folder(self, path: Path) -> None:
        node = self.disk.find(path)
        if not node.is_folder:
            raise refusal(errno.ENOTDIR, path)
        for name in sorted(node.names):
            below = self.remove_folder if node.names[name].is_folder else self.remove
            below(path / name)
        self.suffers(self.asks("remove", path, 0))
        folder, name = self._place(path)
        self.disk.change(folder, Change(name, None))

    def hold(self, folder: Path) -> Held:
        return _NobodyCleans()

    def sync_folder(self, path: Path) -> None:
        blow = self.asks("sync_folder", path, 0)
        folder = self.disk.find(path)
        if blow is not None and blow.error:
            folder.sync_in_part(blow.left)
        self.suffers(blow)
        folder.sync()

    async def in_thread(self, work: Callable[[], T]) -> T:
        self.must_live()
        running = asyncio.ensure_future(self._later(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    async def _later(self, work: Callable[[], T]) -> T:
        """At a moment within the time that it takes."""
        before_s, after_s = self.disk.faults.pauses(self.process)
        await asyncio.sleep(before_s)
        found = work()
        await asyncio.sleep(after_s)
        return found

    def _place(self, path: Path) -> tuple[DiskNode, str]:
        return self.disk.folder_of(path)


class _NobodyCleans(Held):
    """There are no other programs."""

    def close(self) -> None:
        pass


def _check_gives_way(node: DiskNode, there: DiskNode, path: Path) -> None:
    if there.is_folder and not node.is_folder:
        raise refusal(errno.EISDIR, path)
    if node.is_folder and not there.is_folder:
        raise refusal(errno.ENOTDIR, path)
    if there.names:
        raise refusal(errno.ENOTEMPTY, path)
