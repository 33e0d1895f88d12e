"""State of key groups on its way to an instance. Until it is in, event time is held where it is:
with the state come older tuples (W3)."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable

from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import Group
from anabranch.runtime.keyed.watermarks import Gate

Complete = Callable[[frozenset[Group], Callable[[], None]], None]


class ExpectedState:
    """`complete`: has what was kept for groups processed, and calls back then; `is_in`: called
    when event time is held back for one thing less."""

    def __init__(self, gate: Gate, complete: Complete, is_in: Callable[[], None]) -> None:
        self._gate = gate
        self._complete = complete
        self._tell_in = is_in
        self._last_token = 0
        self._tokens: defaultdict[InstanceId, deque[int]] = defaultdict(deque)

    def expect(self, sender: InstanceId) -> None:
        """The same sender may give more before what it gave first is processed, so each time has
        a token of its own."""
        self._last_token += 1
        self._tokens[sender].append(self._last_token)
        self._gate.hold(self._last_token)

    def complete(self, sender: InstanceId, groups: frozenset[int]) -> None:
        """All of it has come; it is in when what was kept for these groups is processed."""
        tokens = self._tokens[sender]
        token = tokens.popleft()
        if not tokens:
            del self._tokens[sender]
        self._complete(groups, lambda: self._is_in(token))

    def _is_in(self, token: int) -> None:
        self._gate.release(token)
        self._tell_in()
