"""How much of a log one micro-batch takes, and how its rows are divided among Spark tasks. Pure.

Offsets as Spark keeps them: `{"generation": "…", "parts": {"out.0": 1200, "out.1": 800}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

TASK_ROWS_GOOD = 5_000
"""A task for fewer rows costs more than it gains."""


class RowRange(NamedTuple):
    part: str
    start: int
    end: int


def admit(start: Mapping[str, int], end: Mapping[str, int], rows_max: int) -> dict[str, int]:
    """The end of a batch from `start` towards `end` of at most `rows_max` rows in all.

    Fair: no part gets more than another as long as the other still has rows to give.
    """
    waiting = {part: row - start.get(part, 0) for part, row in end.items()}
    left = rows_max
    granted: dict[str, int] = {}
    # Smallest first: what a part cannot use of its share is divided among the others.
    for parts_left, part in zip(
        range(len(waiting), 0, -1), sorted(waiting, key=lambda p: (waiting[p], p)), strict=True
    ):
        # Rounded up, so that a bound below the number of parts still lets rows through.
        granted[part] = min(max(waiting[part], 0), -(-left // parts_left))
        left -= granted[part]
    return {part: start.get(part, 0) + granted[part] for part in end}


def plan(
    start: Mapping[str, int], end: Mapping[str, int], tasks: int, rows_per_task_max: int
) -> list[list[RowRange]]:
    """The rows from `start` to `end`, divided evenly into about `tasks` tasks, in order."""
    ranges = [
        RowRange(part, start.get(part, 0), row)
        for part, row in sorted(end.items())
        if row > start.get(part, 0)
    ]
    total = sum(r.end - r.start for r in ranges)
    size = min(max(-(-total // tasks), TASK_ROWS_GOOD), rows_per_task_max)
    planned: list[list[RowRange]] = []
    room = 0
    for part, at, stop in ranges:
        while at < stop:
            if room == 0:
                planned.append([])
                room = size
            upto = min(stop, at + room)
            planned[-1].append(RowRange(part, at, upto))
            room -= upto - at
            at = upto
    return planned
