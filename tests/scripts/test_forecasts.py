"""`scripts/forecasts.py`: what it compares, and when a forecast fits."""

from __future__ import annotations

import pytest

from tests.scripts import script

forecasts = script("forecasts")
RAN = forecasts.Figures({"split": 5, "count": 1}, 0.7, 20.0, [100])
FORETOLD = forecasts.Figures({"split": 6, "count": 1}, 0.6, 39.0, [70, 85])


def test_a_forecast_fits_within_its_bounds() -> None:
    assert forecasts.misfits(RAN, FORETOLD) == []


@pytest.mark.parametrize(
    ("wrong", "misses"),
    [
        ({"instances": {"split": 7, "count": 1}}, ["instances of split"]),
        ({"p50_ms": 41.0}, ["p50"]),
        ({"p50_ms": 9.0}, ["p50"]),
        ({"messages": [60, 83]}, ["messages"]),
        ({"messages": [126, 130]}, ["messages"]),
    ],
)
def test_what_is_too_far_from_the_run_is_named(wrong: dict[str, object], misses: list[str]) -> None:
    assert forecasts.misfits(RAN, FORETOLD._replace(**wrong)) == misses


def test_a_run_and_its_forecast_are_compared_at_rest() -> None:
    ready = forecasts.READY["wordcount"]
    ran, foretold = forecasts.compared(ready, 10.0, 6.0, 2)
    # What a run measures depends on how busy the machine is. But no line takes less than 20 ms.
    assert set(ran.instances) == set(foretold.instances) == {"split", "count"}
    assert (len(ran.messages), len(foretold.messages)) == (1, 2)
    assert ran.load > 0
    assert foretold.load * foretold.instances["split"] > 0.9 * 10 / ready.capacity


def test_a_run_that_is_too_short_to_come_to_rest_is_refused() -> None:
    with pytest.raises(SystemExit) as refused:
        forecasts.main(["--seconds", "5"])
    assert refused.value.code == 2
