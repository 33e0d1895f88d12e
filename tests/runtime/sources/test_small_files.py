"""Thousands of small files: each line comes once, whoever joins, leaves or dies meanwhile."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import anabranch as ab
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.live.agent.boards import Boards, InputChanged
from anabranch.runtime.live.commit.recovery import Past, read_past
from anabranch.runtime.live.instance import claims
from anabranch.runtime.live.instance.source_pump import SourcePump
from anabranch.runtime.live.link.messages import SplitAnswer
from tests.anabranch.slow_runs import WAIT, command, slowly, wait_until_lines
from tests.runtime.network import Kept, Network
from tests.runtime.processes import PATIENCE_S
from tests.runtime.virtual_time import in_virtual_time

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

FILES = 3_000
PER_FILE = 2
EXPECTED = Counter(str(n) for n in range(FILES * PER_FILE))


@pytest.fixture(autouse=True)
def leave_nothing_to_others() -> Iterator[None]:
    """Sockets of those that died are found here, and not in the test that comes next."""
    yield
    gc.collect()


def make_files(folder: Path, count: int = FILES) -> Path:
    folder.mkdir()
    for n in range(count):
        numbers = range(n * PER_FILE, (n + 1) * PER_FILE)
        (folder / f"{n:05}.txt").write_text("".join(f"{i}\n" for i in numbers))
    return folder


def network_over(folder: Path, delivery: str = "effectively-once") -> tuple[Network, Kept]:
    pipeline = ab.Pipeline("small", delivery=delivery)  # type: ignore[arg-type]
    sink = Kept()
    lines = pipeline.source("lines", ab.files(make_files(folder / "in")))
    lines.map("same", str, scale=ab.Scale(max_instances=4)).sink("out", sink)
    return Network(pipeline, folder, journals=True, batch_tuples_max=16), sink


@pytest.mark.parametrize("seed", range(2))
@in_virtual_time
async def test_every_line_comes_once_through_joins_leaves_and_deaths(
    tmp_path: Path, seed: int
) -> None:
    network, sink = network_over(tmp_path)
    network.rng.seed(seed)
    await network.start(instances=2)
    while network.deaths < 20 and (sources := network.mortals("lines")):
        network.decide("lines", network.rng.choice(["duplicate", "leave"]))
        await network.die_and_go_on([network.rng.choice(sources)])
        await asyncio.sleep(0.002)
    await network.finish(60)
    assert network.deaths == 20
    assert network.notes["left"] > 0
    assert Counter(sink.tuples) == EXPECTED


@in_virtual_time
async def test_the_journal_has_the_files_of_a_group_once_and_not_when_they_are_read(
    tmp_path: Path,
) -> None:
    network, sink = network_over(tmp_path)
    await network.start()
    await network.finish(60)
    assert Counter(sink.tuples) == EXPECTED
    path = tmp_path / "lines.0.journal"
    past = read_past(path, power=False, owner="lines.0", must_be=False)
    assert past is not None
    assert past.lasting["splits"] == {}


def test_a_split_of_an_earlier_incarnation_is_kept_for_the_incarnations_after_this_one() -> None:
    kept: dict[tuple[str, int], bytes] = {}
    commits: Any = SimpleNamespace(keep=lambda *entry: kept.update({entry[:2]: entry[2]}))
    claimed = claims.ClaimedSplit(7, {"list": b"x", "at": 0}, {"list": b"x", "at": 3})
    claims.keep(commits, claimed)
    past = Past(lasting={claims.SPLITS: {7: kept.pop((claims.SPLITS, 7))}})
    assert claims.restore(commits, claims.place_of(claimed), past) == claimed
    assert kept == {(claims.SPLITS, 7): past.lasting[claims.SPLITS][7]}


@in_virtual_time
async def test_at_least_once_what_is_not_safe_of_groups_is_read_again(tmp_path: Path) -> None:
    network, sink = network_over(tmp_path, "at-least-once")
    await network.start()
    for _ in range(5):
        had = len(sink.tuples)
        await network.until(lambda had=had: len(sink.tuples) > had + 200)  # type: ignore[misc]
        await network.die_and_go_on(network.mortals("lines"))
    pump = network.of("lines")[0].pump
    assert isinstance(pump, SourcePump)
    await network.finish(60)
    assert set(sink.tuples) == set(EXPECTED)


def test_a_changed_file_of_a_group_is_named_when_a_run_is_resumed(tmp_path: Path) -> None:
    folder, me = make_files(tmp_path / "in", 300), InstanceId(OperatorName("lines"), 0, -1)
    pipeline = ab.Pipeline("small")
    pipeline.source("lines", ab.files(folder)).sink("out", ab.discard())
    before = Boards(pipeline, lambda *_: None, lambda _: None)
    claimed = first_group(before, me)
    os.utime(folder / "00064.txt", ns=(1, 1))
    after = Boards(pipeline, lambda *_: None, lambda _: None)
    for _ in range(claimed.number - 1):
        after.claim(me)
        after.release(me, None, 0.0, 0)
    assert claimed.split is not None
    with pytest.raises(InputChanged, match=r"where \(path '[^']*/00064.txt', file") as error:
        after.claim_again(me, claimed.split, claimed.number)
    assert len(str(error.value)) < 1_000


def first_group(boards: Boards, me: InstanceId) -> SplitAnswer:
    while "list" not in ((answer := boards.claim(me)).split or {}):
        boards.release(me, None, 0.0, 0)
    return answer


SLOW = f"""{WAIT}
    import anabranch as ab

    pipeline = ab.Pipeline("slow")
    lines = pipeline.source("lines", ab.files("in"), scale=ab.Scale(min_instances=2))
    lines.map("wait", wait, scale=ab.Scale(min_instances=2)).sink("out", ab.jsonl("out.jsonl"))
"""


def test_a_run_that_is_killed_within_groups_goes_on_there(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(textwrap.dedent(SLOW))
    make_files(tmp_path / "in")
    with slowly(tmp_path):
        for part in range(2):
            with command(tmp_path, "--state", "kept", *["--resume"] * part) as killed:
                wait_until_lines(killed, tmp_path / "out.jsonl", 150 * (part + 1))
                killed.kill()
    with command(tmp_path, "--state", "kept", "--resume") as resumed:
        told = resumed.communicate(timeout=PATIENCE_S)[0]
    assert resumed.returncode == 0, told
    results = (tmp_path / "out.jsonl").read_text().splitlines()
    assert Counter(str(json.loads(line)) for line in results) == EXPECTED
