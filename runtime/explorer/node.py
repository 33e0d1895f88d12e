"""One instance as the explorer holds it: its protocol state, and what a driver keeps for it.

This is the explorer's `perform`: the duties of `anabranch.protocol.effects`, one by one, without
a network. Tuples have no names here; where they are decides everything, and they are counted.
`anabranch.runtime.explorer.keyed_node` has those of keyed operators, where it matters which
tuple it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from anabranch.protocol import effects as fx
from anabranch.protocol import events
from anabranch.protocol.errors import AnabranchProtocolError
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import Ids
from anabranch.protocol.rules.context import Context

if TYPE_CHECKING:
    from anabranch.runtime.explorer.machine import Machine


@dataclass(frozen=True, slots=True)
class Tuple:
    """One tuple on a channel."""

    def __str__(self) -> str:
        return "tuple"


Item = Any
"""What travels on a channel: a message of the machine, or `Tuple`."""


class Node(NamedTuple):
    """`asked`: `AwaitDrained` is open. `reading`: a source may still read. `children`: how many
    instances it has created. `sending`: receivers for whom a blocking send waits for room."""

    state: Any
    queue: int = 0
    working: bool = False
    asked: bool = False
    reading: bool = True
    children: int = 0
    sending: tuple[InstanceId, ...] = ()


GroupEffect = (
    fx.FreezeGroups
    | fx.TransferGroups
    | fx.OwnGroups
    | fx.ResumeGroups
    | fx.ExpectState
    | fx.StateComplete
)


class Outcome(NamedTuple):
    """What one event did: the node after it, and the items it sent, in order."""

    node: Node
    sends: tuple[tuple[InstanceId, Item], ...] = ()
    spawn: int = 0
    veto: str = ""
    answers: tuple[events.Event, ...] = ()


class Fault(Exception):
    """A property does not hold. The text begins with its number."""


@dataclass(slots=True)
class Doing:
    """What the effects of one event have led to so far."""

    sends: list[tuple[InstanceId, Item]] = field(default_factory=list)
    spawn: int = 0
    veto: str = ""
    answers: list[events.Event] = field(default_factory=list)
    """Events that answer an effect at once."""


class Driver:
    """Feeds events to one instance and performs their effects on its node."""

    def __init__(self, machine: Machine, context: Context) -> None:
        self.machine = machine
        self.context = context

    @property
    def me(self) -> InstanceId:
        return self.context.me

    def newborn(self) -> Node:
        return Node(self.machine.newborn())

    def arrival(self, sender: InstanceId, item: Item) -> Any:
        """What has happened when an item has come in."""
        if isinstance(item, Tuple):
            return events.BatchReceived(sender, 1)
        return events.MessageReceived(sender, item)

    def run(self, node: Node, event: Any) -> Outcome:
        """One event, or the sending of a tuple's results to some receivers."""
        if isinstance(event, tuple):
            return self.pass_on(node, event)
        return self.handle(node, event)

    def handle(self, node: Node, event: events.Event) -> Outcome:
        try:
            state, effects = self.machine.step(self.context, node.state, event)
        except AnabranchProtocolError as error:
            code = re.search(r"\(([IKSL]\d+)\)", error.what)
            raise Fault(f"{code[1] if code else 'ILLEGAL'}: {self.me}: {error.what}") from None
        outcome = self._perform(node._replace(state=state), effects)
        self._check_router(node.state, state, effects)
        if broken := self.machine.broken_at(self.context, state):
            raise Fault(broken)
        taken = any(isinstance(e, fx.AcceptBatch) for e in effects)
        if isinstance(event, events.BatchReceived) and not taken:
            raise Fault(f"S1: the tuple is dropped at {self.me}")
        return outcome

    def _perform(self, node: Node, effects: Iterable[fx.Effect]) -> Outcome:
        doing = Doing()
        for effect in effects:
            node = self._perform_one(node, effect, doing)
        return Outcome(node, tuple(doing.sends), doing.spawn, doing.veto, tuple(doing.answers))

    def _perform_one(self, node: Node, effect: fx.Effect, doing: Doing) -> Node:
        match effect:
            case fx.SendMessage(to, message):
                doing.sends.append((to, message))
            case fx.SendBatch(to, tuples):
                doing.sends.extend((to, Tuple()) for _ in range(tuples))
            case fx.AcceptBatch(_, tuples):
                return node._replace(queue=node.queue + tuples)
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
            case fx.Veto(reason):
                doing.veto = reason
            case fx.Terminate():
                return self._end(node, effect)
            case fx.ChangeView() | fx.ChangeRole() | fx.Conclude():
                pass
            case (
                fx.FreezeGroups()
                | fx.TransferGroups()
                | fx.OwnGroups()
                | fx.ResumeGroups()
                | fx.ExpectState()
                | fx.StateComplete()
            ):
                return self._perform_for_groups(node, effect, doing)
            case _ as unknown:
                assert_never(unknown)
        return node

    def _end(self, node: Node, effect: fx.Terminate) -> Node:
        if node.queue:
            raise Fault(f"I11: {self.me} terminates with tuples in its queue")
        return Node(node.state, reading=False)

    def _perform_for_groups(self, node: Node, effect: GroupEffect, doing: Doing) -> Node:
        raise Fault(f"{type(effect).__name__} at {self.me}, of which no operator has key groups")

    def _check_router(self, before: Any, after: Any, effects: Iterable[fx.Effect]) -> None:
        """Duty 4: a router knows the successors from `ChangeView` alone."""
        told = [e.succs for e in effects if isinstance(e, fx.ChangeView)]
        known: Ids = told[-1] if told else self.machine.succs(before)
        if self.machine.routes(after) and known != self.machine.succs(after):
            raise Fault(f"duty 4: the router of {self.me} does not know its view")

    def pass_on(self, node: Node, targets: Iterable[InstanceId]) -> Outcome:
        """D2: the results of one tuple, one to each downstream operator."""
        sends: list[tuple[InstanceId, Item]] = []
        for to in targets:
            outcome = self.handle(node, events.BatchReady(to, 1))
            node = outcome.node
            sends.extend(outcome.sends)
        return Outcome(node, tuple(sends))

    def routes(self, node: Node) -> list[tuple[InstanceId, ...]]:
        """Every choice of one successor for each downstream operator."""
        succs = self.machine.succs(node.state)
        sides = [
            [y for y in sorted(succs) if y.operator == operator]
            for operator in self.context.topology.downstream(self.me.operator)
        ]
        return list(product(*sides))
