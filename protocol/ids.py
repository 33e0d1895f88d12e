"""Names of things that take part in the protocol.

An instance's id holds its operator, so that a receiver knows on which side of it a sender is
without having it in its view, and the number of the instance that created it, so that a leaver
needs to list only the ids that its receiver could have created (`docs/protocol.md` 2.2, LEAVE).
Ids are never used twice within a run, except by the incarnations of one instance: when its process
dies, the next one is the same instance for all others. The protocol does not distinguish
incarnations; the layer below it does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, NewType

OperatorName = NewType("OperatorName", str)


class InstanceId(NamedTuple):
    """One instance of an operator, whichever process it lives in."""

    operator: OperatorName
    number: int
    creator: int = -1

    def __str__(self) -> str:
        return f"{self.operator}.{self.number}"


@dataclass(frozen=True, slots=True)
class Topology:
    """The static graph of operators; every instance knows it whole.

    `edges` are pairs (upstream operator, downstream operator) of an acyclic graph.
    """

    edges: frozenset[tuple[OperatorName, OperatorName]]

    @classmethod
    def of(cls, edges: Iterable[tuple[str, str]]) -> Topology:
        return cls(frozenset((OperatorName(a), OperatorName(b)) for a, b in edges))

    def upstream(self, operator: OperatorName) -> tuple[OperatorName, ...]:
        return tuple(sorted(a for a, b in self.edges if b == operator))

    def downstream(self, operator: OperatorName) -> tuple[OperatorName, ...]:
        return tuple(sorted(b for a, b in self.edges if a == operator))

    def feeds(self, a: OperatorName, b: OperatorName) -> bool:
        """Whether tuples flow from operator `a` straight to operator `b`."""
        return (a, b) in self.edges
