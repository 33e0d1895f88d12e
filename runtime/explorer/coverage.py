"""What a search has gone through: which cells of the protocol's table, and beside what.

A cell is a message or event in the state that it meets, with the operation of its own that the
instance has under way. Faults hide where two operations meet, so for each cell it is noted which
other operations were open at the same moment: at the instance itself, or at a neighbour (an
instance that it sends to or receives from, or a sibling).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any

from anabranch.protocol.states import (
    Active,
    ClosingIn,
    ClosingOut,
    Draining,
    Finished,
    Freezing,
    Idle,
    Joining,
    Migrating,
    Offering,
    Own,
    Seeking,
    Spawning,
    Transferring,
)

Cell = tuple[str, str]
"""Name of a message or an event, and of the condition that it meets."""


class Open(IntFlag):
    """Operations that may be under way at an instance."""

    JOIN = 1
    LEAVE = 2
    MOVE = 4
    ADOPTION = 8
    HAND_OVER = 16
    FINISH = 32
    DEATH = 64


EVERY = tuple(Open)


def condition(state: Any) -> str:
    """The state of an instance by name, with what is under way there and what for."""
    own = state.own if isinstance(state, Active) else None
    if own is None:
        return type(state).__name__
    return f"{type(state).__name__}+{type(own).__name__}{_purpose(own)}"


def _purpose(own: Own) -> str:
    match own:
        case Spawning(leave=True) | Migrating(leave=True):
            return " to relocate"
        case (
            Freezing(new=new, leave=True)
            | Joining(new=new, leave=True)
            | Transferring(new=new, leave=True)
        ) if new:
            return " to relocate"
        case Spawning(migrate=True) | Joining(migrate=True):
            return " keeper"
        case (
            Seeking(leave=True)
            | Freezing(leave=True)
            | Joining(leave=True)
            | Transferring(leave=True)
        ):
            return " to leave"
        case Freezing(new=new) | Transferring(new=new) if new:
            return " children"
        case Joining(new=new, moved=moved) if new:
            return " children with groups" if moved else " children"
        case Freezing() | Joining() | Transferring() | Seeking():
            return " new owner"
        case _:
            return ""


def open_at(state: Any) -> Open:
    """What is under way at an instance in this state, but for deaths."""
    match state:
        case Active(own=own, expects=expects, finished=finished, input_ended=ended):
            found = _open_by(own) | (Open.ADOPTION if expects else Open(0))
            return found | (Open.FINISH if finished or ended else Open(0))
        case Idle():
            return Open.JOIN
        case ClosingIn() | Draining() | ClosingOut():
            return Open.LEAVE
        case Finished():
            return Open.FINISH
        case _:
            return Open(0)


def _open_by(own: Own | None) -> Open:
    match own:
        case None:
            return Open(0)
        case Spawning(leave=True) | Migrating(leave=True):
            return Open.JOIN | Open.LEAVE
        case Migrating() | Offering() | Spawning(migrate=True) | Joining(migrate=True, leave=False):
            return Open.HAND_OVER
        case Spawning():
            return Open.JOIN
        case Seeking(leave=leave):
            return Open.ADOPTION | (Open.LEAVE if leave else Open(0))
        case Freezing(new=new, leave=leave) | Transferring(new=new, leave=leave):
            return Open.MOVE | (Open.JOIN if new else Open(0)) | (Open.LEAVE if leave else Open(0))
        case Joining(new=new, moved=moved, leave=leave):
            found = (Open.JOIN if new else Open(0)) | (Open.MOVE if moved else Open(0))
            return found | (Open.LEAVE if leave else Open(0))


CONDITIONS = (
    "Idle",
    "Active",
    "Active+Spawning",
    "Active+Spawning keeper",
    "Active+Spawning to relocate",
    "Active+Seeking new owner",
    "Active+Seeking to leave",
    "Active+Freezing children",
    "Active+Freezing new owner",
    "Active+Freezing to leave",
    "Active+Freezing to relocate",
    "Active+Joining children",
    "Active+Joining children with groups",
    "Active+Joining new owner",
    "Active+Joining to leave",
    "Active+Joining to relocate",
    "Active+Joining keeper",
    "Active+Transferring children",
    "Active+Transferring new owner",
    "Active+Transferring to leave",
    "Active+Transferring to relocate",
    "Active+Migrating",
    "Active+Migrating to relocate",
    "Active+Offering",
    "ClosingIn",
    "Draining",
    "ClosingOut",
    "Finished",
    "Gone",
)
"""Every one for which `condition` is true."""


@dataclass(slots=True)
class Beside:
    """Which operations were open when a cell was taken. `here`: others of the instance itself."""

    here: int = 0
    near: int = 0


@dataclass(slots=True)
class Coverage:
    """Cells that were taken, each with what was open meanwhile."""

    cells: dict[Cell, Beside] = field(default_factory=dict)

    def add(self, cell: Cell, here: int = 0, near: int = 0) -> None:
        """`here`: what is open at the instance; what its condition names itself is left out."""
        beside = self.cells.setdefault(cell, Beside())
        beside.here |= here
        beside.near |= near

    def update(self, other: Coverage) -> None:
        for cell, beside in other.cells.items():
            self.add(cell, beside.here, beside.near)

    @property
    def pairs(self) -> set[tuple[Cell, str, Open]]:
        """Each cell with each operation that was open beside it, `here` or `near`."""
        return {
            (cell, where, one)
            for cell, beside in self.cells.items()
            for where, mask in (("here", beside.here), ("near", beside.near))
            for one in EVERY
            if mask & one
        }


def named_by(state: Any) -> Open:
    if isinstance(state, Active):
        return _open_by(state.own)
    return open_at(state)
