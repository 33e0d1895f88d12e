"""The core of an instance: what it holds of the graph around, and the one way into it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from anabranch.protocol.core import Core
from anabranch.protocol.effects import Effect
from anabranch.protocol.events import Event
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import Group, groups_of
from anabranch.protocol.states import Active, State, preds_of, succs_of, waiting_for
from anabranch.runtime.ports import clock

now = clock.monotonic


class Membership:
    """`perform`: does what the core asks for (`performer.Performer`)."""

    perform: Callable[[Effect], None]

    def __init__(self, core: Core) -> None:
        self.core = core
        self._inbox: deque[tuple[Event, str]] = deque()
        self._performing = False

    def feed(self, event: Event, cause: str = "") -> None:
        """Let an event into the core and perform its effects; one after the other, never nested."""
        self._inbox.append((event, cause))
        if self._performing:
            return
        self._performing = True
        try:
            while self._inbox:
                event, cause = self._inbox.popleft()
                for effect in self.core.handle(event, now(), cause):
                    self.perform(effect)
        finally:
            self._performing = False

    @property
    def state(self) -> State:
        return self.core.state

    @property
    def preds(self) -> frozenset[InstanceId]:
        return preds_of(self.core.state)

    @property
    def neighbours(self) -> frozenset[InstanceId]:
        return succs_of(self.core.state) | preds_of(self.core.state)

    def is_related(self, peer: InstanceId) -> bool:
        """Whether the core still has business with a peer."""
        return peer in self.neighbours | waiting_for(self.core.state)

    def siblings_of(self, peer: InstanceId) -> tuple[int, int]:
        """How many instances of the peer's operator I count, and the peer's place among them."""
        all_of_it = [x for x in self.neighbours if x.operator == peer.operator]
        return len(all_of_it), sum(x < peer for x in all_of_it)

    def owned(self) -> frozenset[Group]:
        """Its key groups."""
        state = self.core.state
        return groups_of(state.owned) if isinstance(state, Active) else frozenset()
