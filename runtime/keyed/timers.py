"""Timers of keys, of one kind (event time or processing time), soonest first.

A key has one timer of each name. The schedule has an entry for each call that has set a timer;
entries of timers that were moved or cancelled since are not valid any more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from anabranch.runtime.keyed.parts import in_pieces
from anabranch.runtime.keyed.schedule import Schedule

Changes = tuple[list[Any], list[str], list[float | None]]
"""Changes of timers: their keys, their names, when they are due (None: they are gone)."""
Names = dict[str, float]
"""The timers of a key: when each is due."""
Rows = list[Names | None] | None
"""The timers of some keys, key by key; None if none of them has any."""


class Timers(Schedule):
    def __init__(self) -> None:
        super().__init__()
        self._set: dict[Any, Names] = {}
        self._ripe: dict[Any, list[tuple[float, str]]] = {}
        """By key, the timers that are out of the heap at present, by their times."""
        self._live = 0
        self._touched: dict[Any, set[str]] | None = None

    def note_changes(self) -> None:
        """Let `changes` record what happens to each timer."""
        self._touched = {}

    def __len__(self) -> int:
        return self._live

    def set(self, key: Any, name: str, at: float) -> None:
        names = self._set.get(key)
        if names is None:
            names = self._set[key] = {}
        before = names.get(name)
        if before == at:
            return
        names[name] = at
        self._live += before is None
        if self._touched is not None:
            self._touch(key, name)
        self.push(key, name, at)
        self.tidy()

    def cancel(self, key: Any, name: str) -> None:
        names = self._set.get(key)
        if names is not None and names.pop(name, None) is not None:
            self._live -= 1
            if not names:
                del self._set[key]
            if self._touched is not None:
                self._touch(key, name)

    def _touch(self, key: Any, name: str) -> None:
        assert self._touched is not None
        names = self._touched.get(key)
        if names is None:
            self._touched[key] = {name}
        else:
            names.add(name)

    def changes(self, most: int) -> Iterator[Changes]:
        """Changes of timers since the last call, about `most` at a time."""
        if not self._touched:
            return
        touched, self._touched = self._touched, {}
        each = ((key, name) for key, names in touched.items() for name in names)
        for some in in_pieces(each, most):
            yield self.now(some)

    def now(self, some: list[tuple[Any, str]]) -> Changes:
        """The present times of these timers."""
        return [k for k, _ in some], [n for _, n in some], [self._at(k, n) for k, n in some]

    def take_in(self, keys: list[Any], names: list[str], ats: list[float | None]) -> None:
        """Timers that `changes` have recorded elsewhere. They do not fire before `wake`."""
        for key, name, at in zip(keys, names, ats, strict=True):
            of_key = self._set.get(key, {})
            if at is not None:
                self._live += name not in of_key
                of_key[name] = at
                self._set[key] = of_key
            elif of_key.pop(name, None) is not None:
                self._live -= 1
                if not of_key:
                    del self._set[key]

    def may_be_due(self, key: Any, until: float) -> bool:
        """Whether `due_of` may return timers."""
        heap = self.heap
        return key in self._ripe or (bool(heap) and heap[0] <= until)

    def due_of(self, key: Any, until: float) -> list[tuple[float, str]]:
        """The timers of one key that are due, by time and then by name. They stay set, but do not
        fire before they are `put_back`. Timers of other keys that are due are looked at once,
        however many keys ask."""
        heap = self.heap
        while heap and heap[0] <= until:
            at = heap[0]
            for other, name in self._pop():
                if self.stands(other, name, at):
                    self._ripe.setdefault(other, []).append((at, name))
        ripe = self._ripe.pop(key, [])
        self.put_back(key, [timer for timer in ripe if timer[0] > until])
        return sorted(timer for timer in ripe if timer[0] <= until)

    def put_back(self, key: Any, timers: Iterable[tuple[float, str]]) -> None:
        """Put back timers that `due_of` has returned."""
        for at, name in timers:
            self.push(key, name, at)

    def stands(self, key: Any, name: Any, at: float) -> bool:
        names = self._set.get(key)
        return names is not None and names.get(name) == at

    def come_up(self, key: Any, name: Any) -> None:
        self.cancel(key, name)

    def all_due_of(self, key: Any, until: float) -> list[tuple[float, str]]:
        """The same, of a key whose timers sleep."""
        names = self._set.get(key, {})
        return sorted((at, name) for name, at in names.items() if at <= until)

    def _put_all_back(self) -> None:
        ripe, self._ripe = self._ripe, {}
        for key, timers in ripe.items():
            self.put_back(key, timers)

    def next_at(self) -> float:
        """When the next timer is due; +inf if there is none."""
        if self._ripe:
            self._put_all_back()
        return super().next_at()

    def has(self, key: Any) -> bool:
        return key in self._set

    def count(self, key: Any) -> int:
        """How many a key has."""
        return len(self._set.get(key, ()))

    def of_key(self, key: Any) -> list[str]:
        """The names of the timers of a key."""
        return [*self._set.get(key, ())]

    def take(self, keys: list[Any]) -> list[Names]:
        """Cancel all timers of these keys; returns them, key by key."""
        if not self._set:
            return [{}] * len(keys)
        taken = [self._set.pop(key, {}) for key in keys]
        self._live -= sum(map(len, taken))
        return taken

    def put(self, key: Any, names: Names) -> None:
        """Timers that do not fire before `wake`."""
        if names:
            self._live += len(names) - len(self._set.get(key, ()))
            self._set[key] = names

    def names(self, keys: list[Any]) -> Rows:
        """The timers of these keys, which stay set."""
        return [*map(self._set.get, keys)] if self._set else None

    def replace(self, keys: list[Any], rows: Rows) -> None:
        """Replace the timers of keys by these, which do not fire before `wake`; None: keep them."""
        if rows is None:
            return
        if self._set:
            self.take(keys)
        for key, names in zip(keys, rows, strict=True):
            self.put(key, names or {})

    def wake(self, keys: Iterable[Any]) -> None:
        for key in keys if self._set else ():
            for name, at in self._set.get(key, {}).items():
                self.push(key, name, at)

    def drain(self) -> Iterator[tuple[Any, str, float]]:
        """All timers, by time; each is cancelled when it is given."""
        every = [(key, name, at) for key, names in self._set.items() for name, at in names.items()]
        for key, name, at in sorted(every, key=lambda timer: timer[2]):
            if self.stands(key, name, at):
                self.cancel(key, name)
                yield key, name, at

    def _at(self, key: Any, name: str) -> float | None:
        names = self._set.get(key)
        return None if names is None else names.get(name)


def mark_of_end(at: float) -> float:
    """The mark of the results of a timer: just before its time."""
    return math.nextafter(at, -math.inf)
