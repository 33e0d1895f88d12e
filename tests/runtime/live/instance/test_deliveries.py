"""Each kind of delivery does what it says when instances die: lose nothing, or double nothing."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import anabranch as ab
from tests.runtime.network import Kept, Network
from tests.runtime.virtual_time import in_virtual_time

# Whoever is killed in the middle leaves sockets behind that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

N = 60_000


@pytest.fixture(autouse=True)
def leave_nothing_to_others() -> Iterator[None]:
    """Those sockets are found here, and not in the test that comes next."""
    yield
    gc.collect()


def chain(out: Path, delivery: str) -> ab.Pipeline:
    pipeline = ab.Pipeline("chain", delivery=delivery)  # type: ignore[arg-type]
    numbers = pipeline.source("numbers", ab.generate(lambda i: i, count=N))
    doubled = numbers.map("double", lambda n: 2 * n, scale=ab.Scale(max_instances=4))
    doubled.filter("some", lambda n: n % 3 != 0).sink("out", ab.jsonl(out))
    return pipeline


async def results_of(network: Network, out: Path) -> Counter[int]:
    """What arrives although somebody dies every few milliseconds."""
    await network.start()
    while network.deaths < 8 and (mortals := network.mortals()):
        network.decide("double", network.rng.choice(["duplicate", "leave"]))
        me = network.rng.choice(mortals)
        network.kill(me)
        await asyncio.sleep(0.005)
        await network.revive(me)
    await network.finish(60)
    return written(out)


def written(out: Path) -> Counter[int]:
    return Counter(map(int, out.read_text().splitlines()))


EXPECTED = Counter(2 * n for n in range(N) if 2 * n % 3 != 0)


@pytest.mark.parametrize("seed", range(3))
@in_virtual_time
async def test_at_least_once_loses_nothing(tmp_path: Path, seed: int) -> None:
    out = tmp_path / "out.jsonl"
    network = Network(chain(out, "at-least-once"), tmp_path, journals=True)
    network.rng.seed(seed)
    found = await results_of(network, out)
    assert not EXPECTED - found
    assert network.deaths


def windows(sink: Kept, letters: Path) -> ab.Pipeline:
    pipeline = ab.Pipeline("windows", delivery="at-least-once", dead_letters=letters)
    numbers = pipeline.source("numbers", ab.items(range(20_000))).event_time(float)
    keyed = numbers.map("same", lambda n: n).key_by(lambda n: n % 7)
    keyed.window(ab.tumbling(100.0), time=float).aggregate("count", ab.tally()).sink("out", sink)
    return pipeline


WHOLE_WINDOWS = Counter((n % 7, float(n // 100 * 100)) for n in range(20_000))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how_many", ["one", "all"])
@in_virtual_time
async def test_at_least_once_leaves_nothing_out_of_windows(
    tmp_path: Path, seed: int, how_many: str
) -> None:
    """A window is made of tuples that are long acknowledged: nobody sends them again."""
    sink = Kept()
    network = Network(windows(sink, tmp_path / "dead.jsonl"), tmp_path, journals=True)
    network.rng.seed(seed)
    await network.start()

    def got_on(deaths: int) -> bool:
        return len(sink.tuples) > 100 * deaths or not network.mortals()

    for deaths in range(6):
        await network.until(partial(got_on, deaths))
        mortals = network.mortals()
        for me in mortals if how_many == "all" else network.rng.choices(mortals):
            network.kill(me)
            if how_many == "one":
                await network.revive(me)
        if how_many == "all":
            for me in mortals:
                await network.revive(me)
    await network.finish(60)
    assert network.deaths >= 6
    assert not (tmp_path / "dead.jsonl").exists()  # nothing came too late
    largest = Counter[tuple[int, float]]()
    for result in sink.tuples:
        window = result.key, result.start
        largest[window] = max(largest[window], result.value)
    assert not WHOLE_WINDOWS - largest


@pytest.mark.parametrize("seed", range(3))
@in_virtual_time
async def test_at_most_once_doubles_nothing(tmp_path: Path, seed: int) -> None:
    out = tmp_path / "out.jsonl"
    network = Network(chain(out, "at-most-once"), tmp_path, journals=True)
    network.rng.seed(seed)
    found = await results_of(network, out)
    assert not found - EXPECTED
    assert network.deaths


@pytest.mark.parametrize("seed", range(3))
@in_virtual_time
async def test_effectively_once_does_neither(tmp_path: Path, seed: int) -> None:
    out = tmp_path / "out.jsonl"
    network = Network(chain(out, "effectively-once"), tmp_path, journals=True)
    network.rng.seed(seed)
    found = await results_of(network, out)
    assert found == EXPECTED
    assert network.unbalanced() == []
    assert network.deaths


@in_virtual_time
async def test_what_dies_with_a_process_is_lost_or_done_twice_where_that_is_allowed(
    tmp_path: Path,
) -> None:
    """Else the promises would cost what they need not."""
    found = {}
    for delivery in ("at-least-once", "at-most-once"):
        folder = tmp_path / delivery
        folder.mkdir()
        out = folder / "out.jsonl"
        network = Network(chain(out, delivery), folder, journals=True)
        results = Counter[int]()
        for seed in range(6):
            network.rng.seed(seed)
            results = await results_of(network, out)
            if results != EXPECTED:
                break
            network = Network(chain(out, delivery), folder / str(seed), journals=True)
            (folder / str(seed)).mkdir()
            out.unlink()
        found[delivery] = results
    assert sum((found["at-least-once"] - EXPECTED).values()) > 0
    assert sum((EXPECTED - found["at-most-once"]).values()) > 0
