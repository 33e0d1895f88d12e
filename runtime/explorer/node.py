"""One instance as the explorer holds it: its protocol state, and what a driver keeps for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import Group
from anabranch.runtime.explorer.deaths import QueuedItem
from anabranch.runtime.explorer.items import GroupState, Item, Marks, Owned

WANTED, BEGUN, UNASKED = range(3)


class OutgoingGroups(NamedTuple):
    """State that goes out in two parts, and is kept until both are under way. `stage`: of the
    transfer; `UNASKED` in a new incarnation, until the core asks for it again."""

    to: InstanceId
    groups: Owned
    stage: int = WANTED


class Node(NamedTuple):
    """`queue`: the tuples that were accepted, in their order. `asked`: `AwaitDrained` is open.
    `reading`: a source may still read. `children`: how many instances it has created. `sending`:
    receivers for which a blocking send waits for room. `ended`: its process ends. `forsaken`: it
    will never be answered about children. `undone`: a tuple that it has processed, and would do
    once more (duty 12, neglected).

    Of key groups. `owned`, `frozen`: those that are processed here, and those of them that are not
    any more. `expecting`: senders of state; `incoming`: what has come of it. `freezing`,
    `transferring`: what is yet to be answered. `given`: numbers given, by group. `seen`: the last
    number of each sequence that came in behind a keyed operator. `outgoing`: instead of
    `transferring` where processes may die: some of what belongs to it may have yet to come again.
    """

    state: Any
    queue: tuple[QueuedItem, ...] = ()
    working: bool = False
    asked: bool = False
    reading: bool = True
    children: int = 0
    sending: tuple[InstanceId, ...] = ()
    ended: bool = False
    forsaken: bool = False
    undone: tuple[QueuedItem, ...] = ()
    owned: Owned = ()
    frozen: frozenset[Group] = frozenset()
    expecting: tuple[InstanceId, ...] = ()
    incoming: tuple[tuple[InstanceId, GroupState], ...] = ()
    freezing: bool = False
    transferring: tuple[InstanceId, ...] = ()
    given: Marks = ()
    seen: Marks = ()
    outgoing: tuple[OutgoingGroups, ...] = ()


class EventOutcome(NamedTuple):
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
