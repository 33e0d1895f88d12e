"""Splits of several small files: one claim, one agreement and one record for all of them.

    {"path": "in/0102.csv", "files": 3, "list": b"...", "at": 1, "state": ..., "told": ...}

`path` is the first one; `list` has them all, packed, since it travels, and is written down, as a
whole and once. `at` is the place of the one that is read, `state` and `told` where in it, as in the
split of a single file.

The groups of a file's predecessors do not depend on it: files that come behind change none of them.
So a group has a share of the files that came before it, and there are always some dozens of groups
for the instances of a source: 64 of 64 files, 187 of 3,000.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from anabranch.runtime.plan.ends import Chunk, InputError, Reader, RunContext, Split
from anabranch.runtime.ports import clock
from anabranch.runtime.sources.file_reader import FileReader, Written
from anabranch.runtime.sources.listing import FoundFile

SHARE = 32
"""A group has at most this part of the files before it."""
FILES_MAX = 256
NAMES_BYTES_MAX = 16 * 2**10
READ_S = 0.002
"""How long one read may go on to the next files."""

now = clock.monotonic
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[FoundFile]).decode


def groups_of(files: Iterable[FoundFile], bytes_max: int) -> Iterator[list[FoundFile]]:
    """Neighbours of which all are at most so many bytes together; one that is larger is alone."""
    group: list[FoundFile] = []
    bytes_left = names_left = 0
    for number, file in enumerate(files):
        bytes_left, names_left = bytes_left - file.size, names_left - len(file.name)
        files_max = min(number // SHARE, FILES_MAX)
        if group and (len(group) >= files_max or min(bytes_left, names_left) < 0):
            yield group
            group = []
        if not group:
            bytes_left, names_left = bytes_max - file.size, NAMES_BYTES_MAX - len(file.name)
        group.append(file)
    if group:
        yield group


def split_of(group: list[FoundFile]) -> Split:
    return {"path": group[0].path, "files": len(group), "list": _pack(group), "at": 0}


def files_in(split: Split) -> list[FoundFile]:
    """None of a split that is no group."""
    return _unpack(split["list"]) if "list" in split else []


class GroupReader(Reader):
    """Reads one file after the other; each read goes on to the next ones, so that many small files
    take no more turns than a large one."""

    def __init__(self, split: Split, source: Written, context: RunContext) -> None:
        self._split = split
        self._source = source
        self._context = context
        self._files = files_in(split)
        self._at: int = split["at"]
        self._file = self._open({k: split[k] for k in ("state", "told") if k in split})
        self._fault: InputError | None = None
        """Of a file behind those of the last chunk."""

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        if self._fault is not None:
            raise self._fault
        if self._file is None:
            return None
        whole = Chunk([])
        try:
            self._gather(whole, tuples_max, bytes_max)
        except OSError as error:
            if not (whole.tuples or whole.dead or whole.progress):
                chunk = await self._file.read_later(tuples_max, bytes_max, error)
                self._go_on()
                return chunk
        except InputError as error:
            if not (whole.tuples or whole.dead):
                raise
            self._fault = error
        return whole

    def remainder(self) -> Split | None:
        if self._file is None:
            return None
        group = {key: self._split[key] for key in ("path", "files", "list")}
        return {**group, "at": self._at, **(self._file.position() or {})}

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _gather(self, whole: Chunk, tuples_max: int, bytes_max: int) -> None:
        """Raises what will pass as an `OSError`, at the place where `whole` ends."""
        until = now() + READ_S
        while self._file is not None:
            before = self._file.at
            chunk = self._file.read_at_once(tuples_max - len(whole.tuples), bytes_max)
            bytes_max -= self._file.at - before
            if chunk is not None:
                whole.tuples += chunk.tuples
                whole.dead += chunk.dead
                whole.progress += chunk.progress
            self._go_on()
            if len(whole.tuples) >= tuples_max or bytes_max <= 0 or now() >= until:
                return

    def _go_on(self) -> None:
        """To the next file, if this one is read."""
        if self._file is not None and self._file.ended:
            self._file.close()
            self._at += 1
            self._file = self._open({})

    def _open(self, position: Split) -> FileReader | None:
        if self._at == len(self._files):
            return None
        split = {**self._files[self._at].whole, **position}
        return FileReader(split, self._source, self._context)
