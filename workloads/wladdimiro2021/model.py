"""The step model: queues, a pool of replicas per operator, and a host that contention slows down.

One second a step (MM12). Tuples are counted, not followed: a queue is a number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from anabranch.runtime.policies.multi_metric.figures import MetricWindow
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.wladdimiro2021.applications import Application

POOL = 50
WINDOW_S = 25
SAMPLE_S = 5


@dataclass(frozen=True, slots=True)
class Host:
    """`cores`: busy replicas that it bears; `slowing`: how much more than their share those beyond
    cost each other."""

    cores: float
    slowing: float = 0.0

    def slowdown(self, busy: float) -> float:
        """Of every tuple in the next step."""
        over = busy / self.cores
        return max(1.0, over) * (1 + self.slowing * max(0.0, over - 1))


ROOMY, CROWDED = Host(48), Host(32, 0.3)

Planner = Callable[[str, list[MetricWindow], int], int]
"""(operator, the samples of its window, replicas) -> replicas more or fewer. A window of several
samples has each of them; otherwise there is one."""


@dataclass(slots=True)
class Pool:
    """The replicas of one operator: those before `active` get tuples, others drain."""

    active: int = 1
    queues: FloatArray = field(default_factory=lambda: np.zeros(POOL))
    processed: float = 0.0
    busy_s: float = 0.0

    @property
    def waiting(self) -> float:
        return float(self.queues.sum())

    def take(self, tuples: float) -> None:
        self.queues[: self.active] += tuples / self.active

    def work(self, work_s: float) -> tuple[float, float]:
        """One step: tuples done, and how many replicas were busy."""
        done = np.minimum(self.queues, 1 / work_s)
        self.queues -= done
        tuples = float(done.sum())
        self.processed += tuples
        self.busy_s += tuples * work_s
        return tuples, tuples * work_s

    def window(self, span_s: float) -> MetricWindow:
        """What was counted since this was asked last."""
        found = MetricWindow(span_s, self.active, self.processed, self.busy_s, self.waiting)
        self.processed = self.busy_s = 0.0
        return found


@dataclass(slots=True)
class Course:
    """What happened, by step; `replicas` of all operators together."""

    due: FloatArray
    delivered: FloatArray
    waiting: FloatArray
    replicas: FloatArray
    of_operators: dict[str, FloatArray]

    @classmethod
    def of(cls, load: FloatArray, application: Application) -> Course:
        delivered, waiting, replicas = (np.zeros(len(load)) for _ in range(3))
        of_operators = {name: np.zeros(len(load)) for name in application.operators}
        return cls(load, delivered, waiting, replicas, of_operators)

    def note(self, t: int, delivered: float, pools: dict[str, Pool]) -> None:
        self.delivered[t] = delivered
        self.waiting[t] = sum(pool.waiting for pool in pools.values())
        self.replicas[t] = sum(pool.active for pool in pools.values())
        for name, pool in pools.items():
            self.of_operators[name][t] = pool.active


def simulate(
    application: Application,
    load: FloatArray,
    work_s: float,
    planner: Planner | None,
    *,
    host: Host = ROOMY,
    start: dict[str, int] | None = None,
    sample_s: int = WINDOW_S,
    stop_s: int = 0,
    forget: Callable[[], None] = lambda: None,
) -> Course:
    """`planner` None: nothing ever changes. `start`: replicas at first, one of each if not given.
    `sample_s`: of the figures; the planner is asked every `WINDOW_S`. `stop_s`: how long nothing
    runs after a change, as a redeployment takes, and `forget` is called then: arrivals are lost,
    queues are kept."""
    run = _ModelRun(application, work_s, host, start or {})
    course = Course.of(load, application)
    stopped_until = 0
    for t, arriving in enumerate(load):
        stopped = t < stopped_until
        delivered = 0.0 if stopped else run.step(float(arriving))
        course.note(t, delivered, run.pools)
        if stopped:
            continue
        if (t + 1) % sample_s == 0:
            run.sample(sample_s)
        if (t + 1) % WINDOW_S == 0 and planner is not None:
            changed = run.plan(planner)
            if changed and stop_s:
                stopped_until = t + 1 + stop_s
                run.forget()
                forget()
    return course


class _ModelRun:
    def __init__(
        self, application: Application, work_s: float, host: Host, start: dict[str, int]
    ) -> None:
        self.pools = {name: Pool(start.get(name, 1)) for name in application.operators}
        self._application = application
        self._work_s = work_s
        self._host = host
        self._slow = 1.0
        self._made = dict.fromkeys(application.operators, 0.0)
        self._samples: dict[str, list[MetricWindow]] = {name: [] for name in application.operators}

    def step(self, arriving: float) -> float:
        """Tuples delivered in it."""
        coming = dict.fromkeys(self._application.operators, 0.0)
        coming[self._application.operators[0]] = arriving
        for above, below, share in self._application.edges:
            coming[below] += self._made[above] * share
        busy = 0.0
        for name, pool in self.pools.items():
            pool.take(coming[name])
            self._made[name], used = pool.work(self._work_s * self._slow)
            busy += used
        self._slow = self._host.slowdown(busy)
        return sum(self._made[name] for name in self._application.sinks)

    def sample(self, span_s: float) -> None:
        for name, pool in self.pools.items():
            self._samples[name].append(pool.window(span_s))

    def plan(self, planner: Planner) -> bool:
        """Whether anything changes."""
        changed = False
        for name, pool in self.pools.items():
            samples, self._samples[name] = self._samples[name], []
            if samples and (change := planner(name, samples, pool.active)):
                pool.active += change
                changed = True
        return changed

    def forget(self) -> None:
        for name, pool in self.pools.items():
            self._samples[name] = []
            pool.processed = pool.busy_s = 0.0
