"""Results that several operators use, and that cannot be sent to some of them: each is accounted
for once per operator, over deaths too."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.reporting.ledger import settle
from tests.runtime.network import Kept, Network
from tests.runtime.virtual_time import in_virtual_time

# An instance that is killed in the middle leaves sockets behind that are never closed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

N = 3_000
BAD = frozenset(range(7, N, 50))
ODD_BAD = frozenset(n for n in BAD if n % 2)


def first_key(n: int) -> Any:
    return [n] if n in BAD else n % 3


def second_key(n: int) -> Any:
    if n in ODD_BAD:
        raise ValueError(n)
    return n % 5


def pipeline_of() -> tuple[ab.Pipeline, dict[str, Kept]]:
    """`plain` gets all, `first` those whose key can be one, `second` those that have a key."""
    pipeline, kept = ab.Pipeline("branches"), {n: Kept() for n in ("plain", "first", "second")}
    numbers = pipeline.source("numbers", ab.items(range(N)))
    stream = numbers.map("same", lambda n: n, scale=ab.Scale(max_instances=3))
    stream.key_by(first_key).fold("ones", 0, lambda n, _: n + 1).sink("first", kept["first"])
    stream.key_by(second_key).fold("twos", 0, lambda n, _: n + 1).sink("second", kept["second"])
    stream.sink("plain", kept["plain"])
    return pipeline, kept


@in_virtual_time
async def test_what_dies_on_its_way_to_one_or_two_of_three_operators_is_counted_once_for_each(
    tmp_path: Path,
) -> None:
    pipeline, kept = pipeline_of()
    network = Network(pipeline, tmp_path)
    await network.start()
    await network.finish()
    assert network.unbalanced() == []
    assert Counter(kept["plain"].tuples) == Counter(range(N))
    assert len(kept["first"].tuples) == N - len(BAD)
    assert len(kept["second"].tuples) == N - len(ODD_BAD)
    ledger = settled(network, pipeline)
    assert (ledger.lost, ledger.duplicated, ledger.balanced) == (0, 0, True)
    assert ledger.dead_letters == len(BAD) + len(ODD_BAD)


@in_virtual_time
async def test_what_died_on_its_way_is_still_counted_once_when_its_instance_dies(
    tmp_path: Path,
) -> None:
    pipeline, _ = pipeline_of()
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    (same,) = network.of("same")
    for least in (20, 40):
        await network.until(partial(has_buried, network, least))
        await network.die_and_go_on([same.me])
        await network.until(lambda: bool(network.of("same")))
    await network.finish()
    assert network.deaths == 2
    assert network.unbalanced() == []
    ledger = settled(network, pipeline)
    assert (ledger.faults, ledger.balanced) == ([], True)
    assert ledger.dead_letters == len(BAD) + len(ODD_BAD)


@in_virtual_time
async def test_what_cannot_be_sent_at_all_dies_once_for_each_operator(tmp_path: Path) -> None:
    pipeline, kept = ab.Pipeline("locks"), [Kept(), Kept()]
    numbers = pipeline.source("numbers", ab.items(range(100)))
    locks = numbers.map("lock", lambda n: threading.Lock() if n % 10 == 7 else n)
    for n in range(2):
        locks.sink(f"out{n}", kept[n])
    network = Network(pipeline, tmp_path)
    await network.start()
    await network.finish()
    assert [len(one.tuples) for one in kept] == [90, 90]
    assert network.unbalanced() == []
    ledger = settled(network, pipeline)
    assert (ledger.balanced, ledger.dead_letters) == (True, 20)


def has_buried(network: Network, least: int) -> bool:
    (same,) = network.of("same")
    return same.path.counts.dead_beside >= least


def settled(network: Network, pipeline: ab.Pipeline) -> Any:
    edges = sorted(pipeline.topology.edges)
    return settle(network.final, edges, list(map(str, pipeline.operators)))
