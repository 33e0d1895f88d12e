"""What a fake driver keeps of key groups: the duties 9 to 11, and whether the order is right.

A tuple has a number of its own, and a place in a sequence: that of its giver (a source, or an
instance that is not keyed) and its key group. Keyed operators pass places on. So the state of a
key group is the last place of each sequence, and each must follow the last (K1).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import Group

GROUPS = 3
Sequence = tuple[Any, ...]


class Numbered(NamedTuple):
    """`path`: the keyed operators that it has passed since it got its place."""

    number: int
    giver: str
    place: int
    path: tuple[str, ...] = ()

    @property
    def group(self) -> Group:
        return self.number % GROUPS

    @property
    def sequence(self) -> Sequence:
        return (self.giver, self.group, *self.path)


Batch = list[Numbered]


@dataclass(frozen=True)
class GroupState:
    """What goes to the new owner of some groups."""

    states: dict[Group, dict[Sequence, int]]
    kept: Batch


@dataclass
class Keys:
    """`states`: of owned groups, the last place of each sequence. `kept`: tuples that may not be
    processed here, or not yet. `outgoing`: transfers that have been asked for."""

    states: dict[Group, dict[Sequence, int]] = field(default_factory=dict)
    frozen: set[Group] = field(default_factory=set)
    kept: Batch = field(default_factory=list)
    freezing: bool = False
    outgoing: dict[InstanceId, frozenset[Group]] = field(default_factory=dict)
    expected: Counter[InstanceId] = field(default_factory=Counter)
    incoming: list[tuple[InstanceId, GroupState]] = field(default_factory=list)
    given: Counter[Group] = field(default_factory=Counter)
    seen: dict[Sequence, int] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        return not (self.kept or self.incoming or self.outgoing or self.freezing)

    # -- tuples ------------------------------------------------------------------------------

    def place(self, number: int, giver: str) -> Numbered:
        """A tuple gets its place in the sequence of its giver and its group."""
        self.given[number % GROUPS] += 1
        return Numbered(number, giver, self.given[number % GROUPS])

    def take(self, batch: Iterable[Numbered]) -> Batch:
        """Those that are processed now; the others are kept (duty 9)."""
        taken = []
        for item in batch:
            if item.group in self.states and item.group not in self.frozen:
                self._follow(item)
                taken.append(item)
            else:
                self.kept.append(item)
        return taken

    def _follow(self, item: Numbered) -> None:
        marks = self.states[item.group]
        last = marks.get(item.sequence, 0)
        assert item.place == last + 1, f"K1: {item} is processed after place {last}"
        marks[item.sequence] = item.place

    def watch(self, batch: Batch) -> None:
        """K2: behind a keyed operator nothing is overtaken."""
        for item in batch:
            last = self.seen.get(item.sequence, 0)
            assert item.place > last, f"K2: {item} comes in after place {last}"
            self.seen[item.sequence] = item.place

    # -- groups ------------------------------------------------------------------------------

    def resume(self, owned: frozenset[Group], frozen: frozenset[Group]) -> Batch:
        """Duty 12: what can be processed of what was kept, now that the state is here again."""
        assert owned <= self.states.keys(), "duty 12: groups are resumed without their state"
        self.frozen = set(frozen)
        waiting, self.kept = self.kept, []
        return self.take(waiting)

    def export(self, to: InstanceId, queue: deque[tuple[InstanceId, Batch]]) -> GroupState:
        """Duty 10: with what was kept, and what nobody has looked into yet."""
        groups = self.outgoing.pop(to)
        kept = [t for t in self.kept if t.group in groups]
        kept += [t for _, batch in queue for t in batch if t.group in groups]
        self.kept = [t for t in self.kept if t.group not in groups]
        self.frozen -= groups
        return GroupState({g: self.states.pop(g) for g in sorted(groups)}, kept)

    def put_in(self, sender: InstanceId, state: GroupState) -> None:
        assert self.expected[sender], f"duty 11: nobody expects state of {sender}"
        self.incoming.append((sender, state))

    def complete(self, sender: InstanceId, groups: frozenset[Group]) -> Batch:
        """Duty 11: what can be processed now, in its order."""
        came = [state for who, state in self.incoming if who == sender]
        assert groups == {g for state in came for g in state.states}, "K1: state has not come"
        assert not groups & self.states.keys(), "K5: these groups are here already"
        self.incoming = [i for i in self.incoming if i[0] != sender]
        self.expected[sender] -= 1
        for state in came:
            self.states.update(state.states)
        waiting, self.kept = [t for state in came for t in state.kept] + self.kept, []
        return self.take(waiting)


def held_of(held: Iterable[Iterable[Numbered]], groups: Iterable[Group]) -> Iterator[Numbered]:
    """Results of some groups that have not been sent."""
    wanted = set(groups)
    return (item for results in held for item in results if item.group in wanted)


def those_for(to: InstanceId, routes: dict[Group, InstanceId], held: Iterable[Numbered]) -> Batch:
    return [item for item in held if routes.get(item.group) == to]


def take_out(held: deque[Numbered], items: Batch) -> None:
    chosen = set(items)
    rest = [item for item in held if item not in chosen]
    held.clear()
    held.extend(rest)
