"""What a channel states of what has come in: how far it is safe, and the credit for more. Both are
totals, so the newest statement is the truth, and one may stand for many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from anabranch.protocol.credit import Grant
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.session import Session
from anabranch.runtime.live.channel import frames
from anabranch.runtime.live.channel.frames import Pieces
from anabranch.runtime.live.channel.line import ChannelLine
from anabranch.runtime.live.channel.log import Log

ACK_DELAY_S = 0.02
"""How long an acknowledgement may wait for something to travel with."""

SiblingsOf = Callable[[InstanceId], tuple[int, int]]
"""How many instances of the operator of a peer there are, and the place of the peer among them."""


class Statements:
    def __init__(
        self,
        peer: InstanceId,
        line: ChannelLine,
        session: Session[Pieces],
        grant: Grant,
        *,
        log: Log | None,
        siblings: SiblingsOf,
    ) -> None:
        self._peer = peer
        self._line = line
        self._session = session
        self._grant = grant
        self._log = log
        self._siblings_of = siblings
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._is_soon = False

    @property
    def acknowledged(self) -> int:
        """Every frame below this number may be forgotten by the peer."""
        return self._session.expected if self._log is None else self._log.safe

    def now(self) -> None:
        self.cancel()
        line, grant = self._line, self._grant
        if not line.connected or line.ended:
            return
        siblings = self._siblings_of(self._peer)
        done, credit = grant.tuples_done, grant.state()
        line.write(frames.frame(frames.ACK_CREDIT, self.acknowledged, *credit, done, *siblings))

    def when_worth(self, *, idle: bool) -> None:
        """Something was processed. `idle`: nothing is left here, which may be news, too: senders
        prefer an instance that has nothing to do."""
        if self._grant.worth_stating or (idle and self._grant.worth_stating_when_idle):
            self.now()
        elif idle:
            self.later()

    def later(self) -> None:
        """What the peer should get has changed."""
        if self._timer is None and self._line.connected:
            self._timer = asyncio.get_running_loop().call_later(ACK_DELAY_S, self.now)
            self._is_soon = False

    def soon(self) -> None:
        """At the end of this step of the loop: the peer waits for it."""
        if self._timer is not None:
            if self._is_soon:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_soon(self.now)
        self._is_soon = True

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
