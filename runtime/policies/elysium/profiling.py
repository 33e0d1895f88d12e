"""What is measured of a pipeline while it runs (EL11), and the profile that it gives (EL12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from anabranch.runtime.policies.elysium.assessing import PoolProfile
from anabranch.runtime.policies.elysium.costs import host_cost, instance_cost
from anabranch.runtime.policies.elysium.networks import trained
from anabranch.runtime.policies.elysium.rates import RatedStream, selectivity
from anabranch.runtime.policies.elysium.sizing import CoresOf
from anabranch.runtime.values.checks import PipelineError

EVERY_S, WINDOW_S = 10.0, 60.0
FOLDS = 10
Records = list[tuple[float, float]]
Model = Literal["line", "network"]
Stream = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Sample:
    """Means over the seconds before `at_s`: tuples/s and cores of each instance of an operator,
    tuples/s on each stream, and of each host the cores of its instances and all that it takes."""

    at_s: float
    received: Mapping[str, Sequence[float]]
    cores: Mapping[str, Sequence[float]]
    sent: Mapping[Stream, float]
    hosts: Sequence[tuple[float, float]]


def recent(samples: Sequence[Sample], now_s: float, since_s: float = 0.0) -> list[Sample]:
    """Those of the sliding window, and none of before the last change (EL-G11)."""
    begin = max(now_s - WINDOW_S, since_s)
    return [one for one in samples if begin < one.at_s <= now_s]


def operator_records(samples: Sequence[Sample], operator: str) -> Records:
    """(tuples/s, cores) of each of its instances in each sample."""
    return [
        pair
        for one in samples
        for pair in zip(one.received[operator], one.cores[operator], strict=True)
    ]


def learnt_profile(
    samples: Sequence[Sample],
    cores_of_host: float,
    model: Model = "line",
    rng: np.random.Generator | None = None,
) -> PoolProfile:
    """From a time of varying load. Raises `PipelineError` for no samples."""
    if not samples:
        raise PipelineError("profile: expected at least one sample")
    streams = []
    for above, below in samples[0].sent:
        pairs = ((sum(one.received[above]), one.sent[above, below]) for one in samples)
        alpha = selectivity(pairs)
        streams.append(RatedStream(above, below, 0.0 if alpha is None else alpha))
    hosts = [pair for one in samples for pair in one.hosts if pair[0] > 0]
    learnt = {
        name: learnt_cores(operator_records(samples, name), model, rng)
        for name in samples[0].received
    }
    return PoolProfile(learnt, streams, host_cost(hosts, cores_of_host))


def learnt_cores(
    records: Records, model: Model = "line", rng: np.random.Generator | None = None
) -> CoresOf:
    """A line that does not fall, or the published network 1-3-1."""
    if model == "line":
        return instance_cost(records).cores
    rates, cores = np.array(records, dtype=float).T
    chance = rng if rng is not None else np.random.default_rng(0)
    return trained(rates[:, None], cores[:, None], chance, epochs=3000).cores


def held_out(records: Records, share: float = 0.7) -> tuple[Records, Records]:
    """Dealt so that both parts have all of the time: to learn from, and to judge by."""
    learn: Records = []
    judge: Records = []
    for at, record in enumerate(records):
        (learn if int((at + 1) * share) > int(at * share) else judge).append(record)
    return learn, judge


def error_of(cores_of: CoresOf, records: Records) -> float:
    """Mean absolute error, in cores. Raises `PipelineError` for no record."""
    if not records:
        raise PipelineError("profile: expected at least one record")
    return sum(abs(cores_of(rate) - cores) for rate, cores in records) / len(records)


def cross_validated(
    records: Records, learn: Callable[[Records], CoresOf], folds: int = FOLDS
) -> float:
    """The mean error on each part by what the others teach."""
    if not 2 <= folds <= len(records):
        raise PipelineError(f"profile: expected 2 to {len(records)} folds, got {folds}")
    errors = []
    for fold in range(folds):
        others = [record for at, record in enumerate(records) if at % folds != fold]
        errors.append(error_of(learn(others), records[fold::folds]))
    return sum(errors) / folds
