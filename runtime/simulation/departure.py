"""Whether an instance may leave, in virtual time: the sibling of the live driver's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.protocol.events import LeaveDecided
from anabranch.protocol.rules.leave import is_leaving
from anabranch.runtime.policies.bounds import is_asked

if TYPE_CHECKING:
    from anabranch.runtime.simulation.instance import Instance

Answer = tuple[LeaveDecided, bool, str]


class Departure:
    def __init__(self, me: Instance) -> None:
        self._me = me
        self._is_asked = is_asked(me.model.scale)
        self._asks = self._may = self._gives_back = False

    def decide(self, event: LeaveDecided, why: str = "") -> None:
        me = self._me
        if not self._is_asked:
            me.decide(event, why)
        elif not self._asks and not self._may:
            me.world.note(me, "decided", why)
            self._asks = True
            me.clock.after(me.world.net.local_s, self._ask, event)

    def _ask(self, event: LeaveDecided) -> None:
        granted, reason = self._me.world.may_leave(self._me)
        answer: Answer = (event, granted, reason)
        self._me.clock.after(self._me.world.net.local_s, self._answered, answer)

    def _answered(self, answer: Answer) -> None:
        event, granted, reason = answer
        self._asks = False
        if not granted:
            self._me.world.note(self._me, "veto", reason)
            return
        self._may = True
        self._me.feed(event)
        self.look()

    def resume(self) -> None:
        """Whether an earlier incarnation was about to leave: then it was let go."""
        self._may = self._is_asked and is_leaving(self._me.core.state)
        self._me.world.let_go(self._me, self._may)

    def look(self) -> None:
        """An operation is over, or the core has vetoed."""
        if self._may and not is_leaving(self._me.core.state):
            self._may, self._gives_back = False, True
            if self._me.journal is None:
                self.commit()
            else:
                self._me.journal.want()

    def commit(self) -> None:
        """What it has said so far is safe."""
        if self._gives_back:
            self._gives_back = False
            self._me.world.let_go(self._me, False)
