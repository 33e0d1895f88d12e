"""What travels on the channels of a scope, besides the messages of its machine.

Where no operator is keyed, tuples have no names: where they are decides everything. Of keyed
operators it matters which tuple it is. A tuple carries which instance gave it its number, its key
group and that number. Sources and operators that are not keyed give numbers, one sequence for each
group; a keyed operator passes them on. So the state of a group is simply the last number of each
giver that was processed in it, and there is one right next tuple (K1). An operator behind a keyed
one sees each sequence in its order (K2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.ownership import Group

NO_GROUP: Group = -1
"""Of a tuple without a name."""


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
    """A tuple on its way once more; the core of the receiver has had it. `age`: see `Queued`."""

    item: Tuple
    age: int

    def __str__(self) -> str:
        return f"{self.item} again"


Sequence = tuple[Any, ...]
"""Giver, group and path: tuples of one sequence are numbered from 1."""
Marks = tuple[tuple[Sequence, int], ...]
"""The last number met of each sequence."""
Owned = tuple[tuple[Group, Marks], ...]
"""Groups with their state."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """What an old owner sends to a new one: the groups, and their tuples that were kept.

    `begins`: what has come before of an earlier attempt is worth nothing."""

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
