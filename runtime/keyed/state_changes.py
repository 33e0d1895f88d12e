"""What has changed of an instance's key groups since it was written down last.

Keys are noted by name only: what becomes of a key is read off once, when it is written down. States
in parts and timers note themselves which parts and which timers change. All else is noted as words,
(name of the change, its arguments), in the order in which it happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Word = tuple[Any, ...]


class NoStateChanges:
    """For an instance without a journal."""

    def touch(self, keys: Iterable[Any]) -> None:
        """Something may have changed for these keys; those which are no keys do not matter."""

    def forgot(self, keys: Iterable[Any]) -> None: ...

    def add(self, *word: Any) -> None: ...


class StateChanges(NoStateChanges):
    def __init__(self) -> None:
        self.touched: set[Any] = set()
        self.forgotten: set[Any] = set()
        self.words: list[Word] = []
        self.told: list[Word] = []
        """Counters and time, as they were written down last."""

    def touch(self, keys: Iterable[Any]) -> None:
        try:
            self.touched.update(keys)
        except Exception:
            for key in keys:
                self._touch_if_key(key)

    def _touch_if_key(self, key: Any) -> None:
        try:
            self.touched.add(key)
        except Exception:
            return  # no key: its processing reports it

    def forgot(self, keys: Iterable[Any]) -> None:
        self.forgotten.update(keys)

    def add(self, *word: Any) -> None:
        self.words.append(word)
