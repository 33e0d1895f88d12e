"""The core of one instance, with its effects performed on a node.

This is the explorer's `perform`: the duties of `anabranch.protocol.effects`, one by one, without
a network.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, assert_never

from anabranch.protocol import effects as fx
from anabranch.protocol import events
from anabranch.protocol.errors import AnabranchProtocolError
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import NONE, Ids
from anabranch.protocol.ownership import groups_of
from anabranch.protocol.rules.context import Context
from anabranch.runtime.explorer.coverage import Cell, condition
from anabranch.runtime.explorer.group_duties import GroupDuties
from anabranch.runtime.explorer.items import Owned, Tuple
from anabranch.runtime.explorer.machine import Machine
from anabranch.runtime.explorer.node import Doing, EventOutcome, Fault, Node


class Core:
    """Feeds events of the protocol to one instance, and checks what the core makes of them."""

    def __init__(self, machine: Machine, context: Context, groups: GroupDuties) -> None:
        self.machine = machine
        self.context = context
        self.way: list[Cell] = []
        """Cells of the table that were taken, until they are noted and this is cleared."""
        self._groups = groups

    @property
    def me(self) -> InstanceId:
        return self.context.me

    def handle(self, node: Node, event: events.Event) -> EventOutcome:
        """A batch that is accepted is not in the queue yet: the core counts tuples, and the driver
        knows which."""
        subject = event.message if isinstance(event, events.MessageReceived) else event
        self.way.append((type(subject).__name__, condition(node.state)))
        try:
            state, effects = self.machine.step(self.context, node.state, event)
        except AnabranchProtocolError as error:
            code = re.search(r"\(([IKSL]\d+)\)", error.what)
            raise Fault(f"{code[1] if code else 'ILLEGAL'}: {self.me}: {error.what}") from None
        outcome = self._perform(node._replace(state=state), effects)
        self._check_router(node.state, state, effects, event)
        if broken := self.machine.broken_at(self.context, state):
            raise Fault(broken)
        taken = any(isinstance(e, fx.AcceptBatch) for e in effects)
        if isinstance(event, events.BatchReceived) and not taken:
            raise Fault(f"S1: the tuple is dropped at {self.me}")
        self._check_owner(outcome.node)
        return outcome

    def _perform(self, node: Node, effects: Iterable[fx.Effect]) -> EventOutcome:
        doing = Doing()
        for effect in effects:
            node = self._perform_one(node, effect, doing)
        return EventOutcome(node, tuple(doing.sends), doing.spawn, doing.veto, tuple(doing.answers))

    def _perform_one(self, node: Node, effect: fx.Effect, doing: Doing) -> Node:
        match effect:
            case fx.SendMessage(to, message):
                doing.sends.append((to, message))
            case fx.SendBatch(to, tuples):
                doing.sends.extend((to, Tuple()) for _ in range(tuples))
            case fx.BeginProcessing():
                return node._replace(working=True)
            case fx.AwaitDrained():
                if node.asked:
                    raise Fault(f"duty 5: {self.me} is asked twice to report Drained")
                return node._replace(asked=True)
            case fx.StopIntake():
                return node._replace(reading=False)
            case fx.SpawnInstances(n):
                doing.spawn = n
                return node._replace(forsaken=False)
            case fx.Veto(reason):
                doing.veto = reason
            case fx.Terminate():
                return self._end(node, effect)
            case fx.AcceptBatch() | fx.ChangeView() | fx.ChangeRole() | fx.Conclude():
                pass
            case (
                fx.FreezeGroups()
                | fx.TransferGroups()
                | fx.OwnGroups()
                | fx.ResumeGroups()
                | fx.ExpectState()
                | fx.StateComplete()
            ):
                return self._groups.perform(node, effect, doing)
            case _ as unknown:
                assert_never(unknown)
        return node

    def _end(self, node: Node, effect: fx.Terminate) -> Node:
        if node.queue or node.incoming or node.outgoing:
            raise Fault(f"I11: {self.me} terminates with tuples or state that it has not worked in")
        if effect.reason == "left" and node.owned:
            raise Fault(f"K4: {self.me} terminates and owns {_named(node.owned)}")
        return Node(node.state, reading=False, ended=True)

    def _check_router(
        self, before: Any, after: Any, effects: Iterable[fx.Effect], event: events.Event
    ) -> None:
        """Duty 4: a router gets the successors from `ChangeView` alone."""
        told = [e.succs for e in effects if isinstance(e, fx.ChangeView)]
        fresh = isinstance(event, events.Restarted)
        known: Ids = told[-1] if told else NONE if fresh else self.machine.succs(before)
        if self.machine.routes(after) and known != self.machine.succs(after):
            raise Fault(f"duty 4: the router of {self.me} does not know its view")

    def _check_owner(self, node: Node) -> None:
        owned = groups_of(self.machine.owned(node.state))
        if self.machine.routes(node.state) and owned != {g for g, _ in node.owned}:
            code = "K5" if self.machine.is_active(node.state) else "K4"
            raise Fault(f"{code}: the core of {self.me} owns {sorted(owned)}, not {node.owned}")


def _named(owned: Owned) -> str:
    return "key groups " + ", ".join(str(g) for g, _ in owned)
