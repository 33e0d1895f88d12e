"""At most once, a move of key groups goes on over deaths, with what is left to move."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from anabranch.protocol.states import Active, Transferring
from tests.runtime.moving import delayed_transfer, latest_by_key, pump_of
from tests.runtime.network import Kept, Network
from tests.runtime.virtual_time import in_virtual_time

# Whoever is killed in the middle leaves sockets behind that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

N = 3_000


@in_virtual_time
async def test_an_owner_that_dies_while_it_gives_key_groups_away_gives_them_in_its_next_incarnation(
    tmp_path: Path,
) -> None:
    sink = Kept()
    pipeline = latest_by_key(sink, "at-most-once", N)
    network = Network(pipeline, tmp_path, journals=True)
    await network.start(2)
    giver, new_owner = network.of("last")
    await network.until(lambda: len(sink.tuples) > 300)
    delayed_transfer(pump_of(giver))
    before = len(new_owner.membership.owned())

    def gives() -> bool:
        state = giver.core.state
        return isinstance(state, Active) and isinstance(state.own, Transferring)

    giver.orders.move()
    await network.until(gives)
    assert giver.commits is not None
    await giver.commits.committed()
    await asyncio.sleep(0.02)
    network.kill(giver.me)
    frozen = pump_of(giver).processor.frozen
    await network.revive(giver.me)
    again = network.instances[giver.me]
    assert pump_of(again).processor.frozen == frozen
    assert pump_of(again).processor.owned == again.membership.owned()
    assert not pump_of(again).processor.states()
    await network.until(lambda: len(new_owner.membership.owned()) > before)
    await network.finish()
    found = [n for _, n in sink.tuples]
    assert len(found) == len(set(found))


@in_virtual_time
async def test_key_groups_that_were_given_away_are_not_there_in_the_next_incarnation(
    tmp_path: Path,
) -> None:
    """Or they could never come back."""
    pipeline = latest_by_key(Kept(), "at-most-once", N)
    network = Network(pipeline, tmp_path, journals=True)
    await network.start(2)
    giver, new_owner = network.of("last")
    await network.until(lambda: giver.path.counts.processed > 100)
    before = len(new_owner.membership.owned())
    giver.orders.move()
    await network.until(lambda: len(new_owner.membership.owned()) > before and network.at_rest())
    assert giver.commits is not None
    await giver.commits.committed()
    network.kill(giver.me)
    await network.revive(giver.me)
    again = network.instances[giver.me]
    assert pump_of(again).processor.owned == again.membership.owned()
    await network.finish()
