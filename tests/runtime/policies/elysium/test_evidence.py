"""What a controller has seen becomes a profile (EL12), fades, and survives its controller."""

from __future__ import annotations

import pytest

from anabranch.runtime.policies.elysium.evidence import HISTORY, Evidence, FadingSums
from anabranch.runtime.policies.elysium.rates import RatedStream


def sums(*pairs: tuple[float, float]) -> FadingSums:
    found = FadingSums()
    for pair in pairs:
        found = found.after([pair])
    return found


def test_a_line_is_found_of_records_on_it() -> None:
    base, slope = sums(*[(float(x), 0.002 * x) for x in (50, 100, 200, 300)]).line
    assert base == pytest.approx(0, abs=1e-9)
    assert slope == pytest.approx(0.002)


def test_a_load_that_never_changes_gives_a_slope_too() -> None:
    base, slope = sums(*[(100.0, 0.4)] * 60).line
    assert slope * 200 + base == pytest.approx(0.8, rel=0.01)


def test_costs_that_have_changed_are_learnt_anew() -> None:
    found = sums(*[(100.0, 0.2)] * 30, *[(100.0, 0.6)] * 200)
    base, slope = found.line
    assert base + 100 * slope == pytest.approx(0.6, rel=0.02)


def test_instances_of_one_sample_count_as_one_record() -> None:
    found = FadingSums().after([(100.0, 0.2), (300.0, 0.6)])
    assert (found.weight, found.x, found.xx) == (1.0, 200.0, 50_000.0)
    assert found.y == pytest.approx(0.4)
    assert found.xy == pytest.approx(100.0)


def test_a_falling_cost_is_taken_as_none() -> None:
    assert sums((100.0, 0.9), (1000.0, 0.1), (1000.0, 0.1)).line[1] >= 0


def test_evidence_survives_as_numbers() -> None:
    found = Evidence(
        used={"split": sums((10.0, 0.1), (20.0, 0.2))},
        cpu={"split": sums((10.0, 0.05))},
        streams={("lines", "split"): sums((10.0, 30.0))},
        hosts=sums((1.0, 1.3)),
        loads={"lines": (1.0, 2.0, 3.0)},
    )
    again = Evidence.of(found.heritage)
    assert again.heritage == found.heritage
    assert again.selectivities() == [RatedStream("lines", "split", 3.0)]
    assert list(again.loads["lines"]) == [1.0, 2.0, 3.0]


def test_what_it_does_not_know_of_is_left_out() -> None:
    assert Evidence.of({"plans": 3.0, "load lines x": 1.0, "used": 2.0}) == Evidence()


def test_the_history_is_bounded() -> None:
    found = Evidence()
    for n in range(HISTORY + 9):
        found = found.with_load("lines", float(n))
    assert len(found.loads["lines"]) == HISTORY
    assert found.loads["lines"][-1] == HISTORY + 8


def test_the_rest_of_a_busy_host_is_not_the_pipeline_s() -> None:
    busy = Evidence(hosts=sums(*[(0.1, 3.9), (0.2, 3.95), (0.4, 4.0)] * 5))
    assert busy.host(4.0).base <= 2.0
    assert Evidence().host(4.0).share(2.0) == 0.5
