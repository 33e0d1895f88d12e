"""The load of the next minutes from those before, and from the calendar (EL7, EL12).

By least squares, or as published by a network 13-24-5. Loads are shares of 1.5 times the highest
of the history, since a network cannot forecast more than it was trained on; inputs that never
changed there are left out (EL-G9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from anabranch.runtime.policies.elysium.networks import NeuralProfile, Values, trained
from anabranch.runtime.values.checks import PipelineError

PAST, AHEAD, HIDDEN = 10, 5, 24
"""Loads that go in, minutes that come out, neurons between (EL-G8)."""
ROOM = 1.5
DAYS_MAX, HOURS_MAX, MINUTES_MAX = 6, 23, 59
Calendar = tuple[int, int, int]
"""Day of the week from Sunday on, hour, minute."""
Model = Literal["line", "network"]


@dataclass(frozen=True, slots=True)
class LoadPredictor:
    """`model`: weights of all inputs and a constant, or a network. `used`: which of the inputs."""

    model: Values | NeuralProfile
    used: Sequence[int]
    highest: float
    margin: float = 1.0

    def predict(self, loads: Sequence[float], calendar: Calendar | None = None) -> list[float]:
        """Of the next five minutes; `loads`: of the last ones, the newest last. The oldest stands
        for those before it. Raises `PipelineError` without any."""
        if not loads:
            raise PipelineError("forecast: expected at least one load")
        last = [*reversed(loads[-PAST:])]
        last += [last[-1]] * (PAST - len(last))
        row = _inputs(np.array([last]) / self.highest, _rows_of([calendar]))[:, list(self.used)]
        if isinstance(self.model, NeuralProfile):
            said = self.model.predict(row)[0]
        else:
            said = np.append(row[0], 1.0) @ self.model
        return [max(0.0, float(each)) * self.highest * self.margin for each in said]


def load_predictor(
    loads: Sequence[float],
    calendar: Sequence[Calendar] | None = None,
    model: Model = "line",
    rng: np.random.Generator | None = None,
    margin: float = 1.0,
    epochs: int = 1500,
) -> LoadPredictor:
    """Learnt from a history, a load each minute. `margin`: 1.2 in the authors' program."""
    rows = len(loads) - PAST - AHEAD + 1
    if rows < 1 or max(loads) <= 0:
        raise PipelineError(
            f"forecast: expected a history of at least {PAST + AHEAD} minutes with a load, got "
            f"{len(loads)}"
        )
    highest = ROOM * max(loads)
    shares = np.array(loads, dtype=float) / highest
    windows = np.lib.stride_tricks.sliding_window_view(shares, PAST + AHEAD)
    days = None if calendar is None else list(calendar)[PAST - 1 : PAST - 1 + rows]
    inputs = _inputs(windows[:, :PAST][:, ::-1], _rows_of(days if days else [None] * rows))
    used = [at for at, column in enumerate(inputs.T) if np.ptp(column) > 0]
    inputs, outputs = inputs[:, used], windows[:, PAST:]
    if model == "network":
        chance = rng if rng is not None else np.random.default_rng(0)
        network = trained(inputs, outputs, chance, (HIDDEN,), starts=2, epochs=epochs, room=ROOM)
        return LoadPredictor(network, used, highest, margin)
    whole = np.hstack([inputs, np.ones((rows, 1))])
    line: Values = np.linalg.lstsq(whole, outputs, rcond=None)[0].astype(np.float64)
    return LoadPredictor(line, used, highest, margin)


def _rows_of(days: Sequence[Calendar | None]) -> Values:
    known = [(0, 0, 0) if day is None else day for day in days]
    return np.array(known, dtype=float) / [DAYS_MAX, HOURS_MAX, MINUTES_MAX]


def _inputs(loads: Values, calendar: Values) -> Values:
    return np.hstack([calendar, loads])
