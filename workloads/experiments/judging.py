"""Criteria of an experiment, judged in words, and tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Criterion:
    """`what` should hold; `figure`: what was measured, as text."""

    what: str
    met: bool
    figure: str


def judged(criteria: Iterable[Criterion]) -> Iterator[str]:
    """A line of Markdown for each."""
    for one in criteria:
        yield f"- {'met' if one.met else 'NOT met'}: {one.what} ({one.figure})"


def plain(criteria: Iterable[Criterion]) -> list[dict[str, object]]:
    """For JSON."""
    return [asdict(one) for one in criteria]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The first column is text, the others are numbers."""
    yield "| " + " | ".join(head) + " |"
    yield "| --- " + "| ---: " * (len(head) - 1) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def rising(values: Sequence[float], tie: float = 0.0) -> bool:
    """Whether none is lower than the one before it by more than `tie`."""
    return all(a <= b + tie for a, b in pairwise(values))


def listed(values: Mapping[str, float], names: Sequence[str]) -> str:
    """The values of these names, as the figure of a criterion."""
    return ", ".join(f"{name} {values[name]:.1f}" for name in names)
