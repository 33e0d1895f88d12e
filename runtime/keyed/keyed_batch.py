"""A batch of tuples with their keys, or what is left of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class KeyedBatch(NamedTuple):
    """`marks`: of its tuples, if they have any; `follows`: the watermark of their sender follows
    these; `by_key`: that of each key does."""

    keys: list[Any]
    tuples: list[Any]
    side: int
    tag: Any
    marks: list[float] | None = None
    follows: bool = False
    by_key: bool = False

    def first(self, n: int) -> KeyedBatch:
        return self if n >= len(self.tuples) else self._part(slice(n))

    def without(self, n: int) -> KeyedBatch:
        return self._part(slice(n, None)) if n else self

    def _part(self, part: slice) -> KeyedBatch:
        marks = None if self.marks is None else self.marks[part]
        return self._replace(keys=self.keys[part], tuples=self.tuples[part], marks=marks)

    def beginning_with(self, item: Any) -> KeyedBatch:
        """The same with another first tuple."""
        return self._replace(tuples=[item, *self.tuples[1:]])

    def chosen(self, at: Sequence[int]) -> KeyedBatch:
        """Some of its tuples, by their places."""
        if len(at) == len(self.tuples):
            return self
        marks = None if self.marks is None else [self.marks[n] for n in at]
        keys, tuples = [self.keys[n] for n in at], [self.tuples[n] for n in at]
        return self._replace(keys=keys, tuples=tuples, marks=marks)
