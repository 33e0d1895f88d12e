"""A copy of one journal on the disk of its holder: a folder with a file for each part, named by
number and author, and a small one with what the holder must not forget."""

from __future__ import annotations

import os
import re
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import msgpack

from anabranch.protocol.copies import CopyError, CopyHolder, Part, Parts
from anabranch.runtime.live.journal.journal import whole_bytes
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import File
from anabranch.runtime.storage.replaced import replace_file

STATE = "copy"
_PART = re.compile(r"(\d{1,19})\.(\d{1,19})")


class StoredCopy:
    """`boot`: of the host. `known`: whether a writer has ever opened it; a copy of which that is
    not known may have been lost, and cannot be read. Whatever raises `OSError` leaves a copy that
    is as it was, or shorter than it could be: look again (`load`)."""

    def __init__(self, folder: Path, boot: str) -> None:
        self.folder = folder
        self.holder = CopyHolder()
        self.known = False
        self._boot = boot
        self._store = store()
        self._saved: tuple[int, bool, bool] | None = None
        """What the small file says: what is fenced, and whether the copy has all that it had."""
        self._file: File | None = None
        self._open_part = (0, 0)
        self.load()

    def load(self) -> None:
        """What is on the disk. Raises `CopyError` if that is nothing that a holder has left."""
        self._close_file()
        fenced, boot, sound, self.known = 0, "", False, False
        path = self.folder / STATE
        if self._store.exists(path):
            try:
                fenced, boot, sound, self.known = msgpack.unpackb(self._store.read(path))
            except ValueError as error:
                raise CopyError(f"{path} is damaged: {error}") from None
        is_sound = sound and bool(boot) and boot == self._boot
        self._saved = (fenced, True, self.known) if is_sound else None
        parts = tuple(part for part in self._there() if part.size)
        holder = CopyHolder(fenced, parts)
        self.holder = holder if is_sound else holder.damaged(self._whole(parts))

    def _there(self) -> list[Part]:
        found = map(_PART.fullmatch, self._store.names(self.folder))
        names = [(int(name[1]), int(name[2])) for name in found if name]
        return [
            Part(*name, self._store.status(self._path(*name)).st_size) for name in sorted(names)
        ]

    def _whole(self, parts: Parts) -> Parts:
        """Behind a loss of power: whole records. What the journal builds on has none, and is not
        worth checking."""
        whole: list[Part] = []
        for part in parts:
            size = whole_bytes(self._path(part.number, part.author)) if part.number else 0
            if size and (not whole or whole[-1].number < part.number):
                whole.append(part._replace(size=size))
            if size != part.size:
                break
        self._shorten(tuple(whole))
        return tuple(whole)

    # -- what a writer says --------------------------------------------------------------------

    def fence(self, incarnation: int) -> None:
        self._become(self.holder.fence(incarnation))

    def opened(self, incarnation: int, offered: Parts) -> None:
        after = self.holder.opened(incarnation, offered)
        self.known = True
        self._become(replace(after, parts=self.holder.parts))
        self._shorten(after.parts)
        self._become(after)

    def append(self, incarnation: int, part: Part, at: int, data: bytes) -> None:
        """`part`: with its size when that is written."""
        after = self.holder.appended(incarnation, part, at)
        held = {p.number: p.size for p in self.holder.parts}.get(part.number, 0)
        if new := data[held - at :]:
            self._file_of(part).append(new)
        self._become(after)

    def drop(self, incarnation: int, before: int) -> None:
        after = self.holder.dropped(incarnation, before)
        self._shorten(after.parts)
        self._become(after)

    def read(self, part: Part, at: int, size: int) -> bytes:
        path = self._path(part.number, part.author)
        with closing(self._store.open(path, os.O_RDONLY)) as file:
            return file.read(size, at)

    def remove(self) -> None:
        self._close_file()
        if self._store.is_folder(self.folder):
            self._store.remove_folder(self.folder)
        self.load()

    def close(self) -> None:
        self._close_file()

    @property
    def size(self) -> int:
        return sum(part.size for part in self.holder.parts)

    # -- the disk --------------------------------------------------------------------------------

    def _become(self, after: CopyHolder) -> None:
        """What must not be forgotten is on the disk before anything follows from it."""
        told = after.fenced, after.readable, self.known
        if told != self._saved:
            if not self._store.is_folder(self.folder):
                self._store.make_folder(self.folder, 0o700, parents=True)
                self._store.sync_folder(self.folder.parent)
            replace_file(self.folder / STATE, msgpack.packb([told[0], self._boot, *told[1:]]))
            self._saved = told
        self.holder = after

    def _shorten(self, to: Parts) -> None:
        """A death leaves something that is in one piece."""
        self._close_file()
        kept = {part[:2]: part.size for part in to}
        oldest = to[0].number if to else 0
        there = self._there()
        older = [part for part in there if part.number < oldest]
        for number, author, size in [*older, *reversed(there[len(older) :])]:
            path, least = self._path(number, author), kept.get((number, author))
            if least is None:
                self._store.remove(path)
            elif least < size:
                with closing(self._store.open(path, os.O_RDWR)) as file:
                    file.truncate(least)

    def _file_of(self, part: Part) -> File:
        if self._file is None or self._open_part != part[:2]:
            self._close_file()
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._file = self._store.open(self._path(part.number, part.author), flags)
            self._open_part = part[:2]
        return self._file

    def _close_file(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        self._file = None

    def _path(self, number: int, author: int) -> Path:
        return self.folder / f"{number}.{author}"
