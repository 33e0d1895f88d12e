"""A scope: a small pipeline, and bounds on what may happen in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.protocol.ids import InstanceId, OperatorName, Topology
from anabranch.protocol.ownership import Routes, founding

BUDGETS = (
    "joins",
    "leaves",
    "fresh",
    "sibling",
    "relocations",
    "moves",
    "crashes",
    "tuples",
    "batch",
    "groups",
    "room",
)
FLAGS = ("finish", "spawn", "slow", "blocking")
OPERATORS = ("scalable", "keyed")
_WORDS = ("joins", "leaves", "fresh", "sibling", "relocations", "moves", "crashes", "tuples")


@dataclass(frozen=True, slots=True)
class Scope:
    """A pipeline at rest, and budgets which all instances of all operators share.

    `counts`: instances of each operator at the beginning; number 0 is the keeper.
    `edges`: pairs of operator indices; the chain of all operators unless given.
    `joins`, `leaves`, `fresh`, `sibling`: how many duplications, leaves, and hand-overs of the
    keeper's role to a new instance or to a sibling may be decided.
    `relocations`: how many instances may go, each for a new one that takes its place.
    `batch`: most children of one duplication.
    `tuples`: how many the sources read. Decisions may be left out, reading may not.
    `finish`: the input of the sources ends, and all instances must.
    `crashes`: how many processes may die, at any moment; each instance is resumed.
    `spawn`: starting processes takes a second event, and may fail.
    `scalable`: indices of the operators whose instances decide; all unless given.
    `room`: a tuple is sent only while fewer than this are on its channel or queued at its
    receiver; 0 for no bound.
    `blocking`: an instance that has chosen a receiver without room does nothing else until there
    is room.
    """

    counts: tuple[int, ...]
    edges: tuple[tuple[int, int], ...] = ()
    joins: int = 0
    leaves: int = 0
    fresh: int = 0
    sibling: int = 0
    tuples: int = 0
    batch: int = 1
    finish: bool = False
    spawn: bool = False
    scalable: tuple[int, ...] = ()
    room: int = 0
    blocking: bool = False
    keyed: tuple[int, ...] = ()
    groups: int = 1
    moves: int = 0
    relocations: int = 0
    slow: bool = False
    crashes: int = 0
    names: tuple[OperatorName, ...] = field(init=False)
    topology: Topology = field(init=False)

    def __post_init__(self) -> None:
        names = tuple(OperatorName(f"O{i}") for i in range(len(self.counts)))
        edges = self.edges or tuple((i, i + 1) for i in range(len(self.counts) - 1))
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "topology", Topology.of((names[a], names[b]) for a, b in edges))

    @classmethod
    def parse(cls, text: str) -> Scope:
        """A scope from its text, as `str` gives it: `1,2,1 joins=1 leaves=2 finish`.

        Raises `ValueError` that says what is wrong and what is expected.
        """
        counts, *words = text.split()
        given: dict[str, Any] = {"counts": _numbers(counts)}
        for word in words:
            name, equals, value = word.partition("=")
            if name in FLAGS and not equals:
                given[name] = True
            elif name in BUDGETS and value.isdigit():
                given[name] = int(value)
            elif name in OPERATORS:
                given[name] = _numbers(value)
            elif name == "edges":
                given[name] = tuple(_edge(pair) for pair in value.split(","))
            else:
                may = ", ".join([*(f"{b}=N" for b in BUDGETS), "edges=0-1,1-2", "keyed=1", *FLAGS])
                raise ValueError(f"{word!r} says nothing about a scope; possible are {may}")
        operators = len(given["counts"])
        if not all(a < b < operators for a, b in given.get("edges", ())):
            raise ValueError("an edge goes from a lower operator to a higher one: edges=0-1,0-2")
        if any(count < 1 for count in given["counts"]):
            raise ValueError("every operator has at least one instance")
        _check_keyed(given)
        return cls(**given)

    def founders(self) -> list[InstanceId]:
        """The instances with which the run begins, by operator and number."""
        return [
            InstanceId(name, number)
            for name, count in zip(self.names, self.counts, strict=True)
            for number in range(count)
        ]

    def decides(self, me: InstanceId) -> bool:
        return not self.scalable or self.names.index(me.operator) in self.scalable

    def is_keyed(self, operator: OperatorName) -> bool:
        return self.names.index(operator) in self.keyed

    def founding_routes(self) -> Routes:
        """The first owners of the key groups of all keyed operators."""
        founders = self.founders()
        return tuple(
            route
            for index in self.keyed
            for route in founding(self.names[index], founders, self.groups)
        )

    def is_alone(self, operator: OperatorName) -> bool:
        """Whether the operator has one instance and can get no other."""
        index = self.names.index(operator)
        still = not (self.joins or self.fresh or self.relocations) or (
            self.scalable and index not in self.scalable
        )
        return self.counts[index] == 1 and bool(still)

    def siblings_max(self, operator: OperatorName) -> int:
        """How many others of an operator there can be."""
        return self.counts[self.names.index(operator)] + self._newcomers_max - 1

    @property
    def instances_max(self) -> int:
        return sum(self.counts) + self._newcomers_max

    @property
    def _newcomers_max(self) -> int:
        return self.joins * self.batch + self.fresh + self.relocations

    def __str__(self) -> str:
        words = [",".join(map(str, self.counts))]
        chain = tuple((i, i + 1) for i in range(len(self.counts) - 1))
        if self.edges != chain:
            words.append("edges=" + ",".join(f"{a}-{b}" for a, b in self.edges))
        for name in _WORDS:
            if value := getattr(self, name):
                words.append(f"{name}={value}")
        if self.batch > 1:
            words.append(f"batch={self.batch}")
        if self.groups > 1:
            words.append(f"groups={self.groups}")
        for name in OPERATORS:
            if indices := getattr(self, name):
                words.append(f"{name}=" + ",".join(map(str, indices)))
        if self.room:
            words.append(f"room={self.room}")
        words += [flag for flag in FLAGS if getattr(self, flag)]
        return " ".join(words)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(n) for n in text.split(","))
    except ValueError:
        raise ValueError(f"{text!r} is not a list of numbers such as 1,2,1") from None


def _check_keyed(given: Mapping[str, Any]) -> None:
    keyed, operators = given.get("keyed", ()), len(given["counts"])
    edges = given.get("edges") or tuple((i, i + 1) for i in range(operators - 1))
    if any(k not in {b for _, b in edges} for k in keyed):
        raise ValueError("a keyed operator is one behind another: keyed=1")
    if given.get("crashes") and given.get("blocking"):
        raise ValueError("sends that block are explored without crashes")
    if keyed and (given.get("room") or given.get("blocking")):
        raise ValueError("channels with bounds are explored without keyed operators")
    if not keyed and any(given.get(name) for name in ("moves", "groups", "slow")):
        raise ValueError("moves, groups and slow say something about keyed operators: keyed=1")
    if given.get("groups", 1) < 1:
        raise ValueError("the keys of an operator fall into one group at least")


def _edge(text: str) -> tuple[int, int]:
    a, dash, b = text.partition("-")
    if not (dash and a.isdigit() and b.isdigit()):
        raise ValueError(f"{text!r} is not an edge such as 0-1")
    return int(a), int(b)
