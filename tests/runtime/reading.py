"""Reads splits as instances do: what comes out of a source, whoever reads which part."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from anabranch.protocol.limits import Limits
from anabranch.runtime.plan.ends import DeadLetter, RunContext, Source, Split
from anabranch.runtime.sources.board import Board

LIMITS = Limits()


def context(limits: Limits = LIMITS, started_s: float = 0.0) -> RunContext:
    return RunContext(
        pipeline="p",
        operator="lines",
        instance="lines.0",
        run_dir=Path("/nonexistent"),
        started_s=started_s,
        limits=limits,
    )


class Reading:
    """Everything that was read so far, split by split."""

    def __init__(self, source: Source, limits: Limits = LIMITS, tuples_max: int = 1024) -> None:
        self.source = source
        self.context = context(limits)
        self.tuples_max = tuples_max
        self.tuples: list[Any] = []
        self.dead: list[DeadLetter] = []
        self.progress = 0.0

    async def split(self, split: Split, reads_max: int | None = None) -> Split | None:
        """Read at most so many chunks; returns what remains of the split."""
        reader = self.source.open(split, self.context)
        try:
            while reads_max is None or reads_max > 0:
                chunk = await reader.read(self.tuples_max, 256 * 1024)
                if chunk is None:
                    assert reader.remainder() is None
                    return None
                self.tuples += chunk.tuples
                self.dead += chunk.dead
                self.progress += chunk.progress
                reads_max = None if reads_max is None else reads_max - 1
            return reader.remainder()
        finally:
            reader.close()

    async def all(self) -> Reading:
        self.source.prepare()
        for split in self.source.splits():
            await self.split(split)
        return self

    async def interrupted(self, seed: int) -> Reading:
        """Every reader leaves again and again; what remains goes back to the board."""
        rng = random.Random(seed)
        board: Board[int] = Board(self.source.splits())
        while (split := board.claim(0)) is not None:
            board.release(0, await self.split(split, rng.randrange(4)))
        return self
