"""Pipelines on many hosts that are cut off, lost and drained."""

from __future__ import annotations

import pytest

from anabranch.runtime.world.drawing import drawn
from anabranch.runtime.world.drawn_trial import plain
from anabranch.runtime.world.fleet import FLEET, FLEETS, fleet
from anabranch.runtime.world.trial import WorldVerdict, judged

LARGE_S = 3_600
"""The large fleet takes seven minutes of processor time, which may be shared with others."""


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_a_fleet_loses_hosts_and_no_result(seed: int) -> None:
    outcome = judged(fleet(seed, "small", deadly=True))
    assert outcome.verdict is WorldVerdict.VALID, outcome.reason
    wanted = ("joins", "leaves", "relocations", "moves", "host_cuts", "host_losses", "deaths")
    assert min(outcome.happened[what] for what in wanted) > 0


def test_it_is_a_scene_that_is_drawn_with_deaths_or_without() -> None:
    deadly, large = fleet(2, "small", deadly=True), fleet(2, "large", deadly=False)
    assert plain(drawn(2, FLEET)) == plain(deadly)
    assert plain(drawn(2, FLEET, size="large", crashes="none")) == plain(large)
    calm = drawn(2, FLEET, crashes="none").troubles
    assert not calm.kill
    assert calm.host_losses == 0.0
    assert calm.host_cuts > 0.0


@pytest.mark.nightly
@pytest.mark.timeout(LARGE_S)
def test_a_hundred_hosts_with_a_thousand_instances_lose_no_result() -> None:
    """400 s of processor time."""
    assert (FLEETS["large"].hosts, FLEETS["large"].instances) == (100, 1000)
    outcome = judged(fleet(1, "large", deadly=True))
    assert outcome.verdict is WorldVerdict.VALID, outcome.reason
    assert outcome.happened["host_losses"] > 50
