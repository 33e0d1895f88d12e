"""A path through states as a numbered exchange that a person can follow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from anabranch.protocol import events
from anabranch.protocol.ids import InstanceId
from anabranch.runtime.explorer.deaths import Died
from anabranch.runtime.explorer.driver import (
    Birth,
    Overrun,
    Sent,
    StateBegun,
    TupleProcessed,
    TupleRead,
)
from anabranch.runtime.explorer.items import NO_GROUP, Again, GroupState, Item, Parcel, Tuple
from anabranch.runtime.explorer.judge import names
from anabranch.runtime.explorer.site import SiteMove
from anabranch.runtime.explorer.sites import Sites
from anabranch.runtime.reporting import wording

Path = Iterable[tuple[tuple[int, ...], SiteMove]]


@dataclass(frozen=True, slots=True)
class Row:
    """One step. `received`: what came in, if that is what happened; `sent`: receiver and item."""

    number: int
    actor: InstanceId
    text: str
    before: str
    after: str
    received: Parcel | None
    sent: tuple[tuple[InstanceId, Item], ...]
    again: tuple[tuple[InstanceId, Item], ...] = ()
    """Sender and item, after a death."""

    def __str__(self) -> str:
        state = self.before if self.before == self.after else f"{self.before}->{self.after}"
        return f"{self.number:4d}. {self.actor} {self.text}  [{state}]"


def rows(sites: Sites, path: Path) -> list[Row]:
    """The steps of a path. The last one may be the one that breaks a property."""
    return list(_rows(sites, path))


def _rows(sites: Sites, path: Path) -> Iterator[Row]:
    ids, parcels = sites.budgets.ids, sites.parcels
    for number, (state, move) in enumerate(path, start=1):
        place = sites.budgets.positions[state[0]][ids.number(move.me)]
        before = condition(sites.node_at(state[place]).state)
        after = condition(sites.node_at(move.site).state) if move.site >= 0 else before
        sent = tuple((ids.values[to], parcels.values[p].item) for to, p in move.sends)
        born = [ids.values[child] for child, _ in move.born]
        received = move.what if isinstance(move.what, Parcel) else None
        text = _text(move.what, born) + _sending(sent)
        again = move.what.again if isinstance(move.what, Died) else ()
        yield Row(number, move.me, text, before, after, received, sent, again)


def told(sites: Sites, path: Path, fault: str) -> str:
    """The whole exchange as text, the fault at its end."""
    lines = [str(row) for row in rows(sites, path)]
    return "\n".join([*lines, f"      => {fault}"])


def condition(state: Any) -> str:
    """Name of a protocol state; an own operation stands behind a plus sign."""
    phase = getattr(state, "phase", None)
    name = type(state).__name__ if phase is None else phase.value
    own = getattr(state, "own", None)
    return name if own is None else f"{name}+{type(own).__name__}"


def say(item: Item) -> str:
    """A message as it would be called in the text of the protocol."""
    if isinstance(item, Tuple | Again | GroupState):
        return str(item)
    return wording.say(item)


def _text(what: Any, born: list[InstanceId]) -> str:
    match what:
        case Parcel(sender, item):
            return f"receives {say(item)} from {sender}"
        case TupleProcessed(item, targets):
            towards = f" for {names(frozenset(targets))}" if targets else ""
            return f"processes {item if item.giver else 'a tuple'}{towards}"
        case TupleRead(group, targets):
            of_group = "" if group == NO_GROUP else f" of group {group}"
            return f"reads a tuple{of_group} for {names(frozenset(targets))}"
        case Overrun():
            return "reads on after StopIntake"
        case Birth(_, _, moved) if moved:
            given = " ".join(f"{g}->{to}" for g, to in moved)
            return f"decides to duplicate into {names(frozenset(born))}, giving groups {given}"
        case Birth(decision):
            return _text(decision, born)
        case Sent(targets):
            return f"has room at {names(frozenset(targets))} and goes on"
        case Died(_, again):
            lost = "; again comes " + ", ".join(str(a.item) for _, a in again) if again else ""
            return f"dies, and lives on in a new process{lost}"
        case StateBegun(to):
            return f"has sent the first part of the state to {to}"
        case events.DuplicateDecided():
            return f"decides to duplicate into {names(frozenset(born))}"
        case events.ChildrenReady(new):
            return f"has its children {names(new)}"
        case events.SpawnFailed():
            return "is told that the start of its children has failed"
        case events.LeaveDecided(None):
            return "decides to leave"
        case events.LeaveDecided(via):
            return f"decides to leave, and asks for a new owner through {via}"
        case events.MoveDecided(groups, via):
            return (
                f"decides to give away group {min(groups)}, and asks for a new owner through {via}"
            )
        case events.HandOverDecided(None):
            return f"decides to hand its role over to a fresh {names(frozenset(born))}"
        case events.RelocateDecided():
            return f"decides to relocate into {names(frozenset(born))}"
        case events.HandOverDecided(via):
            return f"decides to offer its role through {via}"
        case events.Drained():
            return "has drained"
        case events.InputEnded():
            return "has read its input to the end"
        case events.GroupsFrozen() | events.GroupsTransferred():
            return wording.tell(what)
        case _:
            return str(what)


def _sending(sent: tuple[tuple[InstanceId, Item], ...]) -> str:
    """What goes out, one group for equal messages; tuples are in the text already."""
    groups: dict[str, list[InstanceId]] = {}
    for to, item in sent:
        if not isinstance(item, Tuple | Again):
            groups.setdefault(say(item), []).append(to)
    parts = [f"{text} to {names(frozenset(to))}" for text, to in groups.items()]
    return "; " + "; ".join(parts) if parts else ""
