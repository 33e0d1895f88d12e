"""The numbers of section 5, taken from outcomes.

Accuracy is instances over the ideal, load / (capacity x target), which is not rounded but at
least 1. Throughput is the share of the offered tuples that the instances there could process.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.workloads.belkhiria2019.setup import Counts, Outcome, Setup
from anabranch.workloads.curve_base import FloatArray


def accuracy(setup: Setup, out: Outcome) -> FloatArray:
    return np.asarray(out.instances / np.maximum(1.0, out.load / setup.full))


def throughput(setup: Setup, out: Outcome) -> FloatArray:
    offered = np.maximum(out.load, 1e-9)
    return np.asarray(np.minimum(1.0, out.instances * setup.capacity / offered))


def formula(out: Outcome) -> Counts:
    """The paper's messages of the joins of a step: 2 min(k, n)(|S| + |P|) + k for k newcomers."""
    makers = np.minimum(out.joins, out.instances)
    return np.asarray(2 * makers * out.neighbours + out.joins)


@dataclass(frozen=True)
class Following:
    """How an operator follows its load; `worst` means over runs and operators of their worst."""

    error: float
    """Mean of |accuracy - 1|."""
    accuracy_median: float
    accuracy_p5: float
    accuracy_p95: float
    accuracy_worst: float
    overshoot: float
    overshoot_max: float
    throughput_mean: float
    throughput_p5: float
    throughput_worst_twentieth: float
    """Mean of the worst twentieth of all steps."""
    throughput_worst: float
    instances: float
    messages: float
    """Per operator and step."""
    messages_p95: float
    messages_max: float
    joins_to_formula: float
    """Messages of joins over what the formula says for as many newcomers."""
    peak_load: float
    peak_instances: float
    """Of all operators together: the highest load of any run, and instances then."""


def following(setup: Setup, out: Outcome) -> Following:
    a, share = accuracy(setup, out), throughput(setup, out)
    worst = np.sort(share.ravel())[: max(1, share.size // 20)]
    messages = out.messages
    of_joins = messages - 2 * out.leaves * out.neighbours
    busy = messages[messages > 0]
    load = out.load.sum(axis=1)
    run, step = np.unravel_index(int(load.argmax()), load.shape)
    return Following(
        error=float(np.abs(a - 1).mean()),
        accuracy_median=float(np.median(a)),
        accuracy_p5=float(np.quantile(a, 0.05)),
        accuracy_p95=float(np.quantile(a, 0.95)),
        accuracy_worst=float(a.min(axis=-1).mean()),
        overshoot=float(a.max(axis=-1).mean()),
        overshoot_max=float(a.max()),
        throughput_mean=float(share.mean()),
        throughput_p5=float(np.quantile(share, 0.05)),
        throughput_worst_twentieth=float(worst.mean()),
        throughput_worst=float(share.min(axis=-1).mean()),
        instances=float(out.instances.mean()),
        messages=float(messages.mean()),
        messages_p95=float(np.quantile(busy, 0.95)) if busy.size else 0.0,
        messages_max=float(messages.max()),
        joins_to_formula=float(of_joins.sum() / max(1, formula(out).sum())),
        peak_load=float(load[run, step]),
        peak_instances=float(out.instances[run, :, step].sum()),
    )


def settling(setup: Setup, out: Outcome, at: int) -> FloatArray:
    """Steps after `at` until load lies between the thresholds for good; all if it never does."""
    ratio = out.load / (out.instances * setup.capacity)
    outside = (ratio < setup.low) | (ratio > setup.high)
    steps = np.arange(outside.shape[-1])
    last = np.where(outside & (steps >= at), steps, at - 1).max(axis=-1)
    return np.asarray(last - at + 1, dtype=np.float64)


def reversals(out: Outcome, after: int) -> FloatArray:
    """Per run and operator: turns from rising to falling or back from step `after` on."""
    counts = out.instances[..., after:].reshape(-1, out.instances.shape[-1] - after)
    turns = []
    for row in counts:
        moves = np.diff(row)
        moves = np.sign(moves[moves != 0])
        turns.append(float((moves[1:] != moves[:-1]).sum()))
    return np.array(turns)
