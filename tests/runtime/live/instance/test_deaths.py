"""Instances die at any moment and go on: every tuple arrives once, in its order."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.runtime.plan.ends import DeadLetter
from tests.runtime.network import Kept, KeptWriter, Network
from tests.runtime.storms import STORIES, storm
from tests.runtime.virtual_time import in_virtual_time

# Whoever is killed in the middle leaves sockets behind that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

N = 200_000


def chain(out: Path) -> ab.Pipeline:
    pipeline = ab.Pipeline("chain")
    numbers = pipeline.source("numbers", ab.items(range(N)))
    doubled = numbers.map("double", lambda n: 2 * n, scale=ab.Scale(max_instances=4))
    doubled.sink("out", ab.jsonl(out))
    return pipeline


@in_virtual_time
async def test_a_chain_of_instances_that_die_one_by_one_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out.jsonl"
    pipeline = chain(out)
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    for _ in range(12):
        await asyncio.sleep(0.01)
        if not (mortals := network.mortals()):
            break
        me = network.rng.choice(mortals)
        network.kill(me)
        await network.revive(me)
    await network.finish()
    found = Counter(map(int, out.read_text().splitlines()))
    assert found == Counter(2 * n for n in range(N))
    assert network.deaths > 3
    assert network.unbalanced() == []


@in_virtual_time
async def test_how_far_all_had_come_when_a_message_came_outlives_a_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the next incarnation can work off what came again in the order in which it had
    come."""
    pipeline, kept, may_write = ab.Pipeline("slow"), Kept(), asyncio.Event()

    async def write(writer: KeptWriter, tuples: list[int]) -> list[DeadLetter]:
        await may_write.wait()
        writer.sink.tuples += tuples
        return []

    monkeypatch.setattr(KeptWriter, "write", write)
    numbers = pipeline.source("numbers", ab.items(range(4_000)))
    numbers.map("double", lambda n: 2 * n, scale=ab.Scale()).sink("out", kept)
    network = Network(pipeline, tmp_path, journals=True, credit_tuples=500)
    await network.start()
    (out,) = network.of("out")
    await network.until(lambda: out.path.intake.tuples > 0)
    network.decide("double", "duplicate")
    await network.until(lambda: bool(out.path.replay_order.snapshot()))
    assert out.commits is not None
    await out.commits.committed()
    marks = out.path.replay_order.snapshot()
    assert marks
    network.kill(out.me)
    await network.revive(out.me)
    (later,) = network.of("out")
    assert later is not out
    assert later.path.replay_order.snapshot()[0] == marks[0]
    may_write.set()
    await network.finish()
    assert Counter(kept.tuples) == Counter(range(0, 8_000, 2))
    assert network.unbalanced() == []


@pytest.mark.parametrize("kind", STORIES)
@in_virtual_time
async def test_a_storm_of_deaths_joins_leaves_and_moves_changes_no_result(
    tmp_path: Path, kind: str
) -> None:
    network = await storm(kind, seed=5, folder=tmp_path)
    assert network.deaths
    assert network.notes["decided"]


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 120))
@pytest.mark.parametrize("kind", STORIES)
@in_virtual_time
async def test_no_storm_changes_a_result(tmp_path: Path, kind: str, seed: int) -> None:
    await storm(kind, seed, tmp_path)


@pytest.mark.parametrize(("idempotent", "told"), [(False, 1), (True, 0)])
@in_virtual_time
async def test_a_sink_that_may_repeat_results_says_so_after_a_death(
    tmp_path: Path, idempotent: bool, told: int
) -> None:
    pipeline = ab.Pipeline("repeats")
    sink = ab.foreach(int, idempotent=idempotent)
    pipeline.source("numbers", ab.generate(lambda n: n, count=200_000)).sink("out", sink)
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    (writer,) = network.of("out")
    (channel,) = [*writer.neighbourhood.from_predecessors]
    await network.until(lambda: channel.statements.acknowledged > 1)
    network.kill(writer.me)
    await network.revive(writer.me)
    await network.finish()
    assert network.notes["may_repeat"] == told
