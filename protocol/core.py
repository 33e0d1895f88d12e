"""The core of an instance: its state, the one way in, and the memory of what has happened."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.protocol.effects import ChangeView, Effect
from anabranch.protocol.errors import AnabranchProtocolError, LocalProtocolError
from anabranch.protocol.events import BatchReady, BatchReceived, Event
from anabranch.protocol.ids import InstanceId, Topology
from anabranch.protocol.invariants import broken_at
from anabranch.protocol.rules.context import Context
from anabranch.protocol.states import Idle, State
from anabranch.protocol.table import TABLE, Cell, describe, step


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One event at one instance: what caused it, and what it did."""

    number: int
    now: float
    cause: str
    event: Event
    before: str
    after: str
    effects: tuple[Effect, ...]

    def __str__(self) -> str:
        return f"#{self.number} t={self.now:.3f} {self.before}->{self.after} {self.event}"


class Core:
    """One instance's protocol, driven by `handle`.

    `epoch` is the number of the present view: it grows with every change. `trace` keeps the last
    `trace_rows_max` control events; batches are too many to be kept. `table`: another one only
    to show that a broken rule is found out.
    """

    def __init__(
        self,
        me: InstanceId,
        topology: Topology,
        *,
        trace_rows_max: int,
        table: Mapping[tuple[type[State], type], Cell] = TABLE,
    ) -> None:
        self.context = Context(me, topology)
        self._table = table
        self.state: State = Idle()
        self.epoch = 0
        self.events = 0
        self.trace: deque[TraceRow] = deque(maxlen=trace_rows_max)

    @property
    def me(self) -> InstanceId:
        return self.context.me

    def handle(self, event: Event, now: float, cause: str = "") -> tuple[Effect, ...]:
        """Take one event and return the effects to perform, in order.

        `now`: seconds of any clock, for the trace only. `cause`: name of the event, here or at
        the sender, that led to this one. Raises `RemoteProtocolError` or `LocalProtocolError`
        with the story so far; the state is then unchanged.
        """
        before = self.state
        try:
            after, effects = step(self.context, before, event, self._table)
        except AnabranchProtocolError as error:
            what = f"{self.me} ({describe(before)}): {error.what}; event {event}"
            raise type(error)(what, self.trace) from None
        if isinstance(event, BatchReceived | BatchReady):
            return effects
        self.events += 1
        row = (self.events, now, cause, event, describe(before), describe(after), effects)
        self.trace.append(TraceRow(*row))
        if broken := broken_at(self.context, after):
            raise LocalProtocolError(broken, self.trace)
        self.state = after
        self.epoch += any(isinstance(e, ChangeView) for e in effects)
        return effects

    @property
    def last_event(self) -> str:
        """Name of the event handled last, for what it causes elsewhere."""
        return f"{self.me}#{self.events}"
