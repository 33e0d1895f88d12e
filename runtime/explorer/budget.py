"""What all instances of a scope share: budgets, numbers of the next children, and the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.explorer.scope import Scope

Kind = tuple[str | int, ...]
FREE: Kind = ("free",)


class Meta(NamedTuple):
    """`next_numbers` and `done` (tuples processed, or read) have one entry for each operator."""

    joins: int
    leaves: int
    fresh: int
    sibling: int
    tuples: int
    next_numbers: tuple[int, ...]
    done: tuple[int, ...]


class Budgets:
    """Kinds of transitions by what they spend, and what is left after each."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.kinds: list[Kind] = [FREE]
        self._kind_numbers: dict[Kind, int] = {FREE: 0}
        self._metas: list[Meta] = []
        self._meta_numbers: dict[Meta, int] = {}
        self._spent: dict[tuple[int, int], int] = {}
        self.offsets: list[list[int]] = []
        """For each meta: where each operator's instances begin in a state, meta being first."""
        self._operator = {name: i for i, name in enumerate(scope.names)}

    def initial(self) -> int:
        s = self.scope
        zero = (0,) * len(s.counts)
        return self.meta(Meta(s.joins, s.leaves, s.fresh, s.sibling, s.tuples, s.counts, zero))

    def meta(self, meta: Meta) -> int:
        number = self._meta_numbers.get(meta)
        if number is None:
            number = self._meta_numbers[meta] = len(self._metas)
            self._metas.append(meta)
            offsets, at = [], 1
            for count in meta.next_numbers:
                offsets.append(at)
                at += count
            self.offsets.append(offsets)
        return number

    def of(self, number: int) -> Meta:
        return self._metas[number]

    def number(self, kind: Kind) -> int:
        number = self._kind_numbers.get(kind)
        if number is None:
            number = self._kind_numbers[kind] = len(self.kinds)
            self.kinds.append(kind)
        return number

    def spend(self, meta: int, kind: int) -> int:
        """What is left after a transition of this kind; negative if there is not enough."""
        if not kind:
            return meta
        key = (meta, kind)
        after = self._spent.get(key)
        if after is None:
            left = _spend(self._metas[meta], self.kinds[kind])
            after = self._spent[key] = -1 if left is None else self.meta(left)
        return after

    # -- kinds -------------------------------------------------------------------------------

    def processed(self, me: InstanceId) -> Kind:
        return ("processed", self._operator[me.operator])

    def read(self, me: InstanceId) -> Kind:
        return ("read", self._operator[me.operator])

    def end(self) -> Kind:
        return ("end",)

    def leave(self) -> Kind:
        return ("leaves",)

    def sibling(self) -> Kind:
        return ("sibling",)

    def ask(self) -> Kind:
        return ("joins",)

    def joins(self, me: InstanceId, n: int) -> Iterator[tuple[int, Kind]]:
        """Each number that the first of `n` children could get, with its kind."""
        return self._numbered("joins", me, n)

    def births(self, me: InstanceId, n: int) -> Iterator[tuple[int, Kind]]:
        return self._numbered("births", me, n)

    def fresh(self, me: InstanceId) -> Iterator[tuple[int, Kind]]:
        return self._numbered("fresh", me, 1)

    def _numbered(self, name: str, me: InstanceId, n: int) -> Iterator[tuple[int, Kind]]:
        operator = self._operator[me.operator]
        most = self.scope.joins * self.scope.batch + self.scope.fresh
        for first in range(self.scope.counts[operator], self.scope.counts[operator] + most):
            yield first, (name, operator, first, n)


def _spend(meta: Meta, kind: Kind) -> Meta | None:
    name = str(kind[0])
    if name == "end":
        return None if meta.tuples else meta
    if name in ("processed", "read"):
        operator = int(kind[1])
        done = tuple(d + (i == operator) for i, d in enumerate(meta.done))
        if name == "read" and not meta.tuples:
            return None
        return meta._replace(done=done, tuples=meta.tuples - (name == "read"))
    if name != "births":
        if not getattr(meta, name):
            return None
        meta = meta._replace(**{name: getattr(meta, name) - 1})
    if len(kind) == 1:
        return meta
    operator, first, n = int(kind[1]), int(kind[2]), int(kind[3])
    if meta.next_numbers[operator] != first:
        return None
    grown = tuple(c + n * (i == operator) for i, c in enumerate(meta.next_numbers))
    return meta._replace(next_numbers=grown)
