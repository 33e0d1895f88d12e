"""How far event time has come at an instance: what predecessors say, and what it says itself.

A watermark w says: no tuple with an earlier mark follows. It keeps its place: behind all results
made before it, and in the queue behind the batches that came before it. The rules that keep it
true while instances come, go and take key groups over from each other:

W1  For a new predecessor, an instance first takes the watermark that its creator has sent.
W2  A newcomer begins with the watermarks that its creator had when it announced the newcomer.
W3  An instance that expects state holds its watermark back until the state and all that was kept is
    processed.
W4  A new owner sends its watermark when it accepts; the giver freezes nothing before its own has
    reached this one. A newcomer that has sent none yet is as far as it began: successors count it
    by W1.
W5  From freezing groups to announcing their new owners the giver holds back what it says.
W8  What an instance says follows all results that it held before it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from copy import copy
from typing import TYPE_CHECKING, Any

from anabranch.protocol.ids import InstanceId
from anabranch.protocol.states import Active, ClosingIn, Draining
from anabranch.runtime.keyed.watermarks import Gate
from anabranch.runtime.simulation.channel import Channel
from anabranch.runtime.simulation.fault import Fault

if TYPE_CHECKING:
    from anabranch.runtime.simulation.instance import Instance

FREEZING = "freezing"


class Progress:
    """`gate`: what each predecessor has said, and the least of it; a source knows its own `value`.
    `out`: what this instance may say, `stated`: what it has said, `floor`: where it began."""

    def __init__(self, me: Instance) -> None:
        self.me = me
        self.gate = Gate()
        self.preds: frozenset[InstanceId] = frozenset()
        self.value = self.out = self.stated = self.floor = -math.inf
        self._holds: set[Hashable] = set()

    # -- what predecessors say; in the order of the queue --------------------------------------

    def begin(self, preds: Iterable[InstanceId], value: float) -> None:
        """W2, with all predecessors of the creator; founders begin with nothing. It says nothing
        before it knows whether it expects state."""
        self.gate = Gate(value)
        self.preds = frozenset(preds)
        self.gate.set_preds(self.preds)
        self.value = self.floor = value

    def say(self, pred: InstanceId, watermark: float) -> None:
        self.gate.heard(pred, watermark)
        self._look_at_gate()

    def add(self, new: frozenset[InstanceId], creator: InstanceId) -> None:
        """W1."""
        if creator not in self.preds:
            raise Fault(f"W1: {self.me.me} learns of children of {creator}, which it does not hear")
        self.preds |= new
        self.gate.set_preds(self.preds)
        self._look_at_gate()

    def remove(self, pred: InstanceId) -> None:
        self.preds -= {pred}
        self.gate.forget(pred)
        self._look_at_gate()

    def _look_at_gate(self) -> None:
        if self.gate.value > self.value:
            self.value = self.gate.value
            self.me.work.advance(self.value)
            self.look()

    # -- incarnations ----------------------------------------------------------------------------

    def snapshot(self) -> tuple[Any, ...]:
        """What a commit keeps. Holds are for work under way: they begin again with that work."""
        return copied(self.gate), self.preds, self.value, self.out, self.stated, self.floor

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        gate, self.preds, self.value, self.out, self.stated, self.floor = snapshot
        self.gate = copied(gate)

    # -- what this instance says ---------------------------------------------------------------

    @property
    def counted(self) -> float:
        """At least how far successors take it to be, whatever it has said itself."""
        return max(self.out, self.floor)

    def read_up_to(self, value: float) -> None:
        """A source knows by itself."""
        self.value = max(self.value, value)
        self.look()

    def hold(self, why: Hashable) -> None:
        """W3, W5."""
        self._holds.add(why)

    def release(self, why: Hashable) -> None:
        if why in self._holds:
            self._holds.discard(why)
            self.look()

    def look(self) -> None:
        """Say what may be said."""
        if self._holds or self.value <= self.out:
            return
        self.out = self.value
        self.me.work.out_has_moved()
        self.when_sent(self.out)

    def when_sent(self, watermark: float) -> None:
        """W8."""
        self.me.outbox.when_sent(lambda: self._state(watermark))

    def _state(self, watermark: float) -> None:
        self.stated = max(self.stated, watermark)
        for branch in self.me.outbox.branches:
            for channel in branch.channels:
                self.state_to(channel)

    def state_to(self, channel: Channel) -> None:
        """Also to a successor that is new; never behind the last message to one."""
        if self.stated > -math.inf and isinstance(
            self.me.core.state, Active | ClosingIn | Draining
        ):
            channel.send_watermark(self.stated)


def copied(gate: Gate) -> Gate:
    """With its own sets of what was said."""
    other = copy(gate)
    for name, value in vars(gate).items():
        setattr(other, name, copy(value))
    return other
