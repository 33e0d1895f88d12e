"""How traffic and settling grow with the number of instances, up to a hundred thousand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from anabranch.workloads.belkhiria2019.bulk import bulk
from anabranch.workloads.belkhiria2019.exact import in_turn
from anabranch.workloads.belkhiria2019.metrics import settling
from anabranch.workloads.belkhiria2019.published import published
from anabranch.workloads.belkhiria2019.setup import Outcome, Setup
from anabranch.workloads.curve_base import FloatArray

SIZES = (10, 100, 1_000, 10_000, 100_000)
EXACT_MAX = 1_000
"""Up to so many instances every one runs the real `decide`; beyond it takes minutes."""
DOUBLES_AT = 60
NOISE = 0.03


@dataclass(frozen=True)
class Row:
    """An operator that doubles between two neighbours of the same size which double with it."""

    policy: str
    instances: int
    settling: float
    """Steps until the load lies between the thresholds for good."""
    newcomers: int
    batches: int
    messages: float
    """Of one operator for the doubling."""
    messages_steady: float
    """Of one operator per step while the load stays."""
    channels: float
    """Between two neighbouring operators after the doubling."""
    seconds: float
    """Of computing 200 steps."""


Simulation = Callable[[Setup, FloatArray, int], Outcome]
SIMULATIONS: dict[str, tuple[Simulation, int]] = {
    "published, as meant": (partial(published, as_meant=True), SIZES[-1]),
    "ours, exact": (in_turn, EXACT_MAX),
    "ours, vectorised": (bulk, SIZES[-1]),
    f"ours, vectorised, {NOISE:.0%} noise": (partial(bulk, noise=NOISE), SIZES[-1]),
}


def growth(sizes: tuple[int, ...] = SIZES) -> Iterator[Row]:
    for name, (simulate, most) in SIMULATIONS.items():
        for size in sizes:
            if size <= most:
                yield _row(name, simulate, size)


def _row(name: str, simulate: Simulation, size: int) -> Row:
    setup = replace(Setup(), operators=1, instances=size)
    load = size * setup.full * np.where(np.arange(setup.steps) < DOUBLES_AT, 1.0, 2.0)
    began = time.perf_counter()
    out = simulate(setup, load[None, None], 0)
    seconds = time.perf_counter() - began
    n = out.instances[0, 0].astype(np.float64)
    settles = float(settling(setup, out, DOUBLES_AT)[0, 0])
    per_step = 2 * (out.batches + out.leaves)[0, 0] * 2 * n + out.joins[0, 0]
    end = DOUBLES_AT + int(settles) + 1
    before = slice(20, DOUBLES_AT)
    return Row(
        policy=name,
        instances=size,
        settling=settles,
        newcomers=int(out.joins[0, 0, DOUBLES_AT:end].sum()),
        batches=int(out.batches[0, 0, DOUBLES_AT:end].sum()),
        messages=float(per_step[DOUBLES_AT:end].sum()),
        messages_steady=float(per_step[before].mean()),
        channels=float(n[-1] ** 2),
        seconds=seconds,
    )
