"""Pipelines on many hosts that are cut off, lost and drained."""

from __future__ import annotations

import pytest

from anabranch.runtime.world.fleet import FLEETS, fleet
from anabranch.runtime.world.trial import WorldVerdict, judged


@pytest.mark.parametrize("seed", [2, 4])
def test_a_fleet_loses_hosts_and_no_result(seed: int) -> None:
    outcome = judged(fleet(seed, "small", deadly=True))
    assert outcome.verdict is WorldVerdict.VALID, outcome.reason
    wanted = ("joins", "leaves", "relocations", "moves", "host_cuts", "host_losses", "deaths")
    assert min(outcome.happened[what] for what in wanted) > 0


@pytest.mark.nightly
def test_a_hundred_hosts_with_a_thousand_instances_lose_no_result() -> None:
    """400 s of processor time."""
    assert (FLEETS["large"].hosts, FLEETS["large"].instances) == (100, 1000)
    outcome = judged(fleet(1, "large", deadly=True))
    assert outcome.verdict is WorldVerdict.VALID, outcome.reason
    assert outcome.happened["host_losses"] > 50
