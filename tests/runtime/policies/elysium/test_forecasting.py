"""EL7, EL12: the load of the next minutes, by least squares and by the published network."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.policies.elysium.forecasting import AHEAD, PAST, load_predictor
from anabranch.runtime.policies.elysium.networks import NeuralProfile
from anabranch.runtime.policies.elysium.rates import expected_load
from anabranch.runtime.values.checks import PipelineError

MINUTES = np.arange(200)
WAVE = [float(each) for each in 700 + 600 * np.sin(2 * np.pi * MINUTES / 20)]


def test_a_line_knows_a_wave() -> None:
    found = load_predictor(WAVE[:120])
    assert found.predict(WAVE[:150]) == pytest.approx(WAVE[150 : 150 + AHEAD], rel=1e-6)


def test_a_network_knows_a_wave_nearly() -> None:
    found = load_predictor(WAVE[:120], model="network", rng=np.random.default_rng(1))
    assert isinstance(found.model, NeuralProfile)
    errors = [
        abs(np.array(found.predict(WAVE[:at])) - WAVE[at : at + AHEAD]).mean()
        for at in range(150, 190)
    ]
    assert np.mean(errors) < 0.05 * max(WAVE)
    sizes = [weights.shape for weights in found.model.layers]
    assert sizes == [(PAST + 1, 24), (25, AHEAD)]


def test_a_network_can_say_more_than_it_was_trained_on() -> None:
    rising = [float(each) for each in range(100, 220, 2)]
    network = load_predictor(rising, model="network", rng=np.random.default_rng(1))
    assert max(network.predict([float(e) for e in range(220, 240, 2)])) > max(rising)


def test_with_a_calendar_a_network_has_thirteen_inputs() -> None:
    calendar = [((at // 24) % 7, at % 24, at % 60) for at in range(120)]
    found = load_predictor(WAVE[:120], calendar, "network", np.random.default_rng(1), epochs=20)
    assert isinstance(found.model, NeuralProfile)
    assert found.model.layers[0].shape == (13 + 1, 24)
    assert len(found.predict(WAVE[:20], (1, 12, 30))) == AHEAD


def test_the_calendar_tells_what_loads_do_not() -> None:
    """Each day at noon, out of nothing."""
    days = [(0, at % 24, 0) for at in range(24 * 30)]
    loads = [500.0 if hour == 12 else 100.0 + hour for _, hour, _ in days]
    blind, seeing = load_predictor(loads), load_predictor(loads, days)
    assert blind.used == list(range(3, 13))
    assert seeing.used == [1, *range(3, 13)]


def test_a_calendar_that_never_changes_is_left_out() -> None:
    assert load_predictor(WAVE, [(3, 4, 5)] * len(WAVE)).used == list(range(3, 13))


def test_loads_are_never_below_none_and_the_margin_counts() -> None:
    falling = [float(each) for each in range(400, 0, -4)]
    plain, wide = load_predictor(falling), load_predictor(falling, margin=1.2)
    assert plain.predict([40, 30, 20, 10, 1]) == pytest.approx([0] * AHEAD, abs=50)
    assert min(plain.predict([9.0, 5.0, 1.0])) >= 0
    assert wide.predict(falling[:50]) == pytest.approx(
        [1.2 * each for each in plain.predict(falling[:50])]
    )


def test_the_first_minutes_stand_for_those_before() -> None:
    found = load_predictor(WAVE)
    assert found.predict([300.0]) == found.predict([300.0] * PAST)
    with pytest.raises(PipelineError, match="at least one load"):
        found.predict([])
    with pytest.raises(PipelineError, match="at least 15 minutes"):
        load_predictor(WAVE[:14])
    with pytest.raises(PipelineError, match="with a load"):
        load_predictor([0.0] * 30)


@given(st.floats(0, 1e4), st.lists(st.floats(0, 1e4), max_size=AHEAD), st.integers(1, AHEAD))
def test_el7_is_the_highest_and_never_below_what_comes(
    now: float, forecast: list[float], ahead: int
) -> None:
    found = expected_load(now, forecast, ahead)
    assert found == max([now, *forecast[:ahead]])
    letter = expected_load(now, forecast, ahead, letter=True)
    assert letter == (max(forecast[:ahead]) if forecast else now)
