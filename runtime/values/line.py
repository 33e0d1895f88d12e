"""A list that is added to at its end and taken from at its front, each at the cost of what is added
or taken, however long it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Line(Generic[T]):
    """`append` is that of the list itself, for it is called for each item; it stays the same."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._start = 0
        """How many at the front of the list have been taken: so many are removed at once."""
        self.append: Callable[[T], None] = self._items.append

    def __len__(self) -> int:
        return len(self._items) - self._start

    def extend(self, items: Iterable[T]) -> None:
        self._items += items

    def part(self, start: int = 0, end: int | None = None) -> list[T]:
        """A copy of the items from place `start` up to `end`, which stay."""
        last = None if end is None else self._start + end
        return self._items[self._start + start : last]

    def take(self, n: int) -> list[T]:
        """The first `n`, or all if there are less."""
        items, start = self._items, self._start
        end = start + n
        taken = items[start:end]
        if 2 * end > len(items):
            del items[:end]
            end = 0
        self._start = end
        return taken
