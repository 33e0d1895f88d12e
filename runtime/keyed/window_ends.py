"""When the windows of keys end, and are forgotten, by the states of the keys.

The state of its key contains when a window ends. So nothing is kept of its end but
an entry in the schedule, and nothing is recorded or moved with the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from anabranch.runtime.keyed.schedule import Schedule
from anabranch.runtime.keyed.windows import Window


class HeldEnds(Protocol):
    """What a state holds of a window. `ended`: its end has passed."""

    window: Window
    ended: bool


class WindowEnds(Schedule):
    """`states`: of keys, each a dictionary of windows by their names. An entry is an end, or, where
    windows are kept for `lateness_s` more, the time at which one is forgotten."""

    def __init__(self, states: Mapping[Any, Mapping[Any, HeldEnds]], lateness_s: float) -> None:
        super().__init__()
        self._states = states
        self._lateness_s = lateness_s

    def add(self, key: Any, name: Any, held: HeldEnds) -> None:
        """A window has come, or has got another end."""
        end = held.window[1]
        if not held.ended:
            self.push(key, name, end)
        if self._lateness_s:
            self.push(key, name, end + self._lateness_s)

    def stands(self, key: Any, name: Any, at: float) -> bool:
        state = self._states.get(key)
        held = None if state is None else state.get(name)
        if held is None:
            return False
        end = held.window[1]
        if at == end and not held.ended:
            return True
        return self._lateness_s > 0 and at == end + self._lateness_s

    def wake(self, keys: Iterable[Any]) -> None:
        for key in keys:
            for name, held in self._states.get(key, {}).items():
                self.add(key, name, held)
