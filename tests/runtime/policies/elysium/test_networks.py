"""EL12: profiles as networks, learnt by resilient backpropagation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from anabranch.runtime.policies.elysium.networks import (
    Values,
    _drawn,
    _gradients,
    trained,
)
from anabranch.runtime.policies.elysium.sizing import CoreBounds, sized
from anabranch.runtime.values.checks import PipelineError

RATES = np.linspace(0, 1, 60)[:, None]


@pytest.mark.parametrize("curve", [lambda r: r, lambda r: np.minimum(1, 1.6 * r)])
def test_the_best_of_five_starts_is_close(curve: Callable[[Values], Values]) -> None:
    network = trained(RATES, curve(RATES), np.random.default_rng(1), epochs=3000)
    assert network.error < 1e-4
    assert np.mean((network.predict(RATES) - curve(RATES)) ** 2) < 1e-4


def test_gradients_are_those_of_the_error() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.random((7, 2)), rng.random((7, 2))
    layers = [_drawn(2, 3, rng), _drawn(3, 2, rng)]
    found, error = _gradients(x, y, layers)
    for at, weights in enumerate(layers):
        for place in np.ndindex(weights.shape):
            nudged = [w.copy() for w in layers]
            nudged[at][place] += 1e-6
            slope = (_gradients(x, y, nudged)[1] - error) / 1e-6
            # The error is a mean over 14 values, of squares; the gradient is that of half the sum.
            assert found[at][place] * 2 / 14 == pytest.approx(slope, abs=1e-5)


def test_the_same_chance_gives_the_same_network() -> None:
    first, second = (
        trained(RATES, RATES, np.random.default_rng(3), epochs=50, starts=2) for _ in range(2)
    )
    assert first.error == second.error
    assert all(map(np.array_equal, first.layers, second.layers))


def test_a_network_sizes_an_operator_as_a_line_does() -> None:
    """4 instances at most; 0.8 ms a tuple: 1,000 tuples/s take two (answer 1)."""
    rates = np.linspace(0, 1250, 60)[:, None]
    network = trained(rates, 0.0008 * rates, np.random.default_rng(1), epochs=3000)
    assert network.cores(500) == pytest.approx(0.4, abs=0.02)
    assert sized(network.cores, 1000, CoreBounds(), None) == 2
    assert network.cores(1e9) <= 1.0


def test_a_column_that_never_changes_does_no_harm() -> None:
    inputs = np.hstack([RATES, np.ones_like(RATES)])
    network = trained(inputs, np.full_like(RATES, 7.0), np.random.default_rng(1), epochs=200)
    assert network.predict(inputs) == pytest.approx(7.0, abs=0.05)


@pytest.mark.parametrize(("inputs", "starts"), [(RATES[:0], 5), (RATES[:3], 5), (RATES, 0)])
def test_no_records_or_no_starts_are_refused(inputs: Values, starts: int) -> None:
    with pytest.raises(PipelineError, match="profile: expected"):
        trained(inputs, RATES, np.random.default_rng(1), starts=starts)
