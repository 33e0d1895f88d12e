"""What a bench is told, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches.figures import spread


@dataclass(frozen=True, slots=True)
class Settings:
    """`runs` and `seconds` are None where the bench's own default holds."""

    folder: Path
    """For whatever a bench writes; gone afterwards."""
    say: Callable[[str], None]
    """Shows progress."""
    runs: int | None = None
    seconds: float | None = None
    lines: int = 2_000_000

    def runs_or(self, default: int) -> int:
        return default if self.runs is None else self.runs

    def seconds_or(self, default: float) -> float:
        return default if self.seconds is None else self.seconds


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, once per run. `target`: in words, and whether the median meets it."""

    name: str
    unit: str
    values: list[float]
    target: str = ""
    met: bool | None = None

    def as_json(self) -> dict[str, Any]:
        low, median, high = spread(self.values)
        row = {"name": self.name, "unit": self.unit, "min": low, "median": median, "max": high}
        return {**row, "values": self.values, "target": self.target, "met": self.met}


@dataclass(slots=True)
class Result:
    bench: str
    about: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What must hold and does not. Being slow is none: it depends on the machine."""

    def add(self, name: str, unit: str, values: list[float]) -> None:
        """A figure without values is left out."""
        if values:
            self.rows.append(Row(name, unit, values))

    def at_least(self, name: str, values: list[float], target: float) -> None:
        """A ratio, and what its median should be."""
        if values:
            met = spread(values).median >= target
            self.rows.append(Row(name, "x", values, f">= {target:g}", met))

    def at_most(self, name: str, values: list[float], most: float) -> None:
        """A ratio, and what its median should not exceed."""
        if values:
            self.rows.append(Row(name, "x", values, f"<= {most:g}", spread(values).median <= most))

    def as_json(self) -> dict[str, Any]:
        return {
            "bench": self.bench,
            "about": self.about,
            "rows": [row.as_json() for row in self.rows],
            "notes": self.notes,
            "faults": self.faults,
        }
