"""The model of an operator, tuple by tuple: queues of instances, without the protocol (3.2, A).

Each tuple goes to an instance at random and is served in order of arrival. Times are seconds.
The paper's machines took 43 to 75 microseconds per tuple; here only tuples that fire a window
are followed, at ten times their time, and the bounds are as many times wider.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anabranch.runtime.measuring.slot_sums import COUNT_S, SlotSums
from anabranch.runtime.policies.predictive.controller import Slot
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.dematteis2017.loads import Scene

INSTANCES_MAX = 99
START = 50
WORK_S, WORK_CV2 = 0.008, 0.25
STEP_S = 3.0
MOVE_S = 0.3
"""So long the tuples of keys that move wait for their state."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of a level: `work_s` seconds a tuple, a bound of `latency_ms`, steps of `step_s`. `keyed`:
    tuples of a symbol go to one instance; otherwise to the one where fewest wait."""

    instances_max: int
    work_s: float
    latency_ms: float
    step_s: float
    keyed: bool = False

    @property
    def most_per_s(self) -> float:
        """What all instances can do."""
        return self.instances_max / self.work_s


Planner = Callable[[Slot], int]
"""The slot that has passed -> instances of the next one."""


@dataclass(frozen=True, slots=True)
class Tuples:
    """When they arrive, in order, and how long each takes."""

    at: FloatArray
    work: FloatArray

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, some: slice) -> Tuples:
        return Tuples(self.at[some], self.work[some])


@dataclass(frozen=True, slots=True)
class Course:
    """What happened. By step: `offered` tuples/s and `instances`. By result, in the order of
    completion: `ends` and `latencies`. `left`: tuples that wait at the end. A step has `step_s`
    seconds."""

    offered: FloatArray
    instances: FloatArray
    ends: FloatArray
    latencies: FloatArray
    left: int
    step_s: float = STEP_S


def drawn(scene: Scene, seed: int, instances_max: int = INSTANCES_MAX) -> Tuples:
    """Random arrivals within each bin; work with a gamma distribution. The same for the same
    seed, whatever is decided."""
    rng = np.random.default_rng((seed, 0))
    counts = rng.poisson(scene.shares * (instances_max / WORK_S * scene.bin_s))
    at = np.repeat(np.arange(len(counts)) * scene.bin_s, counts)
    at = np.sort(at + rng.random(len(at)) * scene.bin_s)
    return Tuples(at, rng.gamma(1 / WORK_CV2, WORK_S * WORK_CV2, len(at)))


def simulate(
    scene: Scene,
    seed: int,
    planner: Planner,
    start: int = START,
    instances_max: int = INSTANCES_MAX,
) -> Course:
    """`start`: instances in the first step."""
    tuples = drawn(scene, seed, instances_max)
    steps = int(scene.seconds / STEP_S + 1e-9)
    borders = np.searchsorted(tuples.at, np.arange(steps + 1) * STEP_S)
    operator = _Operator(instances_max, np.random.default_rng((seed, 1)))
    n, instances = start, np.zeros(steps)
    for i in range(steps):
        instances[i] = n
        slot = operator.step(i * STEP_S, n, tuples[borders[i] : borders[i + 1]])
        n = planner(slot)
    ends, latencies = operator.results()
    return Course(np.diff(borders) / STEP_S, instances, ends, latencies, len(operator.waiting))


@dataclass(slots=True)
class _Operator:
    instances_max: int
    rng: np.random.Generator
    free: FloatArray = field(init=False)
    """When each instance has finished what it has begun."""
    waiting: Tuples = field(default_factory=lambda: Tuples(np.zeros(0), np.zeros(0)))
    before: int = 0
    done: list[tuple[FloatArray, FloatArray]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = np.zeros(self.instances_max)

    def step(self, begin: float, n: int, new: Tuples) -> Slot:
        """Serve what waits and what arrives; what was not begun waits, and is dealt anew."""
        all_ = Tuples(
            np.concatenate((self.waiting.at, new.at)), np.concatenate((self.waiting.work, new.work))
        )
        end = begin + STEP_S
        ready = self._ready(begin, n, all_.at)
        starts = self._serve(n, end, ready, all_.work)
        self.before = n
        begun = starts < end
        self.waiting = Tuples(all_.at[~begun], all_.work[~begun])
        ends = starts[begun] + all_.work[begun]
        latencies = ends - all_.at[begun]
        self.done.append((ends, latencies))
        queued = np.minimum(starts, end) - np.maximum(all_.at, begin)
        return self._slot(begin, n, new, all_.work[begun], latencies, float(queued.sum()))

    def results(self) -> tuple[FloatArray, FloatArray]:
        ends, latencies = (np.concatenate(parts) for parts in zip(*self.done, strict=True))
        order = np.argsort(ends, kind="stable")
        return ends[order], latencies[order]

    def _ready(self, begin: float, n: int, at: FloatArray) -> FloatArray:
        """From when each can be served: after a change, keys that moved wait for their state."""
        ready = np.maximum(at, begin)
        if n != self.before and self.before:
            share = abs(n - self.before) / max(n, self.before)
            moved = self.rng.random(len(ready)) < share
            ready[moved] = np.maximum(ready[moved], begin + MOVE_S)
        return ready

    def _serve(self, n: int, end: float, ready: FloatArray, work: FloatArray) -> FloatArray:
        """When each begins: Lindley's recursion in all queues at once, a row for each instance."""
        of = self.rng.integers(n, size=len(ready)).astype(np.int16)
        by_time = np.argsort(ready, kind="stable")
        by_row = by_time[np.argsort(of[by_time], kind="stable")]
        counts = np.bincount(of, minlength=n)
        rows = of[by_row]
        columns = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        shape = (n, max(1, int(counts.max(initial=0))))
        came, took = np.full(shape, -np.inf), np.zeros(shape)
        came[rows, columns], took[rows, columns] = ready[by_row], work[by_row]
        before = np.cumsum(took, axis=1) - took
        slack = np.maximum(came - before, self.free[:n, None])
        begins = np.maximum.accumulate(slack, axis=1) + before
        self._occupy(n, end, begins, took, counts)
        starts = np.empty(len(of))
        starts[by_row] = begins[rows, columns]
        return starts

    def _occupy(
        self, n: int, end: float, begins: FloatArray, took: FloatArray, counts: NDArray[np.int64]
    ) -> None:
        """Up to the end of what each begins before `end`."""
        begun = (begins < end) & (np.arange(begins.shape[1]) < counts[:, None])
        until = np.where(begun, begins + took, -np.inf).max(axis=1)
        self.free[:n] = np.maximum(self.free[:n], until)

    def _slot(
        self,
        begin: float,
        n: int,
        new: Tuples,
        work: FloatArray,
        latencies: FloatArray,
        queued: float,
    ) -> Slot:
        """The sums of all instances together; a slice of work is a single tuple."""
        ticks = round(STEP_S / COUNT_S)
        counts, _ = np.histogram(new.at, bins=ticks, range=(begin, begin + STEP_S))
        sums = SlotSums(
            seconds=STEP_S,
            arrived=len(new),
            processed=len(work),
            busy_s=float(work.sum()),
            squares=float((work**2).sum()),
            slices=len(work),
            counts=float(counts.sum()),
            counts2=float((counts**2).sum()),
            ticks=ticks,
            queue_s=queued,
            backlog=len(self.waiting),
        )
        return Slot(sums, n, float(latencies.mean()) if len(latencies) else None)
