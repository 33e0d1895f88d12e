"""What comes into a world, and where its results are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path("/world")
"""The only one of a world's disk: results may be written there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLoad:
    """`count` numbers come in from each source within `span_s` seconds. `bursts`: the same, where
    they do not come at a steady pace; when each burst is due, and how many numbers it has."""

    count: int
    span_s: float
    bursts: tuple[tuple[float, int], ...]
