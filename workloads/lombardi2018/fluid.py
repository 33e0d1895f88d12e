"""The model: tweets as a fluid, in steps of a tenth of a second, of all seeds at once.

Before each source waits what is due and was not read; each instance has a queue. What arrives is
split evenly over siblings, and gets through one operator per step. The cores that a host has for
instances are shared max-min fairly. At most 2,000 tweets are inside. Where a change is a restart,
nothing runs for 5 to 8 seconds (EL14); hosts start at once, as those of the authors did.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.runtime.policies.elysium.assessing import Target
from anabranch.runtime.policies.elysium.profiling import EVERY_S, WINDOW_S
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.lombardi2018.applications import CORES, HOSTS
from anabranch.workloads.lombardi2018.pools import INSTANCES_MAX, Pool

STEP_S = 0.1
INSIDE_MAX = 2000.0
RESTART_S = (5.0, 8.0)
JOIN_S = 1.0
"""From then on a newcomer works, where nothing restarts."""
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Window:
    """Means over ten seconds, of all seeds: tweets/s that came and that were read, cores and
    tuples/s of each instance. `whole`: nothing was restarting in them."""

    at_s: float
    offered: FloatArray
    emitted: FloatArray
    acked: FloatArray
    cores: FloatArray
    done: FloatArray
    whole: NDArray[np.bool_]


class Fluid:
    """`seeds`: how many courses. Arrays have a row for each of them, then operators or
    applications, then instances. `background`: cores of each host that something else takes.

    Large because each step needs the whole state of the model."""

    def __init__(self, pool: Pool, seeds: int, background: float = 0.0) -> None:
        shape = (seeds, len(pool.operators), INSTANCES_MAX)
        self.pool = pool
        self.now_s = 0.0
        self.targets: list[Target | None] = [None] * seeds
        self.backlog = np.zeros((seeds, len(pool.names)))
        self.inside = np.zeros_like(self.backlog)
        self.queues = np.zeros(shape)
        self.windows: deque[Window] = deque(maxlen=round(WINDOW_S / EVERY_S))
        self._ready_s = np.full(shape, np.inf)
        self._host = np.zeros(shape, dtype=np.int64)
        self._on = np.zeros((seeds, HOSTS, shape[1] * shape[2]))
        host = pool.host
        self._budget = (CORES - background - host.base) / host.times
        self._sums = _Sums(shape, len(pool.names))
        self._works, self._even = np.zeros(shape, dtype=bool), np.zeros(shape)
        self._runs: NDArray[np.bool_] = np.zeros(seeds, dtype=bool)
        self._next_s = 0.0

    def configure(
        self, seed: int, target: Target, stop_s: float | None = None, *, first: bool = False
    ) -> None:
        """What runs from now on. `stop_s`: so long nothing runs; None: only newcomers wait."""
        before = self.targets[seed]
        self.targets[seed] = target
        waits_s = 0.0 if first else JOIN_S
        for at, name in enumerate(self.pool.operators):
            p = target.sizes[name]
            self._ready_s[seed, at, p:] = np.inf
            if before is None or before.sizes[name] != p:
                waiting = self.queues[seed, at].sum()
                self.queues[seed, at] = 0.0
                self.queues[seed, at, :p] = waiting / p
                old = 0 if before is None else before.sizes[name]
                self._ready_s[seed, at, old:p] = self.now_s + waits_s
            for number in range(p):
                self._host[seed, at, number] = target.placement[name, number]
        if stop_s is not None:
            running = np.isfinite(self._ready_s[seed])
            self._ready_s[seed][running] = self.now_s + stop_s
        hosts = self._host[seed].reshape(-1)
        self._on[seed] = (hosts == np.arange(HOSTS)[:, None]) & np.isfinite(
            self._ready_s[seed].reshape(-1)
        )
        self._next_s = self.now_s

    def step(self, due: FloatArray) -> FloatArray:
        """`due`: tweets of each application in this step. Returns those that are done."""
        pool, reads = self.pool, self.pool.reads
        self.backlog += due
        if self.now_s >= self._next_s - 1e-9:
            self._look()
        works, even = self._works, self._even
        free = np.minimum(self.backlog, np.maximum(INSIDE_MAX - self.inside, 0.0))
        self.queues[:, reads] = free[:, :, None] * even[:, reads]
        base, per_tuple = pool.base[:, None], pool.per_tuple[:, None]
        wanted = np.where(works, np.minimum(1.0, base + per_tuple * self.queues / STEP_S), 0.0)
        got = self._shared(wanted)
        done = np.minimum(np.maximum((got - base) / per_tuple * STEP_S, 0.0), self.queues)
        out = done.sum(axis=2)
        inflow = out[:, pool.before] * pool.into
        self.queues += inflow[:, :, None] * even - done
        acked: FloatArray = out[:, pool.acks] / pool.per_ack
        read = out[:, reads]
        self.backlog -= read
        self.inside += read - acked
        self.now_s += STEP_S
        self._sums.add(due, read, acked, got, done, self._runs)
        if self._sums.steps == round(EVERY_S / STEP_S):
            self.windows.append(self._sums.window(self.now_s))
        return acked

    def _look(self) -> None:
        """Which instances work from now on, and until when that is so."""
        ready = self._ready_s <= self.now_s + 1e-9
        self._works = ready
        self._even = ready / np.maximum(ready.sum(axis=2, keepdims=True), 1)
        self._runs = ready.sum(axis=(1, 2)) > 0
        later = self._ready_s[~ready]
        self._next_s = float(later.min(initial=np.inf))

    def _shared(self, wanted: FloatArray) -> FloatArray:
        """Cores that each instance gets of what it wants; only hosts with too few cost time."""
        flat = wanted.reshape(len(wanted), -1)
        sums = (self._on @ flat[:, :, None])[:, :, 0]
        seeds, hosts = np.nonzero(sums > self._budget + 1e-12)
        if not len(seeds):
            return wanted
        rows = np.sort(self._on[seeds, hosts] * flat[seeds], axis=1)
        before = np.cumsum(rows, axis=1) - rows
        levels = (self._budget - before) / np.arange(rows.shape[1], 0, -1)
        first = np.argmax(rows >= levels, axis=1)
        most = np.full(sums.shape, np.inf)
        most[seeds, hosts] = levels[np.arange(len(first)), first]
        at = self._host.reshape(len(wanted), -1)
        got: FloatArray = np.minimum(flat, np.take_along_axis(most, at, axis=1))
        return got.reshape(wanted.shape)

    def waiting(self) -> FloatArray:
        """Tweets of each application that are due and not done, by what is in the queues."""
        found = self.backlog.copy()
        tweets = self.queues.sum(axis=2) / self.pool.per_tweet
        first = 0
        for at, chain in enumerate(self.pool.chains):
            ack = self.pool.acks[at]
            found[:, at] += tweets[:, first + 1 : ack + 1].sum(axis=1)
            first += len(chain.costs)
        return found


class _Sums:
    """What becomes a window."""

    def __init__(self, shape: tuple[int, int, int], applications: int) -> None:
        self._shape, self._applications = shape, applications
        self._clear()

    def _clear(self) -> None:
        self.steps = 0
        self._rates = np.zeros((3, self._shape[0], self._applications))
        self._cores, self._done = np.zeros(self._shape), np.zeros(self._shape)
        self._whole = np.ones(self._shape[0], dtype=bool)

    def add(
        self,
        due: FloatArray,
        read: FloatArray,
        acked: FloatArray,
        got: FloatArray,
        done: FloatArray,
        runs: NDArray[np.bool_],
    ) -> None:
        self.steps += 1
        for at, each in enumerate((due, read, acked)):
            self._rates[at] += each
        self._cores += got
        self._done += done
        self._whole &= runs

    def window(self, at_s: float) -> Window:
        seconds = self.steps * STEP_S
        rates = self._rates / seconds
        found = Window(
            at_s, rates[0], rates[1], rates[2],
            self._cores / self.steps, self._done / seconds, self._whole,
        )  # fmt: skip
        self._clear()
        return found


def used_shares(
    windows: Sequence[Window], seed: int, target: Target, pool: Pool, since_s: float
) -> tuple[dict[str, float], list[float]] | None:
    """Mean cores of an instance of each operator, and usage of each host, since the last change;
    None if no window lies after it (EL-G11)."""
    some = [w for w in windows if w.at_s - EVERY_S >= since_s - 1e-6 and w.whole[seed]]
    if not some:
        return None
    cores = np.mean([window.cores[seed] for window in some], axis=0)
    sums = [0.0] * max(target.hosts, 1 + max(target.placement.values()))
    for (name, number), host in target.placement.items():
        sums[host] += float(cores[pool.operators.index(name), number])
    of_each = {
        name: float(cores[at, : target.sizes[name]].mean())
        for at, name in enumerate(pool.operators)
    }
    return of_each, [pool.host.share(each) for each in sums]
