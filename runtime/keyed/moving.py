"""The contents of a key group as chunks of bytes, and chunks as contents again.

A chunk has a header (the group, two flags, the incarnation of the giver, a number) and a pickle
with some of the group's keys, or with tuples that were kept for it; a pickle longer than a chunk
may be is sent in parts. So every chunk is bounded, whatever a group or the state of a single key
has grown to. A later incarnation of the giver sends all of a group again: what came from earlier
ones is dropped.

**Unpickling runs code**: chunks may only come from a process of the same run, as batches.
"""

from __future__ import annotations

import pickle
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from anabranch.runtime.keyed.pickling import pickled
from anabranch.runtime.keyed.store import Entry
from anabranch.runtime.processing.marks import NO_MARK
from anabranch.runtime.processing.steps import StepError
from anabranch.runtime.reporting.failure import StateSpoilt
from anabranch.runtime.values.foreign import describe, shown

_MARK = 0x43
"""The first byte of a chunk: no pickle begins with it."""
_HEADER = struct.Struct(">BHBII")
_PART, _LAST = 1, 2


class Head(NamedTuple):
    """What a chunk begins with. `number`: of this chunk among those of its group."""

    mark: int
    group: int
    flags: int
    incarnation: int
    number: int

    @classmethod
    def of(cls, chunk: bytes) -> Head:
        return cls._make(_HEADER.unpack_from(chunk))


def is_chunk(data: bytes) -> bool:
    return data[:1] == bytes((_MARK,))


class Kept(NamedTuple):
    """A tuple of a group on the move, with the watermark at its arrival, and the mark
    by which it is late or is not, if it has one that contains more."""

    key: Any
    item: Any
    side: int
    watermark: float
    mark: float = NO_MARK


class Measure:
    """How many things fit into a chunk, by the length of those before."""

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self.n = 1

    def note(self, n: int, size: int) -> None:
        fitting = int(0.9 * n * self._chunk_bytes / max(size, 1))
        self.n = max(1, min(fitting, 4 * max(n, self.n)))


class Giver:
    """Cuts groups in chunks. `operator`: for errors; `incarnation`: which incarnation of this
    instance it is.
    `leave`: called for each key that cannot be pickled and is left out; without it such a key ends
    this incarnation (`StateSpoilt`)."""

    def __init__(
        self,
        operator: str,
        chunk_bytes: int,
        incarnation: int,
        leave: Callable[[Any, BaseException], None] | None = None,
    ) -> None:
        self._operator = operator
        self._leave = leave
        self._incarnation = incarnation
        self._chunk_bytes = max(1, chunk_bytes)
        self._entries = Measure(self._chunk_bytes)
        self._kept = Measure(self._chunk_bytes)
        self._chunks_of: Counter[int] = Counter()

    @property
    def tuples_fitting(self) -> int:
        """How many kept tuples should be given at once."""
        return self._kept.n

    def keys(self, group: int, some: Callable[[int], list[Entry]]) -> Iterator[bytes]:
        """All keys of a group, which `some` gives, as many as it is asked for."""
        while entries := some(self._entries.n):
            data = self._pickled(group, entries, [])
            self._entries.note(len(entries), len(data))
            yield from self._chunks(group, data)

    def tuples(self, group: int, kept: list[Kept]) -> Iterator[bytes]:
        data = self._pickled(group, [], kept)
        self._kept.note(len(kept), len(data))
        yield from self._chunks(group, data)

    def last(self, group: int, kept: list[Kept], heat: float) -> list[bytes]:
        """What must leave together."""
        data = self._pickled(group, [], kept, heat)
        return [*self._chunks(group, data, _LAST)]

    def _chunks(self, group: int, data: bytes, flags: int = 0) -> Iterator[bytes]:
        size = self._chunk_bytes
        for start in range(0, len(data), size):
            part = _PART if start + size < len(data) else 0
            head = Head(_MARK, group, part or flags, self._incarnation, self._chunks_of[group])
            self._chunks_of[group] += 1
            yield _HEADER.pack(*head) + data[start : start + size]

    def _pickled(
        self, group: int, entries: list[Entry], kept: list[Kept], heat: float = 0.0
    ) -> bytes:
        plain = [tuple(k) for k in kept]
        try:
            return pickled((entries, plain, heat))
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:
            bad = {number: e for number, one in enumerate(entries) if (e := _refusal(one))}
            if bad and self._leave is not None:
                for number, why in bad.items():
                    self._leave(entries[number][0], why)
                entries = [one for number, one in enumerate(entries) if number not in bad]
                return pickled((entries, plain, heat))
            where = f"group {group}"
            for one in (*entries, *kept):
                if _refusal(one) is not None:
                    where = f"key {shown(one[0])}"
                    break
            raise StateSpoilt(
                f"operator {self._operator!r}, {where}: what is kept of it cannot go to another "
                f"instance ({describe(error)}); states must be values that can be pickled"
            ) from error


def _refusal(one: tuple[Any, ...]) -> BaseException | None:
    """Why an entry, or a kept tuple, cannot be pickled."""
    try:
        pickled(one)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return error
    return None


@dataclass(slots=True)
class Arrival:
    """What has come of a group, in so many chunks, from this incarnation of its giver. `complete`:
    all.
    `parts`: the beginning of a pickle that is longer than a chunk."""

    incarnation: int = 1
    chunks: int = 0
    complete: bool = False
    heat: float = 0.0
    entries: list[Entry] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    parts: bytearray = field(default_factory=bytearray)

    def take(self, operator: str, head: Head, chunk: bytes) -> None:
        """Take in the next chunk."""
        self.chunks += 1
        data: bytes | bytearray = chunk[_HEADER.size :]
        if self.parts or head.flags & _PART:
            self.parts += data
            if head.flags & _PART:
                return
            data, self.parts = self.parts, bytearray()
        try:
            entries, kept, heat = pickle.loads(data)
        except Exception as error:
            raise StepError(
                f"operator {operator!r}, group {head.group}: what was kept by another instance "
                f"cannot be read here: {describe(error)}"
            ) from error
        self.entries += entries
        self.kept += map(Kept._make, kept)
        self.heat = heat
        self.complete = bool(head.flags & _LAST)

    def as_plain(self) -> tuple[Any, ...]:
        """Its fields, as values that pickle fast."""
        kept = [tuple(k) for k in self.kept]
        return (
            *(self.incarnation, self.chunks, self.complete, self.heat),
            *(self.entries, kept, bytes(self.parts)),
        )

    @classmethod
    def of_plain(cls, plain: tuple[Any, ...]) -> Arrival:
        incarnation, chunks, complete, heat, entries, kept, parts = plain
        made = [Kept._make(k) for k in kept]
        return cls(incarnation, chunks, complete, heat, entries, made, bytearray(parts))
