"""Deaths at awkward moments: of sources that leave, of who has said goodbye, of newcomers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.protocol import events
from anabranch.protocol.states import Draining
from tests.runtime.network import Kept, Network

# Whoever is killed in the middle leaves sockets behind that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


async def test_a_source_that_leaves_and_dies_sends_what_it_held(tmp_path: Path) -> None:
    sink = Kept(delay_s=0.002)
    pipeline = ab.Pipeline("leaving")
    pipeline.source("numbers", ab.generate(int, count=20_000)).sink("out", sink)
    network = Network(pipeline, tmp_path, journals=True, credit_tuples=64)
    await network.start(instances=2)
    leaver = network.of("numbers")[1]
    await network.until(lambda: leaver.outbox.full)
    leaver.decide("leave", 1)
    await network.until(lambda: isinstance(leaver.core.state, Draining) and not leaver.outbox.empty)
    assert leaver.turns is not None
    await leaver.turns.committed()
    network.kill(leaver.me)
    sink.delay_s = 0.0
    await network.revive(leaver.me)
    await network.finish()
    found = Counter(sink.tuples)
    assert found.keys() == set(range(20_000))


async def test_a_newcomer_that_dies_and_hears_of_the_end_before_it_begins_ends(
    tmp_path: Path,
) -> None:
    sink = Kept(delay_s=0.0001)
    pipeline = ab.Pipeline("late")
    pipeline.source("numbers", ab.generate(int, count=20_000)).sink("out", sink)
    network = Network(pipeline, tmp_path, journals=True, credit_tuples=64)
    await network.start()
    await network.until(lambda: len(sink.tuples) > 100)
    (creator,) = network.of("numbers")
    child = await network._make(creator.me.operator, creator.me.number)
    network.kill(child)
    await network.revive(child)
    network.instances[child].end_input()
    creator.home.ask_for_children = lambda n, heritage: None  # type: ignore[method-assign]
    creator.feed(events.DuplicateDecided(1))
    creator.learn({child: network._addresses[child]})
    creator.children_ready(frozenset({child}))
    await network.finish()
    assert network.instances[child].context.life == 2
