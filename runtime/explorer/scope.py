"""What is explored: a small pipeline, and how much may happen to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.protocol.ids import InstanceId, OperatorName, Topology


@dataclass(frozen=True, slots=True)
class Scope:
    """A pipeline at rest, and budgets which all instances of all operators share.

    `counts`: instances of each operator at the beginning; number 0 is the keeper.
    `edges`: pairs of operator indices; the chain of all operators unless given.
    `joins`, `leaves`, `fresh`, `sibling`: how many duplications, leaves, and hand-overs of the
    keeper's role to a fresh instance or to a sibling may be decided. `batch`: most children of
    one duplication. `tuples`: read by the sources, unavoidably, while decisions are optional.
    `finish`: the input of the sources ends, and everybody must.
    `spawn`: whether asking for processes and having them are two events, with failures, or one.
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
    names: tuple[OperatorName, ...] = field(init=False)
    topology: Topology = field(init=False)

    def __post_init__(self) -> None:
        names = tuple(OperatorName(f"O{i}") for i in range(len(self.counts)))
        edges = self.edges or tuple((i, i + 1) for i in range(len(self.counts) - 1))
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "topology", Topology.of((names[a], names[b]) for a, b in edges))

    def founders(self) -> list[InstanceId]:
        """The instances with which the run begins, by operator and number."""
        return [
            InstanceId(name, number)
            for name, count in zip(self.names, self.counts, strict=True)
            for number in range(count)
        ]

    @property
    def instances_max(self) -> int:
        return sum(self.counts) + self.joins * self.batch + self.fresh

    def __str__(self) -> str:
        words = [",".join(map(str, self.counts))]
        chain = tuple((i, i + 1) for i in range(len(self.counts) - 1))
        if self.edges != chain:
            words.append("edges=" + ",".join(f"{a}-{b}" for a, b in self.edges))
        for name in ("joins", "leaves", "fresh", "sibling", "tuples"):
            if value := getattr(self, name):
                words.append(f"{name}={value}")
        if self.batch > 1:
            words.append(f"batch={self.batch}")
        words += [flag for flag in ("finish", "spawn") if getattr(self, flag)]
        return " ".join(words)
