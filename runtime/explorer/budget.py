"""What all instances of a scope share: budgets, the ledger, and the instances created so far."""

from __future__ import annotations

from typing import Any, NamedTuple

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.explorer.interned import Interned
from anabranch.runtime.explorer.scope import Scope

Kind = tuple[Any, ...]
"""What a transition spends: a name, then an operator's index or the instances created."""
FREE: Kind = ("free",)


class Meta(NamedTuple):
    """`done`: tuples processed, or read, by each operator. `population`: all instances that
    have been created, sorted; a state lists their sites in this order, behind its meta."""

    joins: int
    leaves: int
    fresh: int
    sibling: int
    tuples: int
    done: tuple[int, ...]
    population: tuple[InstanceId, ...]
    moves: int = 0
    crashes: int = 0
    relocations: int = 0


class Budgets:
    """Kinds of transitions by what they spend, and what is left after each."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.ids: Interned[InstanceId] = Interned()
        self.kinds: Interned[Kind] = Interned()
        self.kinds.number(FREE)
        self.metas: Interned[Meta] = Interned()
        self.positions: list[dict[int, int]] = []
        """For each meta: where in a state the site of an instance is, by its number in `ids`."""
        self._spent: dict[tuple[int, int], int] = {}
        self._operator = {name: i for i, name in enumerate(scope.names)}
        self._lineages: dict[tuple[InstanceId, int], InstanceId] = {}
        self._next_numbers = dict(zip(scope.names, scope.counts, strict=True))

    def initial(self) -> int:
        s = self.scope
        done, founders = (0,) * len(s.counts), tuple(s.founders())
        left = (s.joins, s.leaves, s.fresh, s.sibling, s.tuples)
        return self._meta(Meta(*left, done, founders, s.moves, s.crashes, s.relocations))

    def _meta(self, meta: Meta) -> int:
        number = self.metas.number(meta)
        if number == len(self.positions):
            places = enumerate(meta.population, start=1)
            self.positions.append({self.ids.number(me): place for place, me in places})
        return number

    def spend(self, meta: int, kind: int) -> int:
        """What is left after a transition of this kind; negative if there is not enough."""
        if not kind:
            return meta
        key = (meta, kind)
        after = self._spent.get(key)
        if after is None:
            left = _spend(self.metas.values[meta], self.kinds.values[kind])
            after = self._spent[key] = -1 if left is None else self._meta(left)
        return after

    def child(self, creator: InstanceId, ordinal: int) -> InstanceId:
        """Name of the creator's child with this ordinal. It depends on nothing else, so states
        that differ only in the order of unrelated joins are one state."""
        key = (creator, ordinal)
        if key not in self._lineages:
            number = self._next_numbers[creator.operator]
            self._next_numbers[creator.operator] = number + 1
            self._lineages[key] = InstanceId(creator.operator, number, creator=creator.number)
        return self._lineages[key]

    def processed(self, me: InstanceId) -> Kind:
        return ("processed", self._operator[me.operator])

    def read(self, me: InstanceId) -> Kind:
        return ("read", self._operator[me.operator])


def _spend(meta: Meta, kind: Kind) -> Meta | None:
    name, *rest = kind
    if name == "end":
        return None if meta.tuples else meta
    if name in ("processed", "read"):
        done = tuple(d + (i == rest[0]) for i, d in enumerate(meta.done))
        if name == "read" and not meta.tuples:
            return None
        return meta._replace(done=done, tuples=meta.tuples - (name == "read"))
    if name != "births":
        left = getattr(meta, str(name))
        if not left:
            return None
        meta = meta._replace(**{str(name): left - 1})
    if not rest:
        return meta
    return meta._replace(population=tuple(sorted([*meta.population, *rest])))
