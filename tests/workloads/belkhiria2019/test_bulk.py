"""The vectorised policy is the shipped one, as far as the shipped one can be run."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from anabranch.workloads.belkhiria2019.bulk import bulk
from anabranch.workloads.belkhiria2019.exact import in_turn
from anabranch.workloads.belkhiria2019.growth import growth
from anabranch.workloads.belkhiria2019.metrics import following
from anabranch.workloads.belkhiria2019.setup import Outcome, Setup, brownian, doubling

SETUP = Setup()


def assert_same(a: Outcome, b: Outcome) -> None:
    for name in ("instances", "joins", "batches", "leaves"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name


def test_without_noise_it_decides_the_same_in_every_step() -> None:
    """Nobody draws in turns, so there is nothing that may differ."""
    for load in (brownian(SETUP, range(1)), doubling(SETUP, range(1), 80)):
        assert_same(in_turn(SETUP, load, 0), bulk(SETUP, load, 0))


@pytest.mark.parametrize("instances", [1, 40, 150])
def test_so_it_does_at_other_sizes(instances: int) -> None:
    setup = replace(SETUP, operators=1, instances=instances, steps=60)
    times = np.arange(setup.steps)
    load = (
        instances * setup.full * (1 + np.where(times > 10, 1.0, 0) - np.where(times > 30, 1.6, 0))
    )
    load = load[None, None]
    assert_same(in_turn(setup, load, 0), bulk(setup, load, 0))


def test_with_noise_both_come_from_one_distribution() -> None:
    """Means of 20 runs with different draws, within four standard errors or 3 %."""
    load = brownian(SETUP, range(4))
    a, b = in_turn(SETUP, load, 0, noise=0.1), bulk(SETUP, load, 0, noise=0.1)
    for name in ("instances", "joins", "batches", "leaves"):
        ours, theirs = (getattr(out, name).mean(axis=-1).ravel() for out in (a, b))
        difference = ours - theirs  # the same loads, so in pairs
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        assert abs(difference.mean()) <= max(4 * error, 0.03 * ours.mean())
    f, g = following(SETUP, a), following(SETUP, b)
    assert g.error == pytest.approx(f.error, rel=0.05)
    assert g.throughput_p5 == pytest.approx(f.throughput_p5, abs=0.03)


def test_ten_thousand_siblings_take_seconds_and_settle_as_ten() -> None:
    began = time.process_time()
    rows = [r for r in growth((10, 10_000)) if r.policy in ("ours, vectorised", "ours, exact")]
    assert time.process_time() - began < 30
    assert {r.settling for r in rows} == {3.0}
    large = rows[-1]
    assert (large.instances, large.newcomers, large.batches) == (10_000, 10_000, 1250)
