"""Long commits, made so by what the last one had to tell, hold up nobody who must not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.runtime.live.commit import commits
from anabranch.runtime.live.commit.commits import Commits
from anabranch.runtime.live.instance import key_groups
from anabranch.runtime.live.instance.instance import Instance
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.ports.clock import pause
from tests.runtime.live.commit.test_commits import Kept as KeptTurns
from tests.runtime.live.instance.test_keyed_watermarks import Spoken
from tests.runtime.network import Kept, Network
from tests.runtime.processes import PATIENCE_S, eventually
from tests.runtime.virtual_time import in_virtual_time

CREDIT = 64
ENDLESS_S = 3600.0
OUTCOMES = {"duplicate": "joined", "leave": "left", "move": "moved"}


def be_endless(monkeypatch: pytest.MonkeyPatch, *instances: Instance) -> None:
    """From now on nothing of their commits is worth a commit, unless it must not wait."""
    usual = Commits._tell_changes

    def tell(me: Commits) -> None:
        usual(me)
        if me in endless:
            me.timer.not_before = asyncio.get_running_loop().time() + ENDLESS_S

    endless = [i.commits for i in instances]
    monkeypatch.setattr(Commits, "_tell_changes", tell)
    for instance in instances:
        assert instance.commits is not None
        instance.commits.timer.not_before = asyncio.get_running_loop().time() + ENDLESS_S


def be_usual(monkeypatch: pytest.MonkeyPatch, network: Network) -> None:
    monkeypatch.undo()
    for instance in network.instances.values():
        assert instance.commits is not None
        instance.commits.end()


def counting(source: Spoken, kept: Kept) -> Pipeline:
    pipeline = Pipeline("counting", groups=8)
    numbers = pipeline.source("numbers", source).key_by(lambda n: n % 50)
    scale = Scale(max_instances=8)
    numbers.fold("count", 0, lambda n, _: n + 1, scale=scale).sink("kept", kept)
    return pipeline


@pytest.mark.parametrize("action", OUTCOMES)
@in_virtual_time
async def test_an_operation_on_the_graph_waits_for_no_long_commit(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_groups, "CHUNKS_UNDER_WAY_MAX", 2)
    source, kept = Spoken(), Kept()
    network = Network(counting(source, kept), tmp_path, journals=True, state_chunk_bytes=100)
    await network.start(2)
    source.say(*range(100))
    await network.until(lambda: len(kept.tuples) == 100)
    with pytest.MonkeyPatch.context() as patch:
        be_endless(patch, *network.of("count"))
        network.of("count")[-1].orders.decide(action, 1)
        await network.until(lambda: network.notes[OUTCOMES[action]] > 0)
        be_usual(patch, network)
    source.say(*range(100))
    source.end()
    await network.finish()
    assert sorted(kept.tuples) == sorted((n % 50, 1 + n // 50) for n in range(200))


@in_virtual_time
async def test_who_is_stopped_by_results_that_nobody_takes_yet_sends_what_there_is_credit_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, kept = Spoken(), Kept()
    pipeline = Pipeline("many", groups=8)
    numbers = pipeline.source("numbers", source).key_by(lambda n: n)
    many = numbers.process("many", lambda _key, _state, n: [n] * (20 * CREDIT), state=dict)
    many.sink("kept", kept)
    limits = {"credit_tuples": CREDIT, "outbox_tuples_max": CREDIT}
    network = Network(pipeline, tmp_path, journals=True, **limits)
    await network.start()
    be_endless(monkeypatch, *network.of("many"))
    source.say(1, 2)
    await network.until(lambda: len(kept.tuples) > 18 * CREDIT)
    be_usual(monkeypatch, network)
    source.end()
    await network.finish()
    assert len(kept.tuples) == 40 * CREDIT


@pytest.mark.parametrize("power", [False, True])
@in_virtual_time
async def test_a_commit_that_begins_while_the_last_one_is_made_safe_can_be_ended_too(
    tmp_path: Path, power: bool
) -> None:
    kept = KeptTurns(tmp_path / "a.journal", power=power)
    await kept.begin()
    while kept.commits.snapshot.under_way:
        await kept.commits.committed()
    kept.value = 1
    kept.commits._commit()
    assert (kept.commits._pausing is not None) is power
    kept.commits.timer.not_before = asyncio.get_running_loop().time() + ENDLESS_S
    kept.value = 2
    kept.commits.want(now=True)
    kept.commits.end_if_awaited()
    await eventually(lambda: kept.written == {"core": 2, "ahead": 2})
    kept.commits.abandon()


@in_virtual_time
async def test_who_can_do_nothing_else_has_the_commit_ended(tmp_path: Path) -> None:
    kept = KeptTurns(tmp_path / "a.journal")
    await kept.begin()
    kept.commits.timer.not_before = asyncio.get_running_loop().time() + ENDLESS_S
    async with asyncio.timeout(PATIENCE_S):
        await kept.commits.committed(at_once=True)
    kept.commits.timer.not_before = asyncio.get_running_loop().time() + ENDLESS_S
    async with asyncio.timeout(PATIENCE_S):
        await kept.commits.close()


@pytest.mark.parametrize(("telling_s", "in_a_turn"), [(0.0, 1), (1.0, 4)])
@in_virtual_time
async def test_a_snapshot_is_drawn_for_as_long_as_it_took_to_tell_what_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, telling_s: float, in_a_turn: int
) -> None:
    clock, drawn = [0.0], [0]

    def snapshots() -> Iterator[tuple[str, bytes]]:
        for _ in range(20):
            clock[0] += 0.25
            drawn[0] += 1
            yield "keys", b"piece"

    def ending() -> None:
        clock[0] += telling_s
        before.append(drawn[0])

    monkeypatch.setattr("anabranch.runtime.ports.clock.thread_s", lambda: clock[0])
    monkeypatch.setattr(commits, "TURN_S_MAX", 0.0)
    before: list[int] = []
    kept = KeptTurns(tmp_path / "a.journal")
    kept.snapshots, kept.ending = snapshots, ending
    await kept.begin()
    while kept.commits.snapshot.under_way:
        await kept.commits.committed()
    assert before[:4] == [0, in_a_turn, 2 * in_a_turn, 3 * in_a_turn]
    assert drawn == [20]
    kept.commits.abandon()


@in_virtual_time
async def test_what_telling_takes_is_part_of_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(counting(Spoken(), Kept()), tmp_path, journals=True)
    await network.start()
    (count,) = network.of("count")
    pump: Any = count.pump
    busy: list[float] = []
    monkeypatch.setattr(pump.processor, "tell", lambda: pause(0.02))
    monkeypatch.setattr(count.path.meter, "processed", lambda _, busy_s: busy.append(busy_s))
    pump.tell(count.commits)
    assert busy[-1] == pytest.approx(0.02)
    monkeypatch.undo()
    await network.abandon()
