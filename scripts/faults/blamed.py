"""Tuples that the poison guard takes for the reason of kills.

A kill hits any process, so now and then two of them hit one while it tries the same tuple, alone.
Then this tuple is a dead letter with this reason, as it has to be; what would have come of it is
not missed. Letters of any other reason are faults.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.settings import Settings

REASON = "ended its process: was killed by SIGKILL"


@dataclass(frozen=True, slots=True)
class Blamed:
    """By operator, as they are in the file of dead letters."""

    tuples: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(map(len, self.tuples.values()))

    def at(self, *operators: str) -> list[Any]:
        return [item for operator in operators for item in self.tuples.get(operator, ())]


def blamed(settings: Settings) -> Blamed:
    found = Blamed()
    for line in _lines(settings.dead):
        letter = json.loads(line)
        if letter["reason"] == REASON:
            found.tuples.setdefault(letter["operator"], []).append(letter["tuple"])
    return found


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
