"""Files and folders of a disk in memory: what processes see of them, and what is on the disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from anabranch.runtime.ports import clock
from anabranch.runtime.ports.store import SECTOR_BYTES
from anabranch.runtime.world.disk_faults import Left


class Change(NamedTuple):
    """`node` has this name from now on; None: nothing has."""

    name: str
    node: DiskNode | None


class DiskNode:
    """A file or a folder. `data`, `names`: as processes see them; `kept`, `kept_names`: as they are
    on the disk."""

    def __init__(self, number: int, mode: int) -> None:
        self.number = number
        self.mode = mode
        self.is_folder = stat.S_ISDIR(mode)
        self.links = 0
        self.data = bytearray()
        self.kept = bytearray()
        self.names: dict[str, DiskNode] = {}
        self.kept_names: dict[str, DiskNode] = {}
        self.changed_s = 0.0
        """Of a folder: when a name in it changed last, by the wall clock."""
        self.holder: object = None
        """What holds the lock."""
        self._written: list[tuple[int, int]] = []
        """What was written since the last sync: from where to where."""
        self._least = 0
        """How long the file was at least since then."""
        self.changes: list[tuple[int, list[Change]]] = []
        """Of names, since the last sync, with the place of each among all of the disk. Those of one
        list come together."""

    def status(self) -> os.stat_result:
        links = 1 if self.is_folder else self.links
        seen = self.mode, self.number, 1, links, 0, 0, len(self.data), 0, self.changed_s, 0
        return os.stat_result(seen, {"st_mtime_ns": int(self.changed_s * 1e9)})

    def all_below(self) -> Iterator[DiskNode]:
        for node in self.names.values():
            yield node
            yield from node.all_below()

    # -- as processes see it ---------------------------------------------------------------------

    def write(self, data: bytes, at: int) -> None:
        if at > len(self.data):
            self._extend(at)
        self.data[at : at + len(data)] = data
        self._note(at, at + len(data))

    def resize(self, size: int) -> None:
        if size > len(self.data):
            self._extend(size)
            return
        del self.data[size:]
        self._least = min(self._least, size)
        self._written = [(a, min(b, size)) for a, b in self._written if a < size]

    def _extend(self, size: int) -> None:
        start = len(self.data)
        self.data.extend(bytes(size - start))
        self._note(start, size)

    def _note(self, start: int, end: int) -> None:
        if self._written and self._written[-1][1] == start:
            start = self._written.pop()[0]
        self._written.append((start, end))

    def change(self, place: int, together: list[Change]) -> None:
        for name, node in together:
            before = self.names.pop(name, None)
            if before is not None:
                before.links -= 1
            if node is not None:
                self.names[name] = node
                node.links += 1
        self.changes.append((place, together))
        self.changed_s = clock.wall()

    # -- on the disk -----------------------------------------------------------------------------

    def sync(self) -> None:
        del self.kept[self._least :]
        self.kept.extend(bytes(max(0, len(self.data) - len(self.kept))))
        for start, end in self._written:
            self.kept[start:end] = self.data[start:end]
        self.kept_names = dict(self.names)
        self._forget()

    def sync_in_part(self, left: Left) -> None:
        """A sync has failed. What did not get to the disk by it will not by the next one either."""
        self.kept = self._what_is_left(left)
        count = left.names(len(self.changes))
        self.kept_names = self._names_left(self.changes[:count])
        self._forget()

    def _forget(self) -> None:
        self._written.clear()
        self.changes.clear()
        self._least = len(self.data)

    def lose_power(self, left: Left, before: int) -> None:
        """Of changes of names those are left whose place is `before` this one."""
        self.kept = self._what_is_left(left)
        self.data = bytearray(self.kept)
        self.names = self._names_left([one for one in self.changes if one[0] < before])
        self.kept_names = dict(self.names)
        self.links, self.holder = 0, None
        self._forget()
        for name in sorted(self.names):
            self.names[name].lose_power(left, before)
        for node in self.names.values():
            node.links += 1

    def _what_is_left(self, left: Left) -> bytearray:
        """Sectors that were written since the last sync are each as they are, or as they were."""
        if not self._written and self._least >= len(self.kept):
            return bytearray(self.kept)
        size = left.size(min(self._least, len(self.kept)), len(self.kept), len(self.data))
        found = bytearray(self.kept[:size])
        found.extend(bytes(size - len(found)))
        for sector in self._sectors():
            start, end = sector * SECTOR_BYTES, min((sector + 1) * SECTOR_BYTES, size)
            if start < end and left.sector():
                found[start:end] = self.data[start:end].ljust(end - start, b"\0")
        return found

    def _sectors(self) -> list[int]:
        """Those that are not on the disk as processes see them."""
        ranges = [*self._written, (self._least, len(self.kept))]
        return sorted(
            {n for a, b in ranges if a < b for n in range(a // SECTOR_BYTES, -(-b // SECTOR_BYTES))}
        )

    def _names_left(self, changes: list[tuple[int, list[Change]]]) -> dict[str, DiskNode]:
        names = dict(self.kept_names)
        for name, node in (change for _, together in changes for change in together):
            names.pop(name, None)
            if node is not None:
                names[name] = node
        return names
