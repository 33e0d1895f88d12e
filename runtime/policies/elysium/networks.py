"""Profiles as small neural networks, the published way to learn them (EL12).

All layers are tanh; inputs and outputs are scaled to 0..1 by what was seen; resilient
backpropagation over all records at once. Chance comes from the generator that is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from anabranch.runtime.values.checks import PipelineError

Values = NDArray[np.float64]
GROWS, SHRINKS = 1.2, 0.5
STEP, STEP_MIN, STEP_MAX = 0.1, 1e-9, 5.0
"""Of resilient backpropagation: the factors of a step, the first one, and its bounds."""
GOOD, EPOCHS, STARTS = 3e-5, 50_000, 5
PROFILE = (3,)
"""Hidden layers of a profile: 1-3-1."""


@dataclass(frozen=True, slots=True)
class NeuralProfile:
    """`layers`: weights of each, with the bias as the last row. `inputs`, `outputs`: least and span
    of each column. `error`: mean square of the scaled outputs."""

    layers: tuple[Values, ...]
    inputs: tuple[Values, Values]
    outputs: tuple[Values, Values]
    error: float

    def predict(self, rows: Values) -> Values:
        """One row of outputs for each of inputs."""
        least, span = self.outputs
        found: Values = _run(self.layers, _scaled(rows, self.inputs))[-1] * span + least
        return found

    def cores(self, rate: float) -> float:
        """As a profile: of an instance at a rate, 0 to 1."""
        return float(np.clip(self.predict(np.array([[rate]]))[0, 0], 0, 1))


def trained(
    inputs: Values,
    outputs: Values,
    rng: np.random.Generator,
    hidden: Sequence[int] = PROFILE,
    starts: int = STARTS,
    epochs: int = EPOCHS,
    good: float = GOOD,
    room: float = 1.0,
) -> NeuralProfile:
    """The best of some starts; each ends after so many `epochs`, all of them with one that is
    `good`. `inputs`, `outputs`: a row for each record. `room`: so many times the highest output is
    still within its reach. Raises `PipelineError` for no records."""
    if len(inputs) == 0 or len(inputs) != len(outputs):
        raise PipelineError(
            f"profile: expected as many inputs as outputs, at least one, got {len(inputs)} and "
            f"{len(outputs)}"
        )
    of_inputs, (least, span) = _scale(inputs), _scale(outputs)
    of_outputs = least, span * room
    x, y = _scaled(inputs, of_inputs), _scaled(outputs, of_outputs)
    sizes = (x.shape[1], *hidden, y.shape[1])
    best: tuple[list[Values], float] | None = None
    for _ in range(starts):
        layers = [_drawn(above, below, rng) for above, below in pairwise(sizes)]
        found = _start(x, y, layers, epochs, good)
        if best is None or found[1] < best[1]:
            best = found
        if best[1] <= good:
            break
    if best is None:
        raise PipelineError(f"profile: expected starts >= 1, got {starts}")
    return NeuralProfile(tuple(best[0]), of_inputs, of_outputs, best[1])


def _scale(values: Values) -> tuple[Values, Values]:
    """A column that is always the same has a span of 1."""
    least, span = values.min(axis=0), np.ptp(values, axis=0)
    return least, np.where(span > 0, span, 1.0)


def _scaled(values: Values, by: tuple[Values, Values]) -> Values:
    found: Values = (values - by[0]) / by[1]
    return found


def _drawn(above: int, below: int, rng: np.random.Generator) -> Values:
    found: Values = rng.normal(0, 1 / np.sqrt(above), (above + 1, below))
    return found


def _run(layers: Sequence[Values], rows: Values) -> list[Values]:
    """The outputs of each layer, the inputs first."""
    found = [rows]
    for weights in layers:
        found.append(np.tanh(found[-1] @ weights[:-1] + weights[-1]))
    return found


def _start(
    x: Values, y: Values, layers: list[Values], epochs: int, good: float
) -> tuple[list[Values], float]:
    """The weights with the least error on the way, and that."""
    steps = [np.full_like(w, STEP) for w in layers]
    before = [np.zeros_like(w) for w in layers]
    best, least = layers, np.inf
    for _ in range(epochs):
        gradients, error = _gradients(x, y, layers)
        if error < least:
            best, least = layers, error
        if error <= good:
            break
        moved = []
        for at, (weights, gradient) in enumerate(zip(layers, gradients, strict=True)):
            turn = gradient * before[at]
            factor = np.where(turn > 0, GROWS, np.where(turn < 0, SHRINKS, 1.0))
            steps[at] = np.clip(steps[at] * factor, STEP_MIN, STEP_MAX)
            # Where the sign has turned, the step was too far: none this time.
            before[at] = np.where(turn < 0, 0.0, gradient)
            moved.append(weights - np.sign(before[at]) * steps[at])
        layers = moved
    return best, float(least)


def _gradients(x: Values, y: Values, layers: Sequence[Values]) -> tuple[list[Values], float]:
    outputs = _run(layers, x)
    off = outputs[-1] - y
    back = off * (1 - outputs[-1] ** 2)
    found: list[Values] = []
    for weights, above in zip(reversed(layers), outputs[-2::-1], strict=True):
        found.append(np.vstack([above.T @ back, back.sum(axis=0)]))
        back = (back @ weights[:-1].T) * (1 - above**2)
    return found[::-1], float((off**2).mean())
