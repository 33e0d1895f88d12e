"""A run of the model under one contestant, of several seeds at once, and what is noted of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch.runtime.policies.elysium.assessing import Target
from anabranch.runtime.policies.elysium.profiling import EVERY_S
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.lombardi2018.contestants import MINUTE_S, Planner, View
from anabranch.workloads.lombardi2018.fluid import RESTART_S, STEP_S, Fluid, used_shares
from anabranch.workloads.lombardi2018.loads import Scene
from anabranch.workloads.lombardi2018.pools import Pool


@dataclass(frozen=True, slots=True)
class Course:
    """Of one seed. By ten seconds: tweets/s that came, that were read and that were done of each
    application, hosts, hosts with an instance of each application, and instances by operator.
    `changes`: when it was reconfigured. `waiting`: tweets at the end. `host_periods`: hosts from
    each assessment on."""

    offered: FloatArray
    emitted: FloatArray
    acked: FloatArray
    hosts: FloatArray
    hosts_of: FloatArray
    sizes: Mapping[str, FloatArray]
    changes: Sequence[float]
    waiting: float
    host_periods: Sequence[int]


@dataclass(slots=True)
class _Noted:
    """Of one seed, while it runs."""

    changes: list[float] = field(default_factory=list)
    changed_s: float = 0.0
    host_periods: list[int] = field(default_factory=list)
    hosts: list[int] = field(default_factory=list)
    hosts_of: list[list[int]] = field(default_factory=list)
    sizes: list[Mapping[str, int]] = field(default_factory=list)
    minutes: list[tuple[FloatArray, FloatArray]] = field(default_factory=list)


def run(
    pool: Pool,
    scene: Scene,
    seeds: Sequence[int],
    planners: Sequence[Planner],
    begin: Target,
    *,
    restart_s: tuple[float, float] = RESTART_S,
    background: float = 0.0,
) -> list[Course]:
    """A planner for each seed, all of which look equally often."""
    fluid = Fluid(pool, len(seeds), background)
    rngs = [np.random.default_rng((seed, 7)) for seed in seeds]
    notes = [_Noted() for _ in seeds]
    for at, note in enumerate(notes):
        fluid.configure(at, begin, first=True)
        note.host_periods.append(begin.hosts)
    due = _due(pool, scene, seeds)
    each = round(EVERY_S / STEP_S)
    every = round(planners[0].every_s / EVERY_S)
    taken = []
    for bin_, steps in enumerate(np.split(due, len(due) // each), 1):
        for now in steps:
            fluid.step(now)
        taken.append(fluid.windows[-1])
        for at, note in enumerate(notes):
            _note(note, fluid, at)
            if bin_ % every == 0 and bin_ * each < len(due):
                _assess(fluid, at, planners[at], note, every, rngs[at], restart_s)
    waiting = fluid.waiting().sum(axis=1)
    return [
        Course(
            np.array([w.offered[at] for w in taken]),
            np.array([w.emitted[at] for w in taken]),
            np.array([w.acked[at] for w in taken]),
            np.array(note.hosts, dtype=float),
            np.array(note.hosts_of, dtype=float),
            {n: np.array([s[n] for s in note.sizes], dtype=float) for n in pool.operators},
            note.changes,
            float(waiting[at]),
            note.host_periods,
        )
        for at, note in enumerate(notes)
    ]


def _due(pool: Pool, scene: Scene, seeds: Sequence[int]) -> FloatArray:
    """By step, seed and application."""
    at: FloatArray = np.arange(round(scene.seconds / STEP_S) + 1, dtype=np.float64) * STEP_S
    columns = [
        [np.diff(scene.offered(name, seed).due(at)) for name in pool.names] for seed in seeds
    ]
    return np.moveaxis(np.array(columns), 2, 0)


def _note(note: _Noted, fluid: Fluid, at: int) -> None:
    target = _target(fluid, at)
    note.hosts.append(target.hosts)
    of: list[set[int]] = [set() for _ in fluid.pool.names]
    for index, chain in enumerate(fluid.pool.chains):
        of[index] = {host for (name, _), host in target.placement.items() if name in chain.costs}
    note.hosts_of.append([len(some) for some in of])
    note.sizes.append(target.sizes)


def _target(fluid: Fluid, at: int) -> Target:
    target = fluid.targets[at]
    if target is None:
        raise ValueError("nothing runs")
    return target


def _assess(
    fluid: Fluid,
    at: int,
    planner: Planner,
    note: _Noted,
    every: int,
    rng: np.random.Generator,
    restart_s: tuple[float, float],
) -> None:
    some = [*fluid.windows][-every:]
    offered = np.mean([window.offered[at] for window in some], axis=0)
    emitted = np.mean([window.emitted[at] for window in some], axis=0)
    note.minutes.append((offered, emitted))
    present = _target(fluid, at)
    used = used_shares(fluid.windows, at, present, fluid.pool, note.changed_s)
    sources = [*fluid.pool.sources.values()]
    view = View(
        fluid.now_s,
        present,
        {name: [float(m[0][i]) for m in note.minutes] for i, name in enumerate(sources)},
        {name: [float(m[1][i]) for m in note.minutes] for i, name in enumerate(sources)},
        used,
    )
    wanted = planner.plan(view)
    if wanted is not None:
        stop_s = float(rng.uniform(*restart_s)) if planner.restarts else None
        fluid.configure(at, wanted, stop_s)
        note.changes.append(round(fluid.now_s, 1))
        note.changed_s = fluid.now_s + (stop_s or 0.0)
    note.host_periods.append(_target(fluid, at).hosts)


def latencies(course: Course) -> tuple[FloatArray, FloatArray]:
    """Seconds from due, and from reading, to done, of tweets in equal distances (EL-G19)."""
    ends = np.arange(len(course.offered) + 1) * EVERY_S
    sums = [
        np.concatenate([[0.0], np.cumsum(rates.sum(axis=1)) * EVERY_S])
        for rates in (course.offered, course.emitted, course.acked)
    ]
    tweets = np.linspace(0.0, sums[2][-1], 2001)[1:]
    due, read, done = (np.interp(tweets, each, ends) for each in sums)
    return np.maximum(done - due, 0.0), np.maximum(done - read, 0.0)


MINUTE_BINS = round(MINUTE_S / EVERY_S)
