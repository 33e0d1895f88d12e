"""At most once, a new owner of key groups that dies goes on, whatever of their state had come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.moving import latest_by_key, pump_of
from tests.runtime.network import Kept, Network
from tests.runtime.virtual_time import in_virtual_time

# Whoever is killed in the middle leaves sockets behind that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

N = 3_000


@pytest.mark.parametrize("put_in", [0, 1, 4, 9])
@in_virtual_time
async def test_a_new_owner_that_dies_when_a_part_of_the_state_has_come_begins_without_it(
    put_in: int, tmp_path: Path
) -> None:
    """All of it comes, and the core calls the groups its own; so much is put in, and the rest
    comes again, to a later incarnation that has lost what was put in."""
    sink = Kept()
    pipeline = latest_by_key(sink, "at-most-once", N)
    network = Network(pipeline, tmp_path, journals=True, state_chunk_bytes=60)
    await network.start(2)
    giver, new_owner = network.of("last")
    await network.until(lambda: giver.path.counts.processed > 300)
    pump, came = pump_of(new_owner), 0
    install = pump.groups.install

    def install_some(chunk: bytes, then: Callable[[], None]) -> None:
        nonlocal came
        came += 1
        if came <= put_in:
            install(chunk, then)

    pump.groups.install = install_some  # type: ignore[method-assign]
    pump.groups.expected._complete = lambda groups, then: None
    before = len(new_owner.membership.owned())
    giver.orders.move()
    await network.until(lambda: len(new_owner.membership.owned()) > before)
    assert came > 10
    seen = new_owner.path.counts.tuples_in
    await network.until(lambda: new_owner.path.counts.tuples_in > seen + 100)
    assert new_owner.commits is not None
    await new_owner.commits.committed()
    network.kill(new_owner.me)
    await network.revive(new_owner.me)
    await network.finish()
    found = [n for _, n in sink.tuples]
    assert len(found) == len(set(found))
    again = pump_of(network.instances[new_owner.me]).processor
    assert not again.pended
