"""State of key groups on its way to an instance. Until it is in, event time is held where it is:
with the state come older tuples (W3)."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

from anabranch.protocol.ids import InstanceId

if TYPE_CHECKING:
    from anabranch.runtime.live.instance.instance import Instance


class ExpectedState:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._last_token = 0
        self._tokens: defaultdict[InstanceId, deque[int]] = defaultdict(deque)

    def expect(self, sender: InstanceId) -> None:
        """The same sender may give more before what it gave first is worked off, so each time has
        a token of its own."""
        self._last_token += 1
        self._tokens[sender].append(self._last_token)
        self._instance.gate.hold(self._last_token)

    def complete(self, sender: InstanceId, groups: frozenset[int]) -> None:
        """All of it has come; it is in when what was kept for these groups is worked off."""
        tokens = self._tokens[sender]
        token = tokens.popleft()
        if not tokens:
            del self._tokens[sender]
        self._instance.groups.complete(groups, lambda: self._is_in(token))

    def _is_in(self, token: int) -> None:
        self._instance.gate.release(token)
        self._instance.watermarks.pass_on()
        self._instance.check_drained()
