"""What an instance has of event time from its predecessors, and sends to its successors.

A watermark w states: no tuple with an event time before w follows, but late ones. It travels in the
order of the tuples: behind all results made before it (W8), and through the intake in its turn.
The gate holds what each predecessor has stated last; its value is the least of them. While the
graph changes, these rules keep it true (`docs/protocol.md` 8):

W1  For a new predecessor, an instance first takes the watermark that its creator has sent (the
    newcomer's inputs are routed to it after that).
W2  A newcomer begins with the watermarks that its creator had when it asked for the newcomer.
W3  An instance that expects state of key groups holds back its own watermark until all is in and
    processed: there may be windows in it that are due sooner.
W4  A new owner sends its watermark when it accepts; the giver gives nothing away before its own has
    reached this one. A newcomer is at least as far as its creator was when it began, since
    successors count it so (W1).
W5  Between bringing groups to rest and announcing their new owners the giver holds its own back.
W6  A predecessor that has left counts until what it had sent is processed.
W7  An instance is idle if it has received nothing for long, though it could have, or if it has only
    idle predecessors and holds nothing back: no successor waits for it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.instance.intake import Said

if TYPE_CHECKING:
    from anabranch.runtime.keyed.watermarks import Gate
    from anabranch.runtime.live.instance.outbox import Outbox

NOTHING = (-math.inf, False)
"""What is known of a neighbour that has not spoken: its watermark, and whether it is idle."""


class Watermarks:
    """`stamps`: this instance reads event time from its own results and passes nothing on.
    `period_s`: between two statements; 0: each is made at once."""

    def __init__(self, gate: Gate, outbox: Outbox, *, stamps: bool, period_s: float) -> None:
        self.new_owner = -math.inf
        """How far the one was that has last accepted key groups of mine (W4)."""
        self.counted_from = -math.inf
        """How far successors take me to be before I have stated anything (W1)."""
        self._gate = gate
        self._outbox = outbox
        self._stamps = stamps
        self._period_s = period_s
        self._parting: set[InstanceId] = set()
        self._wanted = NOTHING
        self._stated = NOTHING
        self._ask: Callable[[], None] | None = None
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._successors: frozenset[InstanceId] = frozenset()

    @property
    def how_far(self) -> float:
        """What neighbours may take for my watermark."""
        return max(self._gate.output, self.counted_from)

    @property
    def stated(self) -> float:
        """The watermark that successors have got."""
        return self._stated[0]

    # -- from predecessors -----------------------------------------------------------------

    def change_view(self, succs: frozenset[InstanceId], preds: frozenset[InstanceId]) -> None:
        self._gate.set_preds(preds | self._parting)
        if succs - self._successors and self._stated != NOTHING:
            stated = self._stated
            self._outbox.after_held(lambda branch: _send(branch.channels, stated))
        self._successors = succs

    def leaving(self, channel: Channel) -> Said:
        """W6: what goes into the intake behind its last batch."""
        self._parting.add(channel.peer)
        return Said(channel, channel.number, math.inf, left=True)

    def heard(self, said: Said) -> None:
        if said.left:
            self._parting.discard(said.peer)
            self._gate.forget(said.peer)
        else:
            self._gate.heard(said.peer, said.watermark, said.idle)

    def pass_on(self) -> None:
        if not self._stamps:
            self.state(self._gate.output, idle=self._gate.idle)

    # -- to successors -----------------------------------------------------------------------

    def ask(self, stamps: Callable[[], None]) -> None:
        """Have `stamps` called, which `state`s what is known: now, or soon if that was just now.
        So it costs the same whether results come one by one or by the thousand."""
        self._ask = stamps
        if self._timer is None and not self._closed:
            self._time_is_up()

    def state(self, watermark: float, *, idle: bool) -> None:
        """State this behind all that is held now; at once, or soon if that was done just now. The
        last before the end of the stream is stated in any case: timers that are due by then are
        not those of the end."""
        if watermark == math.inf:
            self._state_rest()
        self._wanted = (max(watermark, self._wanted[0]), idle)
        if self._wanted != self._stated and self._timer is None and not self._closed:
            self._state_now()
            self._wait()

    def _time_is_up(self) -> None:
        self._timer = None
        if (stamps := self._ask) is not None:
            self._ask = None
            self._wait()
            stamps()
        if self._wanted != self._stated:
            self._state_now()
            if self._timer is None:
                self._wait()

    def _wait(self) -> None:
        if self._period_s:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._period_s, self._time_is_up)

    def _state_now(self) -> None:
        stated = self._stated = self._wanted
        self._outbox.after_held(lambda branch: _send(branch.channels, stated))

    def snapshot(self) -> tuple[tuple[float, bool], frozenset[InstanceId]]:
        """What the next incarnation needs."""
        return self._wanted, frozenset(self._parting)

    def restore(self, snapshot: tuple[tuple[float, bool], frozenset[InstanceId]]) -> None:
        self._wanted, parting = snapshot
        self._parting = set(parting)

    def say_again(self) -> None:
        """In a new incarnation: state what was known, behind what is held; successors may have
        it."""
        if self._wanted != NOTHING and not self._closed:
            self._state_now()

    def conclude(self) -> None:
        """State the last that is known, behind all results, and nothing more."""
        if (stamps := self._ask) is not None and not self._closed:
            self._ask = None
            stamps()
        self._state_rest()
        self.close()

    def _state_rest(self) -> None:
        if self._wanted != self._stated and not self._closed:
            self._state_now()

    def close(self) -> None:
        """Nothing more is stated: the end of my stream implies it all."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()


def _send(channels: Iterable[Channel], stated: tuple[float, bool]) -> None:
    for channel in channels:
        channel.send_watermark(*stated)
