"""Windows that end together, while successors are slow: in slices, within bounds, each once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.live.instance.instance import Instance
from tests.runtime.live.instance.test_keyed_watermarks import Spoken
from tests.runtime.moving import pump_of
from tests.runtime.network import Kept, Network

# What is killed in the middle leaves sockets behind that nothing closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

KEYS = 600
HELD_MAX = 50
LIMITS: dict[str, Any] = {
    "credit_tuples": 20,
    "batch_tuples_max": 10,
    "outbox_tuples_max": HELD_MAX,
    "slice_s": 0.0,  # each timer is a slice of its own
}


EVENTS = [*[(n, 1.0) for n in range(KEYS)], (0, 1e6)]


def burst(kept: Kept, source: Any) -> ab.Pipeline:
    """One window of each key, all of which end with the last tuple; then they are counted."""
    pipeline = ab.Pipeline("burst", groups=16)
    events = pipeline.source("events", source)
    timed = events.event_time(lambda event: event[1])
    ended = (
        timed.key_by(lambda event: event[0])
        .window(ab.tumbling(60))
        .aggregate("ended", ab.tally())
        .map("slow", lambda result: result)
    )
    ended.sink("out", kept)
    first = ended.filter("first", lambda result: result.start == 0)
    first.key_by(lambda _: 0).window(ab.tumbling(60), time=lambda r: r.start).aggregate(
        "all", ab.tally()
    ).sink("counted", ab.discard())
    return pipeline


def keys_of(kept: Kept) -> Counter[Any]:
    return Counter(result.key for result in kept.tuples if result.start == 0)


def is_in_the_middle(worker: Instance, kept: Kept, told: int) -> bool:
    return pump_of(worker).processor.lags and len(kept.tuples) >= told


async def begun(tmp_path: Path, kept: Kept) -> Network:
    network = Network(burst(kept, ab.items(EVENTS)), tmp_path, journals=True, **LIMITS)
    await network.start()
    return network


async def test_what_is_due_together_waits_for_room(tmp_path: Path) -> None:
    kept, most = Kept(0.0005), 0
    network = await begun(tmp_path, kept)
    (worker,) = network.of("ended")

    def all_told() -> bool:
        nonlocal most
        most = max(most, worker.path.outbox.held)
        return len(kept.tuples) >= KEYS

    await network.until(all_told)
    assert 0 < most <= HELD_MAX
    await network.finish()
    assert keys_of(kept) == Counter(range(KEYS))
    assert network.unbalanced() == []


async def test_a_death_in_the_middle_tells_no_window_twice_and_forgets_none(
    tmp_path: Path,
) -> None:
    kept = Kept(0.0005)
    network = await begun(tmp_path, kept)
    for told in (100, 300):
        (worker,) = network.of("ended")
        await network.until(lambda: is_in_the_middle(worker, kept, told))  # noqa: B023
        network.kill(worker.me)
        await network.revive(worker.me)
    await network.finish()
    assert keys_of(kept) == Counter(range(KEYS))
    assert network.unbalanced() == []


@pytest.mark.parametrize("action", ["duplicate", "move"])
async def test_groups_that_are_to_go_in_the_middle_are_told_of_first(
    tmp_path: Path, action: str
) -> None:
    """So no window in their state was due before what the new owner has said (W4)."""
    kept, source = Kept(0.0005), Spoken()
    network = Network(burst(kept, source), tmp_path, journals=True, **LIMITS)
    await network.start()
    if action == "move":
        network.of("ended")[0].orders.decide("duplicate", 1)
        await network.until(lambda: len(network.of("ended")) == 2 and network.at_rest())
    workers = network.of("ended")
    source.say(*EVENTS)
    await network.until(lambda: any(is_in_the_middle(w, kept, 50) for w in workers))
    owned = workers[0].membership.owned()
    workers[0].orders.decide(action, 1)
    for worker in workers:
        worker.path.watermarks.pass_on()  # as when groups that come are in
    processors = [pump_of(worker).processor for worker in workers]
    frozen_early = list[bool]()

    def told() -> bool:
        frozen_early.extend(bool(p.frozen) for p in processors if p.lags)
        return not any(p.lags for p in processors)

    await network.until(told)
    await network.until(lambda: network.at_rest() and workers[0].membership.owned() < owned)
    source.end()
    await network.finish()
    assert not any(frozen_early)
    assert keys_of(kept) == Counter(range(KEYS))
    assert late_results(network) == 0
    assert network.unbalanced() == []


def late_results(network: Network) -> int:
    """Of windows, where windows are made of them: the watermark went before them."""
    behind = [i for i in network.instances.values() if i.me.operator == "all"]
    return sum(pump_of(i).processor.late.total() for i in behind)
