"""The gateway to Spark in worlds: as it is, with a script in the place of Spark."""

from __future__ import annotations

import importlib.util
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.runtime.ports.disk import using
from anabranch.runtime.world.disk import MemoryDisk
from anabranch.runtime.world.lapses import Lapse
from anabranch.runtime.world.swarm import Tally
from anabranch.runtime.world.trial import WorldVerdict, judged
from anabranch.spark_bridge.durable import make_folder
from anabranch.spark_bridge.errors import SparkUnavailable
from anabranch.spark_bridge.world.drawing import drawn
from anabranch.spark_bridge.world.gateway_link import SPARK
from anabranch.spark_bridge.world.seeds import SeedsWithSpark

lapses = pytest.importorskip("anabranch.spark_bridge.world.lapses")

LAPSE_SEEDS = 60
LATE = {"spool removed at once": 65}
"""Lapses that show in none of these, and the seed that shows them."""
AT_A_TIME = 10


def failing(tally: Tally) -> list[str]:
    return [outcome.text for outcome in tally.failing]


@pytest.mark.parametrize("first", [0, 100])
def test_each_row_that_spark_commits_counts_once_whatever_dies(first: int) -> None:
    tally = SeedsWithSpark(first, AT_A_TIME, crashes="all", scene=SPARK).run()
    assert failing(tally) == []
    assert tally.verdicts[WorldVerdict.VALID] > AT_A_TIME / 2
    assert min(tally.sums["service_kills"], tally.sums["joins"], tally.sums["disk full"]) > 0


def test_worlds_without_deaths_are_valid_too() -> None:
    tally = SeedsWithSpark(200, AT_A_TIME, crashes="none", scene=SPARK).run()
    assert failing(tally) == []
    assert tally.verdicts[WorldVerdict.VALID] == AT_A_TIME


def test_a_world_with_spark_is_the_same_each_time() -> None:
    one, again = (judged(drawn(3, SPARK, crashes="all")) for _ in range(2))
    assert (one.trace, one.events, one.happened) == (again.trace, again.events, again.happened)


def test_a_share_of_worlds_has_spark_at_the_ends_of_its_pipeline() -> None:
    scenes = Counter(drawn(seed).scene.name == SPARK for seed in range(300))
    assert 10 < scenes[True] < 60


def test_worlds_with_spark_are_of_each_kind() -> None:
    trials = [drawn(seed, SPARK) for seed in range(100)]
    kinds = Counter((t.scene.resumable, bool(t.scene.keyed)) for t in trials)
    assert len(kinds) == 4
    assert any(t.ends for t in trials if t.scene.resumable)
    assert not any(t.ends for t in trials if not t.scene.resumable)


@pytest.mark.parametrize("lapse", lapses.LAPSES, ids=lambda lapse: lapse.name)
def test_a_broken_gateway_is_found_out(lapse: Lapse) -> None:
    late = LATE.get(lapse.name)
    seeds = range(LAPSE_SEEDS) if late is None else (late, *range(200))
    broken = SeedsWithSpark(0, 1, crashes=lapse.crashes, scene=lapse.scene, lapse=lapse.name)
    assert any(replace(broken, first=seed).run().failing for seed in seeds)


def test_a_world_with_spark_needs_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SparkUnavailable, match="pyarrow"):
        drawn(0, SPARK)


def test_a_folder_that_was_made_is_there_after_a_loss_of_power() -> None:
    disk = MemoryDisk()
    path = Path("/world/state/collect")
    with using(disk.store_of("one")):
        make_folder(path)
    disk.lose_power()
    assert disk.store_of("another").is_folder(path)
