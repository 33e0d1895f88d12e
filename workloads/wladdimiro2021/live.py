"""Level "live": processes of this machine (4.3): a pool of replicas against redeployment, and
contention.

The pool lets one planner of utilisation decide. Redeployment carries out the same plan in the way
of runtimes that cannot scale while running: it ends the input, and begins anew with other numbers
of instances; what comes meanwhile is lost. So both differ in nothing but the way.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.policies.fixed import Fixed
from anabranch.runtime.policies.policy import Policy, Scale
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.sources import generate
from anabranch.workloads.curve_base import FloatArray
from anabranch.workloads.curves import Steady
from anabranch.workloads.experiments.noting import (
    Exactness,
    Noted,
    Notes,
    Stamped,
    completed,
    read_notes,
    stamped,
)
from anabranch.workloads.wladdimiro2021.applications import TOPICS
from anabranch.workloads.wladdimiro2021.chain import Chain, pipeline_of, policy_named
from anabranch.workloads.wladdimiro2021.loads import BELL_S, bell
from anabranch.workloads.wladdimiro2021.model import Course

PEAK_PER_S, POOL, WORK_S = 600.0, 12, 0.010
SAMPLE_S = 0.1
"""Of the courses."""
SLICE_S = 0.05
"""How finely the rest of a load is cut for another deployment."""
SPIN_PER_S, SPIN_S, SPIN_WINDOW_S = 300.0, 12.0, 0.5
CONTESTANT = "U"


@dataclass(frozen=True, slots=True)
class Times:
    """`squeezed`: seconds of the load per second of the run. `window_s`: of the planner. Of the
    load only what is `between` two of its seconds."""

    squeezed: float
    window_s: float
    between: tuple[int, int]


WHOLE, QUICK = Times(10, 2.5, (0, BELL_S)), Times(20, 1.25, (250, 1050))


@dataclass(frozen=True, slots=True)
class Lived:
    """`exactness`: of what the source has made; `due` are more where arrivals are lost.
    `deployments`: 1 without redeployment."""

    course: Course
    exactness: Exactness
    due: int
    deployments: int
    latency_s: float


def chain_of(times: Times) -> Chain:
    """Load G, scaled to a peak that two processors bear."""
    load, (from_s, until_s) = bell(), times.between
    rates = load[from_s:until_s] * (PEAK_PER_S / float(load.max()))
    return Chain(tuple(rates.tolist()), 1 / times.squeezed, WORK_S, POOL)


def pool(times: Times) -> Lived:
    """Raises `RunSpoilt` if the run fails."""
    chain = chain_of(times)
    run = _run(chain, policy_named(CONTESTANT, times.window_s), warm=2 * len(TOPICS.operators))
    grid = _grid(chain.seconds)
    of = {name: _instances(run.report, name, grid + run.notes.began_s) for name in TOPICS.operators}
    return _lived(chain, [run], [0.0], of)


def redeployed(times: Times, plan: Course) -> Lived:
    """The plan of another run, by redeployment. Raises `RunSpoilt` if a run fails."""
    chain, changes = chain_of(times), [*_changes(plan)]
    runs: list[_Run] = []
    begins: list[float] = []
    began_s = time.monotonic()
    now_s = 0.0
    grid = _grid(chain.seconds)
    of = {name: np.zeros(len(grid)) for name in TOPICS.operators}
    while now_s < chain.seconds:
        counts = [counts for at_s, counts in changes if at_s <= now_s][-1]
        until_s = min(
            (at_s for at_s, _ in changes if at_s > now_s + SLICE_S), default=chain.seconds
        )
        part = _rest(chain, now_s, until_s, counts)
        if part.tuples:
            runs.append(_run(part, Fixed(), warm=0))
            # The deployment takes time, so its load is that of a little later.
            begins.append(now_s)
            for name, count in zip(TOPICS.operators, counts, strict=True):
                of[name][(grid >= now_s) & (grid < until_s)] = count
        else:
            time.sleep(max(0.0, until_s - now_s))
        now_s = max(time.monotonic() - began_s, until_s)
    return _lived(chain, runs, begins, of)


@dataclass(frozen=True, slots=True)
class Contention:
    """`most`: instances when the gate was closed."""

    most: int
    exactness: Exactness


def contention() -> Contention:
    """An operator that keeps processors busy, under more load than they bear: U gated stops adding
    instances when they slow each other down too much. Raises `RunSpoilt` if the run fails."""
    with tempfile.TemporaryDirectory(prefix="anabranch-experiment-") as folder:
        noted = Path(folder) / "results.npy"
        pipeline = Pipeline("spin", dead_letters=Path(folder) / "dead")
        source = generate(stamped, rate=SPIN_PER_S)
        scale = Scale(
            max_instances=POOL,
            capacity=1 / WORK_S,
            period_s=SPIN_WINDOW_S,
            actions_per_minute_max=1000,
            policy=policy_named("U gated", SPIN_WINDOW_S),
        )
        numbers = pipeline.source("numbers", source)
        numbers.map("spin", spinning, scale=scale).sink("results", Noted(noted))
        options = Options(warm=2, preload="fork", duration_s=SPIN_S)
        report = completed(pipeline, options, "contention")
        spin = next(o for o in report.operators if o.name == "spin")
        _, exactness = read_notes(noted, Steady(SPIN_PER_S), report.ledger.tuples_in)
        return Contention(spin.instances_peak, exactness)


def spinning(item: Stamped) -> Stamped:
    """`WORK_S` of a processor."""
    until_s = time.thread_time() + WORK_S
    while time.thread_time() < until_s:
        pass
    return item


def _changes(plan: Course) -> Iterator[tuple[float, tuple[int, ...]]]:
    """When the plan has which instances, in seconds of the run."""
    before: tuple[int, ...] = ()
    for i, counts in enumerate(zip(*plan.of_operators.values(), strict=True)):
        now = tuple(int(max(1, n)) for n in counts)
        if now != before:
            yield i * SAMPLE_S if before else 0.0, now
            before = now


def _rest(chain: Chain, from_s: float, until_s: float, counts: tuple[int, ...]) -> Chain:
    slices = max(1, round((until_s - from_s) / SLICE_S))
    due = chain.curve.due(np.linspace(from_s, until_s, slices + 1))
    step_s = (until_s - from_s) / slices
    return replace(chain, rates=tuple((np.diff(due) / step_s).tolist()), step_s=step_s,
                   counts=counts)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Run:
    report: Report
    notes: Notes
    exactness: Exactness


def _run(chain: Chain, policy: Policy[Any], warm: int) -> _Run:
    with tempfile.TemporaryDirectory(prefix="anabranch-experiment-") as folder:
        noted = Path(folder) / "results.npy"
        pipeline = pipeline_of(chain, policy, Noted(noted), Path(folder) / "dead")
        report = completed(pipeline, Options(warm=warm, preload="fork"), policy.name)
        return _Run(report, *read_notes(noted, chain.curve, chain.tuples))


def _lived(chain: Chain, runs: list[_Run], begins: list[float], of: dict[str, FloatArray]) -> Lived:
    grid = np.append(_grid(chain.seconds), chain.seconds)
    done = np.concatenate([r.notes.done + at for r, at in zip(runs, begins, strict=True)])
    delivered = np.histogram(done, bins=grid)[0].astype(np.float64)
    due = np.diff(chain.curve.due(grid))
    latencies = np.concatenate([r.notes.latencies for r in runs])
    exact = Exactness(*(sum(getattr(r.exactness, f) for r in runs)
                        for f in ("made", "lost", "doubled")))  # fmt: skip
    replicas: FloatArray = np.sum(list(of.values()), axis=0)
    waiting = np.cumsum(due) - np.cumsum(delivered)
    course = Course(due, delivered, waiting, replicas, of)
    return Lived(course, exact, chain.tuples, len(runs), float(latencies.mean()))


def _grid(seconds: float) -> FloatArray:
    return np.arange(round(seconds / SAMPLE_S), dtype=np.float64) * SAMPLE_S


def _instances(report: Report, operator: str, times: FloatArray) -> FloatArray:
    samples = next(o.samples for o in report.operators if o.name == operator)
    at = np.searchsorted(np.array(samples.t), times, side="right") - 1
    found: FloatArray = np.array(samples.instances, dtype=float)[np.maximum(at, 0)]
    return found
