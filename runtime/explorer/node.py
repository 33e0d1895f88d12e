"""One instance as the explorer holds it: its protocol state, and what a driver keeps for it.

This is the explorer's `perform`: the duties of `anabranch.protocol.effects`, one by one, without
a network. Tuples have no names here, they are counted. `anabranch.runtime.explorer.keyed_node` is
the same for scopes with keyed operators, where it matters which tuple it is.
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
from anabranch.protocol.messages import NONE, Ids
from anabranch.protocol.rules.context import Context
from anabranch.runtime.explorer.coverage import Cell, condition
from anabranch.runtime.explorer.deaths import Died
from anabranch.runtime.explorer.items import Item, Tuple

if TYPE_CHECKING:
    from anabranch.runtime.explorer.machine import Machine


class Node(NamedTuple):
    """`asked`: `AwaitDrained` is open. `reading`: a source may still read. `children`: how many
    instances it has created. `sending`: receivers whose room a blocking send waits for.
    `ended`: its process ends. `forsaken`: it never gets an answer about children. `unsafe`: it
    has worked off a tuple which would come again (duty 12, neglected)."""

    state: Any
    queue: int = 0
    working: bool = False
    asked: bool = False
    reading: bool = True
    children: int = 0
    sending: tuple[InstanceId, ...] = ()
    ended: bool = False
    forsaken: bool = False
    unsafe: bool = False


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
        self.way: list[Cell] = []
        """Cells of the table that were taken, until they are read and cleared."""

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
        if isinstance(event, Died):
            return self.resume(self.left_of(node, event))
        return self.handle(node, event)

    # -- deaths ------------------------------------------------------------------------------

    def deaths(self, node: Any) -> Iterable[Died]:
        """The ways in which its process can die. A queue without names is not lost: it would be
        there again, and nothing tells when."""
        yield Died()

    def left_of(self, node: Any, death: Died) -> Any:
        """What the journal has of a node (duty 12)."""
        queue = node.queue + node.unsafe
        if self.machine.broken_duty == "loses" and queue:
            queue -= 1
        working, reading = self._habits(node)
        return Node(node.state, queue, working, reading=reading, children=node.children)

    def _habits(self, node: Any) -> tuple[bool, bool]:
        """Whether it works and may read. The end of the input is in the journal, that a leaver
        has stopped is not. Whether it works does not matter if there is nothing to process."""
        state = node.state
        working = node.working and not self.machine.routes(state)
        leaves = self.machine.routes(state) and not self.machine.is_active(state)
        return working, node.reading or leaves

    def resume(self, node: Any) -> Outcome:
        """The first event of a new incarnation."""
        outcome = self._answer(self.handle(node, events.Restarted()))
        waits = self.machine.spawning(outcome.node.state) and not outcome.spawn
        return outcome._replace(node=outcome.node._replace(forsaken=bool(waits)))

    def _answer(self, outcome: Outcome) -> Outcome:
        """Feed the events that follow at once, unless it takes time."""
        while outcome.answers:
            first, *rest = outcome.answers
            more = self.run(outcome.node, first)
            outcome = more._replace(
                sends=outcome.sends + more.sends,
                spawn=outcome.spawn,
                answers=(*rest, *more.answers),
            )
        return outcome

    # -- events and effects ------------------------------------------------------------------

    def handle(self, node: Node, event: events.Event) -> Outcome:
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
                return node._replace(forsaken=False)
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
        return Node(node.state, reading=False, ended=True)

    def _perform_for_groups(self, node: Node, effect: GroupEffect, doing: Doing) -> Node:
        raise Fault(f"{type(effect).__name__} at {self.me}, of which no operator has key groups")

    def _check_router(
        self, before: Any, after: Any, effects: Iterable[fx.Effect], event: events.Event
    ) -> None:
        """Duty 4: a router knows the successors from `ChangeView` alone."""
        told = [e.succs for e in effects if isinstance(e, fx.ChangeView)]
        fresh = isinstance(event, events.Restarted)
        known: Ids = told[-1] if told else NONE if fresh else self.machine.succs(before)
        if self.machine.routes(after) and known != self.machine.succs(after):
            raise Fault(f"duty 4: the router of {self.me} does not know its view")

    def pass_on(self, node: Node, targets: Iterable[InstanceId]) -> Outcome:
        """D2: the results of one tuple, one to each downstream operator."""
        sends: list[tuple[InstanceId, Item]] = []
        for to in targets:
            outcome = self.handle(node, events.BatchReady(to, 1))
            node = outcome.node
            sends.extend(outcome.sends)
        if self.machine.broken_duty == "doubles" and not self.context.is_source:
            node = node._replace(unsafe=True)
        return Outcome(node, tuple(sends))

    def routes(self, node: Node) -> list[tuple[InstanceId, ...]]:
        """Every choice of one successor for each downstream operator."""
        succs = self.machine.succs(node.state)
        sides = [
            [y for y in sorted(succs) if y.operator == operator]
            for operator in self.context.topology.downstream(self.me.operator)
        ]
        return list(product(*sides))
