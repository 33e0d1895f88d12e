"""Puts the tuples of several ways in one order: by mark, then by place in the input.

Batches come sorted by the mark and the place of their first tuples. Usually each ends before the
next begins, and is passed on as it is. Where they overlap, as do results of several partitions,
the tuples before the first of the next batch are passed on, in runs of the same batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from anabranch.runtime.processing.marks import NO_MARK
from anabranch.spark_engine.rows import Block

Key = tuple[float, int]


@dataclass(slots=True)
class Run:
    """Tuples `start` to `end` of a batch from the way `way`."""

    way: int
    block: Block
    start: int
    end: int


class _Open:
    """A batch of which some tuples are not passed on yet."""

    def __init__(self, way: int, block: Block, first: Key, turn: int) -> None:
        self.way = way
        self.block = block
        self.at = 0
        self.turn = turn
        self.first = first
        self.last = _last_key(block, first)
        self._keys: list[Key] = []

    @property
    def keys(self) -> list[Key]:
        if not self._keys:
            self._keys = [*_keys(self.block, self.first)]
        return self._keys

    @property
    def ended(self) -> bool:
        return self.at >= len(self.block.tuples)

    def cut(self, before: Key | None) -> int:
        """Behind the last tuple that comes before the first one of a batch that comes later."""
        if before is None or self.last < before:
            return len(self.block.tuples)
        return bisect_left(self.keys, before, lo=self.at)


def _last_key(block: Block, first: Key) -> Key:
    """Of the last tuple, as `_keys` has it."""
    if block.marks is None:
        place = block.places if isinstance(block.places, int) else max(block.places)
        return max(first, (NO_MARK, place))
    if isinstance(block.places, int):
        return max(first, (max(block.marks), block.places))
    return max(first, *zip(block.marks, block.places, strict=True))


def _keys(block: Block, first: Key) -> Iterator[Key]:
    """Of each tuple, never before that of the one in front of it."""
    last = first
    for at in range(len(block.tuples)):
        key = block.mark_at(at), block.place_at(at)
        if key > last:
            last = key
        yield last


class Merger:
    """`push` and `rest` give what can be passed on."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._turn = 0

    def push(self, way: int, block: Block, first: Key) -> Iterator[Run]:
        """`first`: by what the batch was sorted."""
        yield from self._before(first)
        self._turn += 1
        self._open.append(_Open(way, block, first, self._turn))

    def rest(self) -> Iterator[Run]:
        yield from self._before(None)

    def _before(self, key: Key | None) -> Iterator[Run]:
        if len(self._open) == 1:  # the usual case costs nothing per tuple
            (one,) = self._open
            start, one.at = one.at, one.cut(key)
            if one.at > start:
                yield Run(one.way, one.block, start, one.at)
        else:
            yield from _runs(self._sorted(key))
        self._open = [one for one in self._open if not one.ended]

    def _sorted(self, key: Key | None) -> list[tuple[Key, int, int, _Open]]:
        """Tuples of all batches before `key`, with their places in these."""
        ready: list[tuple[Key, int, int, _Open]] = []
        for one in self._open:
            end = one.cut(key)
            ready += [(one.keys[at], one.turn, at, one) for at in range(one.at, end)]
            one.at = end
        ready.sort(key=_by_key)
        return ready


def _by_key(item: tuple[Key, int, int, Any]) -> tuple[Key, int, int]:
    return item[:3]


def _runs(ready: list[tuple[Key, int, int, _Open]]) -> Iterator[Run]:
    run: Run | None = None
    for _, _, at, one in ready:
        if run is not None and run.block is one.block and run.end == at:
            run.end = at + 1
            continue
        if run is not None:
            yield run
        run = Run(one.way, one.block, at, at + 1)
    if run is not None:
        yield run
