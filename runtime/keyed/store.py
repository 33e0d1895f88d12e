"""The states and timers of the keys that are here, with the keys of each group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from anabranch.runtime.keyed.groups import GroupCache
from anabranch.runtime.keyed.parts import Parted
from anabranch.runtime.keyed.schedule import Schedule
from anabranch.runtime.keyed.timers import Names, Rows, Timers

Entry = tuple[Any, Any, Names, Names]
"""All that belongs to a key, ready to travel: the key, its state, its timers in event time and in
processing time. A plain tuple, for a group may have many."""

Columns = tuple[list[Any], list[Any], Rows, Rows]
"""The same of several keys: the keys, their states, their timers. It pickles fast."""


class KeyStore:
    """`states` may be read by any caller, and changed for keys that are in it."""

    def __init__(self, groups: int) -> None:
        self.group_of = GroupCache(groups)
        self.states: dict[Any, Any] = {}
        self.timers = Timers()
        """Those in event time that are set."""
        self.event: Schedule = self.timers
        """What comes up in event time: these, or what follows from the states."""
        self.processing = Timers()
        self._keys: list[set[Any]] = [set() for _ in range(groups)]

    def add(self, key: Any, group: int, state: Any) -> None:
        self.states[key] = state
        self._keys[group].add(key)

    def forget(self, keys: Iterable[Any]) -> None:
        """Keys without timers."""
        states, of_group, group_of = self.states, self._keys, self.group_of
        for key in keys:
            if states.pop(key, _NONE) is not _NONE:
                of_group[group_of[key]].discard(key)

    def without_timers(self, keys: list[Any]) -> list[Any]:
        if not len(self.timers) and not len(self.processing):
            return keys
        return [key for key in keys if not self.timers.has(key) and not self.processing.has(key)]

    def wake(self, group: int) -> None:
        """Have the timers of a group fire that was `put`."""
        self.event.wake(self._keys[group])
        self.processing.wake(self._keys[group])

    def take(self, group: int, keys_max: int) -> list[Entry]:
        """Some keys of a group with all that belongs to them, which are not here any more then."""
        keys = self._keys[group]
        some = [keys.pop() for _ in range(min(keys_max, len(keys)))]
        states = map(self.states.pop, some)
        return list(
            zip(some, states, self.timers.take(some), self.processing.take(some), strict=True)
        )

    def put(self, group: int, entries: list[Entry]) -> None:
        """Their timers sleep until `wake`."""
        self._keys[group].update([key for key, *_ in entries])
        for key, state, event, processing in entries:
            self.states[key] = state
            self.timers.put(key, event)
            self.processing.put(key, processing)

    def drop(self, group: int) -> None:
        """All that the store has of a group."""
        keys = [*self._keys[group]]
        self._keys[group] = set()
        for key in keys:
            del self.states[key]
        self.timers.take(keys)
        self.processing.take(keys)

    def keys(self, group: int) -> list[Any]:
        return [*self._keys[group]]

    def entries(self, keys: list[Any]) -> Columns:
        """All that belongs to these keys, which are here and stay here."""
        states = [*map(self.states.__getitem__, keys)]
        return keys, states, self.timers.names(keys), self.processing.names(keys)

    def replace(self, keys: list[Any], states: list[Any], event: Rows, processing: Rows) -> None:
        """What `entries` gave, instead of what is here of these keys. Timers sleep until `wake`."""
        here, group_of = self.states, self.group_of
        for key, state in zip(keys, states, strict=True):
            if key not in here:
                self._keys[group_of[key]].add(key)
            here[key] = state
        self.timers.replace(keys, event)
        self.processing.replace(keys, processing)

    def take_in(self, kind: Callable[[], Parted], keys: list[Any], news: list[Any]) -> None:
        """Apply records of states in parts. `kind` makes an empty state, for keys that are not here
        yet."""
        for key, one in zip(keys, news, strict=True):
            if key not in self.states:
                self.add(key, self.group_of[key], kind())
            self.states[key].take_in(one)

    def sizes(self) -> list[int]:
        return list(map(len, self._keys))


_NONE = object()
