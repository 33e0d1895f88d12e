"""The time of profiling (EL10): half an hour of varying load, and how well its records predict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from anabranch.runtime.policies.elysium.assessing import Instance, PoolProfile
from anabranch.runtime.policies.elysium.profiling import (
    Sample,
    cross_validated,
    error_of,
    held_out,
    learnt_cores,
    learnt_profile,
    operator_records,
)
from anabranch.workloads.curve_base import Curve
from anabranch.workloads.curves import Noisy, Sine, Stair
from anabranch.workloads.lombardi2018.applications import CORES
from anabranch.workloads.lombardi2018.contestants import widest
from anabranch.workloads.lombardi2018.fluid import STEP_S, Fluid, Window
from anabranch.workloads.lombardi2018.loads import NOISE, NOISE_S
from anabranch.workloads.lombardi2018.pools import Pool

PROFILED_S, LONG_SINE_S = 1800.0, 1500.0
RECORDS = 150
"""Of each operator; more say the same."""
MEASURED_OFF = 0.02
"""Relative error of a measured share of a core: what the model does is exact."""


@dataclass(frozen=True, slots=True)
class ProfileError:
    """Of one operator, in cores: mean error on what was held out, and in validation by folds (ten;
    of networks two)."""

    operator: str
    model: Literal["line", "network"]
    held_out: float
    folds: float


def stairs(pool: Pool) -> dict[str, Curve]:
    highest = 1400.0 if len(pool.names) == 1 else 700.0
    return {name: Stair(100, highest, 8, 60) for name in pool.names}


def samples(pool: Pool, curves: dict[str, Curve], seconds: float, seed: int = 0) -> list[Sample]:
    """On all hosts, with as many instances as may be."""
    fluid, rng = Fluid(pool, 1), np.random.default_rng((seed, 3))
    target = widest(pool.known())
    fluid.configure(0, target, first=True)
    at = np.arange(round(seconds / STEP_S) + 1, dtype=np.float64) * STEP_S
    due = np.array([np.diff(Noisy(curves[name], NOISE, NOISE_S, seed).due(at))
                    for name in pool.names])  # fmt: skip
    found: list[Sample] = []
    for now in due.T:
        before = len(fluid.windows), fluid.windows[-1].at_s if fluid.windows else 0.0
        fluid.step(now[None, :])
        if fluid.windows and fluid.windows[-1].at_s != before[1]:
            found.append(_sample(pool, fluid.windows[-1], target.placement, rng))
    return found


def _sample(
    pool: Pool, window: Window, where: Mapping[Instance, int], rng: np.random.Generator
) -> Sample:
    received, cores = {}, {}
    hosts: dict[int, float] = {}
    for at, name in enumerate(pool.operators):
        numbers = [number for operator, number in where if operator == name]
        received[name] = [float(window.done[0, at, number]) for number in numbers]
        off = 1 + rng.normal(0, MEASURED_OFF, len(numbers))
        exact = [float(window.cores[0, at, number]) for number in numbers]
        cores[name] = [float(each * factor) for each, factor in zip(exact, off, strict=True)]
        for number, each in zip(numbers, exact, strict=True):
            host = where[name, number]
            hosts[host] = hosts.get(host, 0.0) + each
    sent = {(s.above, s.below): s.selectivity * sum(received[s.above]) for s in pool.streams}
    of_hosts = [(each, pool.host.taken(each)) for each in hosts.values()]
    return Sample(window.at_s, received, cores, sent, of_hosts)


def profiled(pool: Pool, seconds: float = PROFILED_S) -> PoolProfile:
    return learnt_profile(samples(pool, stairs(pool), seconds), CORES)


def profile_errors(seconds: float = LONG_SINE_S, *, networks: bool = True) -> list[ProfileError]:
    """Figure 7: the operators of T1 along a long sine."""
    pool = Pool(("T1",))
    some = samples(pool, {"T1": Sine(100, 1300, seconds)}, seconds, seed=1)
    models: tuple[Literal["line", "network"], ...] = ("line", "network") if networks else ("line",)
    return [_errors(some, name, model) for name in pool.operators for model in models]


def _errors(some: list[Sample], name: str, model: Literal["line", "network"]) -> ProfileError:
    records = operator_records(some, name)
    records = records[:: max(1, len(records) // RECORDS)]
    learn, judge = held_out(records)
    cores_of = learnt_cores(learn, model, np.random.default_rng(0))
    folds = 10 if model == "line" else 2
    by_folds = cross_validated(
        records, lambda part: learnt_cores(part, model, np.random.default_rng(0)), folds
    )
    return ProfileError(name, model, error_of(cores_of, judge), by_folds)
