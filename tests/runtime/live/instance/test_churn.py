"""Instances come and go for weeks: what is kept does not depend on how many there ever were."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.live.agent import finals, recorder
from anabranch.runtime.live.agent.launch import Run
from anabranch.runtime.live.channel import totals
from anabranch.runtime.live.channel.ended import has_mark, leave_mark, mark_all
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.reporting.ledger import settle
from tests.runtime import fake_instance as fake
from tests.runtime.agent_runs import finish, start, until
from tests.runtime.fake_instance import Endless, Fake, three_operators
from tests.runtime.network import Kept, Network
from tests.runtime.tables import grown, sizes
from tests.runtime.virtual_time import in_virtual_time

FIRST, LAST = 20, 70
"""So many instances have gone when tables are compared."""
KEYS = 7


def itself(n: int) -> int:
    return n


@pytest.fixture
def few_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what is kept of the latest is full before the first look."""
    monkeypatch.setattr(totals, "LATEST_MAX", 8)
    monkeypatch.setattr(finals, "LATEST_MAX", 8)
    monkeypatch.setattr(recorder, "CAPACITIES_MAX", 8)
    monkeypatch.setattr(recorder, "EVENTS_FIRST", 8)
    monkeypatch.setattr(recorder, "ROWS_MAX", 16)


async def churn(network: Network, gone: int) -> None:
    """Until so many have left; then two instances of the operator are there, at rest."""
    deadline_s = 120
    async with asyncio.timeout(deadline_s):
        while network.notes["left"] < gone or len(network.of("work")) != 2:
            at_most = 2 if network.notes["left"] >= gone else 4
            network.decide("work", "leave" if len(network.of("work")) > at_most else "duplicate")
            await network.until(network.at_rest)


def sockets(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_socket()]


def plain(pipeline: ab.Pipeline) -> None:
    numbers = pipeline.source("numbers", ab.generate(itself, rate=2_000, duration_s=600))
    numbers.map("work", itself, scale=ab.Scale(max_instances=8)).sink("out", Kept())


def keyed(pipeline: ab.Pipeline) -> None:
    numbers = pipeline.source("numbers", ab.generate(itself, rate=2_000, duration_s=600))
    by_key = numbers.key_by(lambda n: n % KEYS)
    work = by_key.fold("work", 0, lambda before, _: before + 1, scale=ab.Scale(max_instances=8))
    work.sink("out", Kept())


def those_that_stay(network: Network) -> dict[str, Counter[str]]:
    return {name: sizes(network.of(name)[0]) for name in ("numbers", "out")}


@pytest.mark.parametrize("build", [plain, keyed])
@pytest.mark.usefixtures("few_kept")
@in_virtual_time
async def test_an_instance_that_stays_keeps_nothing_of_neighbours_that_have_gone(
    tmp_path: Path, build: Callable[[ab.Pipeline], None]
) -> None:
    pipeline = ab.Pipeline("churn")
    build(pipeline)
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    await churn(network, FIRST)
    before = those_that_stay(network)
    await churn(network, LAST)
    after = those_that_stay(network)
    assert [sizes(instance)["ExpectedState._tokens"] for instance in network.of("work")] == [0, 0]
    for instance in network.of("numbers"):
        instance.pump.end_input()
    await network.finish(60)
    assert {name: grown(before[name], after[name]) for name in before} == {"numbers": {}, "out": {}}
    found = settle(network.final, [("numbers", "work"), ("work", "out")], [*pipeline.operators])
    assert found.balanced, found.faults
    assert found.channels > LAST


@pytest.mark.usefixtures("few_kept")
@in_virtual_time
async def test_an_incarnation_that_goes_on_knows_the_sums_of_the_one_before(tmp_path: Path) -> None:
    pipeline = ab.Pipeline("churn")
    plain(pipeline)
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    for gone in (12, 24):  # twice, since only the second finds a snapshot that has sums
        await churn(network, gone)
        for me in [network.of(name)[0].me for name in ("numbers", "out")]:
            network.kill(me)
            await network.revive(me)
    await churn(network, 30)
    ends = [network.of(name)[0] for name in ("numbers", "out")]
    assert all(len(i.neighbourhood.book) < 10 for i in ends)
    ends[0].pump.end_input()
    await network.finish(60)
    found = settle(network.final, [("numbers", "work"), ("work", "out")], [*pipeline.operators])
    assert found.balanced, found.faults
    assert any(final.sent_before for final in network.final)
    assert sockets(tmp_path) == []


@pytest.mark.usefixtures("usual_behaviour", "few_kept")
def test_an_agent_keeps_nothing_of_instances_that_have_gone() -> None:
    def come_and_go(me: Fake) -> None:
        if me.id.number == 0:
            while not (me.run_dir / "lines.0.gone").exists():
                me.say(msg.Spawn(request=1, n=1))
                me.obey(me.expect(msg.Spawned))
                me.hear(fake.POLL_S)
            return
        me.wait_to_be_started()
        me.status(capacity=5.0)
        me.gone(leaves=1)

    fake.BEHAVIOUR["work"] = come_and_go
    run = start(three_operators(Endless(), max_instances=4), warm=4)
    until(lambda: run.snapshot().operator("work").leaves >= FIRST)
    before = agent_of(run)
    until(lambda: run.snapshot().operator("work").leaves >= LAST)
    until(lambda: grown(before, agent_of(run)) == {})  # some of it is forgotten now and then
    run.end_input()
    report = finish(run)
    work = report.operator("work")
    assert work.leaves == work.joins
    assert work.instances_ever == work.joins + 1
    assert report.ok


def agent_of(run: Run) -> Counter[str]:
    """What its agent keeps, counted by itself between two steps."""
    agent, loop = run._agent, run._loop
    assert agent is not None
    assert loop is not None

    async def look() -> Counter[str]:
        return sizes(agent)

    return asyncio.run_coroutine_threadsafe(look(), loop).result(60)


# -- marks -----------------------------------------------------------------------------------------


def work(number: int) -> InstanceId:
    return InstanceId(OperatorName("work"), number, 3)


def marked(folder: Path, below: int = 12) -> list[int]:
    return [number for number in range(below) if has_mark(folder, work(number))]


def test_a_mark_is_one_byte_and_disturbs_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "ended"
    assert marked(folder) == []
    for number in (7, 2):
        leave_mark(folder, work(number))
    assert marked(folder) == [2, 7]
    assert not has_mark(folder, InstanceId(OperatorName("other"), 2))
    assert [(p.name, p.stat().st_size) for p in folder.iterdir()] == [("work", 8)]


def test_all_who_have_ended_are_marked_again_and_those_who_live_keep_what_they_said(
    tmp_path: Path,
) -> None:
    leave_mark(tmp_path, work(3))
    mark_all(tmp_path, "work", 10, [2, 3, 9])
    assert marked(tmp_path) == [0, 1, 3, 4, 5, 6, 7, 8]
    mark_all(tmp_path, "none", 0, [])
    assert not has_mark(tmp_path, InstanceId(OperatorName("none"), 0))
