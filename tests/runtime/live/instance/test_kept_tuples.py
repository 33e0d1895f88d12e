"""At least once, what key groups on the move had kept comes out, whoever dies when."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from anabranch.runtime.keyed.moving import Kept
from anabranch.runtime.live.instance.keyed_pump import KeyedPump
from tests.runtime.moving import Barred, delayed_transfer, latest_by_key, pump_of
from tests.runtime.network import Network
from tests.runtime.virtual_time import in_virtual_time

# Whoever is killed in the middle leaves sockets behind that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

N = 5_000


def worked_off(pump: KeyedPump) -> list[int]:
    """Kept tuples that are worked off from now on."""
    done: list[int] = []
    worker = pump.processor._worker
    real = worker.one

    def one(kept: Kept, part: Any) -> Any:
        done.append(kept.item)
        return real(kept, part)

    worker.one = one  # type: ignore[method-assign]
    return done


@in_virtual_time
async def test_kept_tuples_that_are_worked_off_are_not_lost_before_their_results_are_safe(
    tmp_path: Path,
) -> None:
    """Their senders have long forgotten them when the state arrives that they wait for."""
    sink = Barred()
    pipeline = latest_by_key(sink, "at-least-once", N)
    network = Network(pipeline, tmp_path, journals=True)
    await network.start(2)
    giver, new_owner = network.of("last")
    await network.until(lambda: len(sink.tuples) > 300)
    may_go, done = delayed_transfer(pump_of(giver)), worked_off(pump_of(new_owner))
    giver.orders.move()
    held = pump_of(new_owner).processor._held
    await network.until(lambda: sum(map(len, held.kept.values())) > 20)
    kept = {one.item for queue in held.kept.values() for one in queue}
    channels = new_owner.neighbourhood.from_predecessors
    came = [(channel, channel.number) for channel in channels]
    await network.until(lambda: all(c.statements.acknowledged > n for c, n in came))
    sink.is_open.clear()
    may_go.set()
    await network.until(lambda: kept <= {*done})
    assert new_owner.commits is not None
    await new_owner.commits.committed()
    mortals = network.mortals()
    await network.die_and_go_on(mortals)
    sink.is_open.set()
    await network.finish()
    assert {n for _, n in sink.tuples} == set(range(N))


@in_virtual_time
async def test_results_on_their_way_when_their_key_groups_move_are_not_lost(
    tmp_path: Path,
) -> None:
    """What they are made of would come again to the old owner, who has no say in it any more."""
    sink = Barred()
    pipeline = latest_by_key(sink, "at-least-once", N)
    network = Network(pipeline, tmp_path, journals=True)
    await network.start(2)
    giver, _ = network.of("last")
    await network.until(lambda: len(sink.tuples) > 300)
    sink.is_open.clear()
    before = giver.path.counts.processed
    await network.until(lambda: giver.path.counts.processed > before + 100)
    giver.orders.move()
    for _ in range(20):  # as far as it gets
        await asyncio.sleep(0.01)
    mortals = [me for me in network.mortals() if me.operator in ("last", "out")]
    await network.die_and_go_on(mortals)
    sink.is_open.set()
    await network.finish()
    assert {n for _, n in sink.tuples} == set(range(N))
