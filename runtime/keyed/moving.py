"""The contents of a key group as chunks of bytes, and chunks as contents again.

A chunk has a header (the group, two flags) and a pickle with some of the group's keys, or with
tuples that were kept for it; a pickle longer than a chunk may be is sent in parts. So every chunk
is bounded, whatever a group or the state of a single key has grown to.

**Unpickling runs code**: chunks may only come from a process of the same run, as batches.
"""

from __future__ import annotations

import pickle
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from anabranch.runtime.keyed.store import Entry, Store
from anabranch.runtime.payload import describe
from anabranch.runtime.steps import StepError

_HEADER = struct.Struct(">HB")
_PART, _LAST = 1, 2


class Kept(NamedTuple):
    """A tuple of a group on the move, with the watermark that it met when it came."""

    key: Any
    item: Any
    side: int
    watermark: float


class Measure:
    """How many things fit into a chunk, by the length of those before."""

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self.n = 1

    def note(self, n: int, size: int) -> None:
        fitting = int(0.9 * n * self._chunk_bytes / max(size, 1))
        self.n = max(1, min(fitting, 4 * max(n, self.n)))


class Giver:
    """Cuts groups in chunks. `operator`: for errors."""

    def __init__(self, operator: str, store: Store, chunk_bytes: int) -> None:
        self._operator = operator
        self._store = store
        self._chunk_bytes = max(1, chunk_bytes)
        self._entries = Measure(self._chunk_bytes)
        self._kept = Measure(self._chunk_bytes)

    def keys(self, group: int) -> Iterator[bytes]:
        """All keys of a group, which is not touched by anybody else meanwhile."""
        while entries := self._store.take(group, self._entries.n):
            data = self._pickled(group, entries, [])
            self._entries.note(len(entries), len(data))
            yield from self._chunks(group, data)

    def tuples(self, group: int, kept: deque[Kept]) -> Iterator[tuple[bytes, int]]:
        """Kept tuples but the last few, also those that come meanwhile: chunks, and how many each
        begins with."""
        while len(kept) > self._kept.n:
            some = [kept.popleft() for _ in range(self._kept.n)]
            data = self._pickled(group, [], some)
            self._kept.note(len(some), len(data))
            for number, chunk in enumerate(self._chunks(group, data)):
                yield chunk, 0 if number else len(some)

    def last(self, group: int, kept: deque[Kept], heat: float) -> list[bytes]:
        """What must leave together."""
        data = self._pickled(group, [], list(kept), heat)
        return [*self._chunks(group, data, _LAST)]

    def _chunks(self, group: int, data: bytes, flags: int = 0) -> Iterator[bytes]:
        size = self._chunk_bytes
        for start in range(0, len(data), size):
            part = _PART if start + size < len(data) else 0
            yield _HEADER.pack(group, part or flags) + data[start : start + size]

    def _pickled(
        self, group: int, entries: list[Entry], kept: list[Kept], heat: float = 0.0
    ) -> bytes:
        try:
            return pickle.dumps((entries, [tuple(k) for k in kept], heat), 5)
        except Exception as error:
            where = f"group {group}"
            for key, *rest in (*entries, *kept):
                try:
                    pickle.dumps((key, rest), 5)
                except Exception:
                    where = f"key {key!r}"
                    break
            raise StepError(
                f"operator {self._operator!r}, {where}: what is kept of it cannot go to another "
                f"instance ({describe(error)}); states must be values that can be pickled"
            ) from error


@dataclass(slots=True)
class Arrival:
    """What has come of a group. `complete`: all."""

    entries: list[Entry] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    heat: float = 0.0
    complete: bool = False
    parts: bytearray = field(default_factory=bytearray)

    def take(self, operator: str, chunk: bytes) -> int:
        """Take in the next chunk; how many kept tuples are in it."""
        group, flags = _HEADER.unpack_from(chunk)
        data: bytes | bytearray = chunk[_HEADER.size :]
        if self.parts or flags & _PART:
            self.parts += data
            if flags & _PART:
                return 0
            data, self.parts = self.parts, bytearray()
        try:
            entries, kept, heat = pickle.loads(data)
        except Exception as error:
            raise StepError(
                f"operator {operator!r}, group {group}: what was kept by another instance cannot "
                f"be read here: {describe(error)}"
            ) from error
        self.entries += entries
        self.kept += map(Kept._make, kept)
        self.heat = heat
        self.complete = bool(flags & _LAST)
        return len(kept)


def group_in(chunk: bytes) -> int:
    group: int = _HEADER.unpack_from(chunk)[0]
    return group
