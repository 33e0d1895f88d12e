"""The shipped policy in turns once more, for 100,000 siblings: an array per field of memory.

The same rules as `runtime.policies` with the settings of `exact.in_turn` (period one step, no
cool-down, no bounds), written for all siblings at once. It exists for its speed alone; a test
holds it to the real one, step by step without noise and in distribution with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from anabranch.runtime.measuring.turns import BATCH_MAX, COMING_PERIODS
from anabranch.runtime.policies.in_turn import LASTING_PERIODS, LEAVE_MAX, RESERVE
from anabranch.runtime.policies.memory import BACKOFF_MAX_S, HELPED
from anabranch.workloads.belkhiria2019.bulk_motion import Motions
from anabranch.workloads.belkhiria2019.setup import Counts, Outcome, Setup
from anabranch.workloads.curve_base import FloatArray

NEVER = 10**9
WAIT = int(COMING_PERIODS)
RING = 2 * WAIT
"""Slots for what is under way, by the step until which it is expected, modulo this."""


@dataclass
class Siblings:
    """All of an operator, oldest first; the keeper is the oldest. One element per instance."""

    count: int
    busy_until: Counts = field(init=False)
    gone_at: Counts = field(init=False)
    known: Counts = field(init=False)
    """The count of siblings at the last look; 0 before the first."""
    throughput: FloatArray = field(init=False)
    failed: Counts = field(init=False)
    backoff_until: FloatArray = field(init=False)
    overloaded_since: FloatArray = field(init=False)
    coming: Counts = field(init=False)
    motions: FloatArray = field(init=False)
    """As `Motions` keeps them; NaN before the first look."""

    def __post_init__(self) -> None:
        n = self.count
        self.busy_until = np.full(n, -1)
        self.gone_at = np.full(n, NEVER)
        self.known = np.zeros(n, dtype=np.int64)
        self.throughput = np.zeros(n)
        self.failed = np.zeros(n, dtype=np.int64)
        self.backoff_until = np.full(n, -np.inf)
        self.overloaded_since = np.full(n, np.inf)
        self.coming = np.zeros((n, RING), dtype=np.int64)
        self.motions = Motions.unknown(n)

    def arrays(self) -> list[str]:
        return [f.name for f in fields(self) if f.name != "count"]

    def keep(self, which: NDArray[np.bool_]) -> None:
        for name in self.arrays():
            setattr(self, name, getattr(self, name)[which])
        self.count = len(self.known)

    def join(self, newcomers: Siblings) -> None:
        for name in self.arrays():
            both = (getattr(self, name), getattr(newcomers, name))
            setattr(self, name, np.concatenate(both))
        self.count = len(self.known)

    def children(self, makers: Counts, each: Counts, t: int, join_steps: int) -> Siblings:
        """Newcomers of those makers as they will be when they begin."""
        of = np.repeat(makers, each)
        born = Siblings(len(of))
        born.known, born.throughput = self.known[of], self.throughput[of]
        born.failed = self.failed[of]
        born.motions = Motions.inherited(self.motions[of])
        born.backoff_until = t + join_steps + np.maximum(0.0, self.backoff_until[of] - t)
        return born


class Bulk:
    """One operator; `noise` as in `exact.Operator`."""

    def __init__(self, setup: Setup, noise: float, rng: np.random.Generator) -> None:
        self.setup, self.noise, self.rng = setup, noise, rng
        self.siblings = Siblings(setup.instances)
        self.joining: dict[int, Siblings] = {}

    def step(self, t: int, load: float) -> tuple[int, int, int, int]:
        """Active instances, then newcomers, batches and leaves that were decided."""
        self._change(t)
        all_ = self.siblings
        n = all_.count
        looking = np.flatnonzero((all_.gone_at == NEVER) & (all_.busy_until <= t))
        ratio = self._own(load / n, len(looking)) / self.setup.capacity
        self._learn(t, looking, ratio, n)
        motions = Motions(all_.motions[looking]).seen(ratio * n)
        all_.motions[looking] = motions.table
        ratio = motions.level / n
        net = all_.coming[looking].sum(axis=1)
        expected = np.maximum(1, n + net)
        made = self._grow(t, looking, motions, n, expected)
        leavers = self._shrink(t, looking, motions, n, expected)
        makers = looking[made > 0]
        each = made[made > 0]
        if len(makers):
            due = t + self.setup.join_steps
            self.joining[due] = all_.children(makers, each, t, self.setup.join_steps)
            all_.busy_until[makers] = due
        all_.gone_at[leavers] = t + self.setup.leave_steps
        return n, int(each.sum()), len(makers), len(leavers)

    def _change(self, t: int) -> None:
        gone = self.siblings.gone_at == t
        if gone.any():
            self.siblings.keep(~gone)
        if t in self.joining:
            self.siblings.join(self.joining.pop(t))

    def _own(self, share: float, looking: int) -> FloatArray:
        if not self.noise:
            return np.full(looking, share)
        wrong = self.rng.normal(0, self.noise, looking)
        return np.asarray(share * np.maximum(0.0, 1 + wrong))

    def _learn(self, t: int, looking: Counts, ratio: FloatArray, n: int) -> None:
        """As `memory.learn`: what came of what was under way, and whether growth has helped."""
        all_ = self.siblings
        known, before = all_.known[looking], all_.throughput[looking]
        change = np.where(known > 0, n - known, 0)
        coming = all_.coming[looking]
        for until in range(t - WAIT + 1, t + WAIT):
            entry = coming[:, until % RING]
            up, down = (
                np.clip(change, 0, np.maximum(entry, 0)),
                np.clip(change, np.minimum(entry, 0), 0),
            )
            seen = np.where(entry > 0, up, down)
            change = change - seen
            coming[:, until % RING] = entry - seen if until > t else 0
        all_.coming[looking] = coming
        now = n * np.minimum(ratio, 1.0) * self.setup.capacity
        fine = ratio <= self.setup.high
        judged = ~fine & (known > 0) & (known < n) & (before > 0)
        hoped = n / np.maximum(known, 1) - 1
        helped = judged & (now / np.where(before > 0, before, 1.0) - 1 >= HELPED * hoped)
        failed = np.where(judged & ~helped, all_.failed[looking] + 1, all_.failed[looking])
        wait = np.minimum(2.0 ** np.minimum(failed, 16), BACKOFF_MAX_S)
        until_s = np.where(judged & ~helped, t + wait, all_.backoff_until[looking])
        all_.failed[looking] = np.where(fine | helped, 0, failed)
        all_.backoff_until[looking] = np.where(fine, -np.inf, until_s)
        all_.known[looking], all_.throughput[looking] = n, now

    def _grow(self, t: int, looking: Counts, motions: Motions, n: int, expected: Counts) -> Counts:
        """Newcomers that each of the `looking` instances starts."""
        all_, setup = self.siblings, self.setup
        ratio = motions.level / n
        load = ratio * n / expected
        may = (ratio > setup.high) & (all_.backoff_until[looking] <= t)
        over = may & (load > setup.high)
        since = all_.overloaded_since[looking]
        since = np.where(over, np.minimum(since, t), since)
        rests = (ratio <= setup.high) | (may & ~over)
        all_.overloaded_since[looking] = np.where(rests, np.inf, since)
        lasts = t - since >= LASTING_PERIODS
        wanted = motions.at_least(np.asarray(expected * setup.target, dtype=np.float64))
        missing = np.floor(wanted / setup.target - expected + 0.5).astype(np.int64)
        jumped = (missing < 1) & (motions.level > wanted)
        missing = np.where(lasts & ~jumped, np.maximum(missing, 1), missing)
        acts = over & (missing >= 1) & (lasts | (load > (setup.high + 1) / 2))
        missing = np.where(acts, missing, 0)
        all_.coming[looking, (t + WAIT) % RING] += missing
        makers = np.maximum(1, np.minimum(n, -(-missing // BATCH_MAX)))
        place = (looking - t) % n
        own = (place + 1) * missing // makers - place * missing // makers
        return np.where(place < makers, own, 0)

    def _shrink(
        self, t: int, looking: Counts, motions: Motions, n: int, expected: Counts
    ) -> Counts:
        """Ranks of those that leave."""
        all_, setup = self.siblings, self.setup
        ratio = motions.level / n
        under = (ratio < setup.low) & (n > 1) & (ratio * n / expected < setup.low)
        stays = motions.at_most(np.asarray(expected * setup.target, dtype=np.float64))
        needed = np.ceil(stays / setup.target + RESERVE).astype(np.int64)
        surplus = np.where(under, expected - np.maximum(needed, 1), 0)
        at_once = np.where(motions.noise > 0, int(np.ceil(n * LEAVE_MAX)), n)
        surplus = np.minimum(surplus, at_once)
        surplus = np.maximum(surplus, 0)
        end = n + np.minimum(all_.coming[looking], 0).sum(axis=1)
        goes = (surplus > 0) & (end - surplus <= looking) & (looking < end) & (looking > 0)
        all_.coming[looking, (t + WAIT) % RING] -= surplus
        return np.asarray(looking[goes])


def bulk(setup: Setup, load: FloatArray, seed: int, noise: float = 0.0) -> Outcome:
    out = Outcome.empty(load)
    decided = np.stack((out.instances, out.joins, out.batches, out.leaves), axis=-1)
    for run in range(load.shape[0]):
        for k in range(load.shape[1]):
            operator = Bulk(setup, noise, np.random.default_rng([2, seed + run, k]))
            for t, offered in enumerate(load[run, k].tolist()):
                decided[run, k, t] = operator.step(t, offered)
    return Outcome(load, *(decided[..., i] for i in range(4)))
