"""What travels on the channels of a scope, besides the messages of its machine.

In a scope without keyed operators all tuples are equal. In other scopes a tuple has a key group, a
number, and the instance that gave it this number. Sources and operators that are not keyed number
their tuples, in one sequence for each group; a keyed operator passes the numbers on. So the state
of a group is the last number of each sequence that was processed, and only one tuple of a sequence
may follow (K1). An operator behind a keyed one gets each sequence in order (K2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.ownership import Group

NO_GROUP: Group = -1
"""Of a tuple in a scope without keyed operators."""


@dataclass(frozen=True, slots=True)
class Tuple:
    """One tuple on a channel. `path`: the keyed operators it has passed since it got its number.

    In a scope without keyed operators all are equal, and have no `giver`.
    """

    giver: InstanceId | None = None
    group: Group = NO_GROUP
    number: int = 0
    path: tuple[OperatorName, ...] = ()

    @property
    def sequence(self) -> Sequence:
        return (self.giver, self.group, *self.path)

    def __str__(self) -> str:
        return f"tuple({self.giver} g{self.group} #{self.number})" if self.giver else "tuple"


@dataclass(frozen=True, slots=True)
class Again:
    """A repeated tuple, which the receiver's core had accepted before. `age`: see `Queued`."""

    item: Tuple
    age: int

    def __str__(self) -> str:
        return f"{self.item} again"


Sequence = tuple[Any, ...]
"""Giver, group and path: tuples of one sequence are numbered from 1."""
Marks = tuple[tuple[Sequence, int], ...]
"""The last number of each sequence that was processed."""
Owned = tuple[tuple[Group, Marks], ...]
"""Groups with their state."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """What an old owner sends to a new one: the groups, and their tuples that were kept.

    `begins`: the receiver discards what it has from an earlier attempt."""

    groups: Owned
    kept: tuple[Tuple, ...]
    begins: bool = True

    def __str__(self) -> str:
        kept = "".join(f", {t}" for t in self.kept)
        rest = "" if self.begins else "rest of "
        return f"STATE({rest}g{',g'.join(str(g) for g, _ in self.groups)}{kept})"


Item = Any
"""What travels on a channel: a message of the machine, or one of these."""


class Parcel(NamedTuple):
    """An item with its sender: on a channel, and as the event that it comes in."""

    sender: InstanceId
    item: Item
