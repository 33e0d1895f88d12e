"""Jobs and seeds on a cluster give what they give here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest

from anabranch.runtime.world.swarm import Seeds, Tally, over_processes, swarm
from anabranch.spark_bridge import spreading
from anabranch.spark_bridge.spreading import OverSpark, in_waves

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Squared:
    number: int
    seed: int

    def run(self) -> int:
        return self.number**2


def test_jobs_keep_their_order_though_tasks_are_by_seed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    @contextlib.contextmanager
    def shared(master: str, app_name: str) -> Iterator[SparkSession]:
        opened.append(master)
        yield spark

    monkeypatch.setattr(spreading, "session_for", shared)
    told: list[tuple[int, int]] = []
    jobs = [Squared(number, number % 3) for number in range(7)]
    found = OverSpark("local[7]")(jobs, lambda done, of: told.append((done, of)))
    assert found == [0, 1, 4, 9, 16, 25, 36]
    assert (told, opened) == ([(7, 7)], ["local[7]"])


def test_jobs_are_taken_wave_by_wave(spark: SparkSession) -> None:
    """So a bound on time is kept, and what is done is told meanwhile."""
    jobs = (Squared(number, number) for number in range(10**6))
    found = in_waves(spark, jobs)
    assert next(found) == 0
    assert next(jobs).number == spreading.WAVE_TASKS * spark.sparkContext.defaultParallelism


def test_seeds_on_a_cluster_are_those_of_processes(
    spark: SparkSession,
) -> None:
    like = Seeds(5, 5, lapse="late journal")
    progress: list[int] = []

    def note(tally: Tally) -> None:
        progress.append(tally.seeds)

    there, here = (
        swarm(like, seeds=12, deadline_s=None, over=over, progress=note)
        for over in (partial(in_waves, spark), over_processes(1))
    )
    assert progress == [5, 10, 12] * 2
    assert there.failing
    assert [one.seed for one in there.failing] == [one.seed for one in here.failing]
    assert there.verdicts == here.verdicts
