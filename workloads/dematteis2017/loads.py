"""The loads of the evaluation, as shares of what all instances together can do (3.2).

The paper has (a) a random walk over 240 s and (b) a trading day, sped up by 50. Neither is
published: the walk is the one of its authors' earlier program, the day another one, of one stock.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.curves import Brownian
from anabranch.workloads.quotes import QUOTES_HEADER

QUOTES = "taq_xxx_20180102_quotes.csv.gz"
OPENS, CLOSES = 14.5 * 3600, 21.0 * 3600
"""Of the exchange, in UTC seconds of the day."""
BIN_S, SPEED, MEAN, MOST = 30.0, 50.0, 0.40, 1.15
"""Finer bins show the bursts of one stock, which thousands of stocks together do not have."""
WALK_S, WALK_START, WALK_SD, WALK_LOW, WALK_HIGH = 240, 0.5, 0.055, 0.45, 1.53
"""The last three as multiples of the start."""
JUMP_S, JUMP_AT_S, JUMP_FROM, JUMP_TO = 120, 60, 0.3, 0.6


@dataclass(frozen=True, slots=True)
class Scene:
    """What is offered and what is demanded. `shares`: of each bin of `bin_s` seconds. The weight
    and the filter are those of the authors' earlier program for such a load (PL-G3, PL-G4)."""

    name: str
    shares: FloatArray
    bin_s: float
    latency_ms: float
    qos_weight: float = 3.0
    level: float = 0.67
    trend: float = 0.26

    @property
    def seconds(self) -> float:
        return len(self.shares) * self.bin_s


def walk(seed: int) -> Scene:
    """(a): steps of a second, reflected nowhere: at its bounds the walk stops until it turns."""
    curve = Brownian(
        start=WALK_START,
        step_sd=WALK_SD * WALK_START,
        low=WALK_LOW * WALK_START,
        high=WALK_HIGH * WALK_START,
        seed=seed,
    )
    shares = curve.rate(np.arange(WALK_S, dtype=float))
    return Scene("a", shares, 1.0, 70.0, qos_weight=2.0, level=1.0, trend=0.015)


def day(counts: FloatArray) -> Scene:
    """(b): from the quotes in each bin of the day."""
    shares = np.minimum(counts * (MEAN / float(counts.mean())), MOST)
    return Scene("b", shares, BIN_S / SPEED, 250.0)


def jump() -> Scene:
    """Ours: from one level to twice that, to see how long each takes to settle."""
    at = np.arange(JUMP_S)
    return Scene("jump", np.where(at < JUMP_AT_S, JUMP_FROM, JUMP_TO), 1.0, 250.0)


def read_counts(path: Path) -> FloatArray:
    """Quotes of each bin while the exchange is open. Raises `ValueError` for another file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        head = next(lines, "").rstrip()
        if head != QUOTES_HEADER:
            raise ValueError(f"{path}: expected the columns {QUOTES_HEADER}, got {head!r:.200}")
        seconds = [_second_of_day(line) for line in lines]
    bins = round((CLOSES - OPENS) / BIN_S)
    counts, _ = np.histogram(seconds, bins=bins, range=(OPENS, CLOSES))
    return counts.astype(float)


def _second_of_day(line: str) -> float:
    """Of `2018-01-02T09:04:13.125000,...`."""
    return int(line[11:13]) * 3600 + int(line[14:16]) * 60 + float(line[17 : line.index(",")])
