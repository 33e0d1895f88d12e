"""The policy as published: Algorithms 1 to 4 and 8, and its errata in two readings.

To the letter, erratum PE1 (`if n > 1`) makes a single duplication impossible and PE3 (a negative
number as a probability) forbids every leave. The paper's figures show both, so its simulation
cannot have been that; `as_meant` reads `n >= 1` and the absolute value and leaves the rest as
printed: PE2 (floor(p) + 1 whenever p >= 1), PE4 (floor of a negative difference), PE5 (the keeper's
share of the leaves is lost).

Siblings share their load evenly and differ in nothing but the phase of their decisions, so runs
keep how many there are of each phase, and whole groups draw at once (binomial numbers).
"""

from __future__ import annotations

import numpy as np

from anabranch.workloads.belkhiria2019.setup import Outcome, Setup
from anabranch.workloads.curve_base import FloatArray


def published(setup: Setup, load: FloatArray, seed: int, *, as_meant: bool) -> Outcome:
    """All runs at once."""
    out = Outcome.empty(load)
    runs, operators, steps = load.shape
    rng = np.random.default_rng([1, seed])
    phases = np.full(setup.period, 1 / setup.period)
    others = rng.multinomial(np.full((runs, operators), setup.instances - 1), phases)
    keepers = rng.integers(0, setup.period, (runs, operators))
    joining = np.zeros((steps + setup.join_steps, runs, operators), dtype=np.int64)
    leaving = np.zeros((steps + setup.leave_steps, runs, operators, setup.period), dtype=np.int64)
    staying = others.copy()  # without those that have decided to leave
    for t in range(steps):
        newcomers = rng.multinomial(joining[t], phases)
        others += newcomers - leaving[t]
        staying += newcomers
        n = others.sum(axis=-1) + 1
        now = t % setup.period
        difference = np.floor(load[:, :, t] / setup.full - n)
        ratio = load[:, :, t] / (n * setup.capacity)
        p = difference / n
        deciding = np.where(ratio > setup.high, staying[:, :, now] + (keepers == now), 0)
        made, makers = _duplications(p, deciding, rng, as_meant)
        chance = np.where(ratio < setup.low, np.clip(-p, 0, 1), 0.0)
        gone = rng.binomial(staying[:, :, now], chance) if as_meant else np.zeros_like(made)
        staying[:, :, now] -= gone
        leaving[t + setup.leave_steps, :, :, now] = gone
        joining[t + setup.join_steps] = made
        out.instances[:, :, t], out.joins[:, :, t] = n, made
        out.batches[:, :, t], out.leaves[:, :, t] = makers, gone
    return out


def _duplications(
    p: FloatArray, deciding: np.ndarray, rng: np.random.Generator, as_meant: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Newcomers, and by how many: floor(p) each and one more if a draw is below p itself."""
    certain = np.maximum(np.floor(p), 0).astype(np.int64)
    lucky = rng.binomial(deciding, np.clip(p, 0, 1))
    if as_meant:
        return certain * deciding + lucky, np.where(certain > 0, deciding, lucky)
    two_or_more = certain >= 1
    return (
        np.where(two_or_more, certain * deciding + lucky, 0),
        np.where(two_or_more, deciding, 0),
    )
