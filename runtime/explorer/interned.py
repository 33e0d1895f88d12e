"""Small numbers for values that are costly to compare."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Interned(Generic[T]):
    """Equal values get one small number."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found

    def __len__(self) -> int:
        return len(self.values)
