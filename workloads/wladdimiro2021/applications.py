"""The two applications of the evaluation, as graphs with shares of the tuples on their edges."""

from __future__ import annotations

import math
from dataclasses import dataclass

TARGET = 0.7
"""The share of its capacity for which `r_over`, the static contestant, is sized (MM-X11)."""


@dataclass(frozen=True, slots=True)
class Application:
    """`edges`: (from, to, share of the tuples that goes there), in the order of the stream. The
    first operator reads the load; what has nowhere to go is delivered."""

    name: str
    operators: tuple[str, ...]
    edges: tuple[tuple[str, str, float], ...]

    def shares(self) -> dict[str, float]:
        """Of the load, by operator."""
        found = dict.fromkeys(self.operators, 0.0)
        found[self.operators[0]] = 1.0
        for above, below, share in self.edges:
            found[below] += found[above] * share
        return found

    @property
    def sinks(self) -> tuple[str, ...]:
        above = {edge[0] for edge in self.edges}
        return tuple(name for name in self.operators if name not in above)

    def enough_for(self, peak: float, work_s: float) -> dict[str, int]:
        """Instances by operator that bear `peak` tuples/s of `work_s` at `TARGET` (MM-X11)."""
        return {
            name: math.ceil(round(peak * share * work_s / TARGET, 9))
            for name, share in self.shares().items()
        }


TOPICS = Application(
    "topics",
    ("topic", "subtopic", "category", "subcategory"),
    (
        ("topic", "subtopic", 1.0),
        ("subtopic", "category", 1.0),
        ("category", "subcategory", 1.0),
    ),
)
FLOWS = Application(
    "flows",
    ("parse", "spam", "user", "notify", "news", "sentiment", "topic", "save"),
    (
        ("parse", "spam", 1.0),
        ("spam", "user", 0.2),
        ("spam", "news", 0.8),
        ("user", "notify", 1.0),
        ("news", "sentiment", 0.9),
        ("news", "topic", 0.1),
        ("sentiment", "topic", 1.0),
        ("notify", "save", 1.0),
        ("topic", "save", 1.0),
    ),
)
