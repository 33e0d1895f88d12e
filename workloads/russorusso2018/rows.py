"""The rows of the tables: how regions and operators are managed in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Figures = tuple[float, float, float, float]
"""Violations and changes in % of the slots, mean instances, mean hosts."""
STATIC, SIMPLE, LEARNS, TRIES = "static", "simple", "RL", "Q-learning"
THRESHOLD, OWN = "threshold", "Anabranch"


@dataclass(frozen=True, slots=True)
class Row:
    """`regions`: static, simple, RL or Q-learning; `operators`: threshold, RL or Anabranch. `w_d`:
    what a refusal counts. `emptiest`: the instance on the emptiest host leaves (HI-G23);
    `free_slots`: regions see free slots in place of idle hosts (HI-G16); `tokens`: size of the
    bucket, and tokens per slot (HI16); `fade_days`: HI-G14. `paper`, `first`: the figures of the
    paper, and of the first model of it with the authors' trace."""

    regions: str
    operators: str
    w_d: float = 0.7
    emptiest: bool = False
    free_slots: bool = False
    tokens: tuple[float, float] | None = None
    fade_days: float | None = None
    table: str = "1"
    paper: Figures | None = None
    first: Figures | None = None
    target: Figures | None = None

    @property
    def name(self) -> str:
        parts = [self.regions, self.operators]
        if self.w_d != 0.7:
            parts.append(f"w_d {self.w_d:g}")
        if self.free_slots:
            parts.append("free slots")
        if self.emptiest:
            parts.append("emptiest leaves")
        if self.tokens is not None:
            parts.append(f"tokens {self.tokens[0]:g}, {self.tokens[1]:g}")
        if self.fade_days is not None:
            parts.append(f"fades in {self.fade_days:g} days")
        return ", ".join(parts)


def _table_1() -> list[Row]:
    return [
        Row(STATIC, THRESHOLD, paper=(0.01, 3.21, 17.84, 36), first=(0.01, 3.21, 17.84, 36),
            target=(0.01, 2.63, 17.68, 36)),
        Row(STATIC, LEARNS, paper=(0.15, 1.02, 18.32, 36), first=(0.21, 1.10, 17.96, 36),
            target=(0.10, 0.87, 17.83, 36)),
        Row(SIMPLE, THRESHOLD, paper=(0.01, 3.26, 17.83, 16.57),
            first=(0.01, 3.21, 17.84, 16.57), target=(0.01, 2.63, 17.68, 16.16)),
        Row(SIMPLE, LEARNS, paper=(0.15, 1.04, 18.32, 16.82), target=(0.10, 0.87, 17.83, 16.17)),
        Row(LEARNS, THRESHOLD, paper=(0.17, 3.20, 17.63, 9.66), first=(0.04, 3.24, 17.56, 10.21),
            target=(0.02, 2.62, 17.38, 9.78)),
        Row(LEARNS, LEARNS, paper=(0.17, 1.10, 18.25, 9.76), first=(0.23, 1.14, 17.87, 10.43),
            target=(0.15, 0.92, 17.74, 10.32)),
    ]  # fmt: skip


def _table_2() -> list[Row]:
    return [
        Row(LEARNS, THRESHOLD, 0.1, table="2", paper=(79.20, 0.91, 6.13, 3.14),
            first=(77.49, 1.47, 9.30, 5.31), target=(83.35, 0.54, 6.56, 3.52)),
        Row(LEARNS, THRESHOLD, 0.3, table="2", paper=(8.45, 2.88, 16.60, 8.57),
            first=(7.30, 3.04, 16.65, 9.31), target=(5.65, 2.59, 16.61, 9.21)),
        Row(LEARNS, THRESHOLD, 0.5, table="2", paper=(1.37, 3.09, 17.35, 9.10),
            target=(0.26, 2.65, 17.24, 9.65)),
        Row(LEARNS, THRESHOLD, 0.9, table="2", paper=(0.01, 3.25, 17.75, 10.23),
            first=(0.01, 3.27, 17.76, 10.66), target=(0.01, 2.69, 17.56, 10.26)),
        Row(LEARNS, LEARNS, 0.1, table="2", paper=(41.52, 0.69, 15.81, 8.15),
            first=(38.75, 0.79, 14.81, 8.07), target=(19.97, 0.77, 15.69, 8.57)),
        Row(LEARNS, LEARNS, 0.3, table="2", paper=(0.72, 1.09, 18.91, 9.87),
            target=(0.37, 0.96, 17.57, 9.91)),
        Row(LEARNS, LEARNS, 0.5, table="2", paper=(0.20, 1.18, 18.64, 9.74),
            target=(0.20, 0.91, 17.67, 10.13)),
        Row(LEARNS, LEARNS, 0.9, table="2", paper=(0.16, 1.07, 18.32, 10.33),
            target=(0.11, 0.90, 17.83, 10.62)),
    ]  # fmt: skip


def _ours() -> list[Row]:
    return [
        Row(LEARNS, LEARNS, emptiest=True, table="ours", target=(0.14, 0.94, 17.72, 9.47)),
        Row(LEARNS, LEARNS, free_slots=True, table="ours"),
        Row(LEARNS, LEARNS, emptiest=True, free_slots=True, table="ours"),
        Row(LEARNS, LEARNS, emptiest=True, tokens=(4, 1 / 30), table="ours"),
        Row(LEARNS, LEARNS, emptiest=True, fade_days=7, table="ours"),
        Row(LEARNS, OWN, emptiest=True, table="ours"),
        Row(TRIES, THRESHOLD, table="ours"),
    ]


ROWS: Sequence[Row] = (*_table_1(), *_table_2(), *_ours())
BETTER = "RL, RL, emptiest leaves"
"""The row that should be better than any of the paper."""
