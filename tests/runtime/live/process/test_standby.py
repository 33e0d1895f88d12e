"""The process that all others are forked from may be killed: its standby takes over."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch.runtime.live.agent.launch import Run
from anabranch.runtime.live.process.forker import Forker
from anabranch.runtime.live.process.process import Process
from anabranch.runtime.live.process.processes import ForkError
from anabranch.runtime.live.process.template_process import fork_template
from tests.runtime import fake_instance as fake
from tests.runtime.agent_runs import failure_of, finish, pids_with_standby, start, until
from tests.runtime.fake_instance import Endless, three_operators
from tests.runtime.processes import (
    LINUX,
    PATIENCE_S,
    alive,
    eventually,
    kill_template_and_standby,
    name_of,
    private_kib,
    program,
    still_alive_after,
)

pytestmark = [
    pytest.mark.usefixtures("usual_behaviour"),
    pytest.mark.skipif(not LINUX, reason="only Linux can name a process for certain"),
]

STANDBY_PRIVATE_KIB_MAX = 4096


# -- the agent's side alone ------------------------------------------------------------------


class Made:
    """A forker and what has happened to its parents."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self.followed = 0
        parent = fork_template(three_operators(), fake.ENTRY)
        self.forker = Forker(parent, lambda _name, _line: None, self.lost.append, self._follow)
        self.pids: set[int] = set()

    def _follow(self) -> None:
        self.followed += 1

    async def standby(self) -> int:
        """Waits until there is one."""
        await eventually(lambda: self.forker.standby_pid is not None)
        assert self.forker.standby_pid is not None
        await eventually(lambda: name_of(self.forker.standby_pid or 0) == "ab:standby")
        self.pids |= set(self.forker.pids)
        return self.forker.standby_pid

    async def succeed(self) -> None:
        """Kill the parent, and wait until its standby has its place and a standby of its own."""
        standby = await self.standby()
        os.kill(self.forker.parent_pid, signal.SIGKILL)
        await eventually(lambda: self.forker.parent_pid == standby)
        await self.standby()


@asynccontextmanager
async def made() -> AsyncIterator[Made]:
    one = Made()
    try:
        await one.forker.start(PATIENCE_S)
        one.forker.keep_standby()
        yield one
    finally:
        one.pids |= set(one.forker.pids)
        await one.forker.stop()
        assert not [pid for pid in one.pids if alive(pid)]


async def exit_code(process: Process) -> int:
    return await asyncio.wait_for(asyncio.shield(process.exited), PATIENCE_S)


async def test_a_standby_takes_over_and_makes_the_next_one() -> None:
    async with made() as one:
        for number in range(1, 4):
            await one.succeed()
            assert (one.followed, one.lost) == (number, [])
            assert name_of(one.forker.parent_pid) == "ab:template"


async def test_children_end_with_their_parent_and_the_next_ones_come_from_its_standby() -> None:
    async with made() as one:
        before = await one.forker.fork()
        await one.succeed()
        assert await exit_code(before) == -signal.SIGKILL
        assert before.orphan_wait
        after = await one.forker.fork()
        one.forker.kill(after)
        assert await exit_code(after) == -signal.SIGKILL
        assert not after.orphan_wait


async def test_a_child_that_does_not_die_with_its_parent_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.runtime.live.process.orphan_wait.PATIENCE_S", 0.05)
    monkeypatch.setattr(
        "anabranch.runtime.live.process.orphans.die_with_parent", lambda _parent: None
    )
    async with made() as one:
        before = await one.forker.fork()
        await one.succeed()
        assert await exit_code(before) == -signal.SIGKILL


async def test_forks_that_the_parent_has_not_answered_are_made_by_its_standby() -> None:
    async with made() as one:
        await one.standby()
        os.kill(one.forker.parent_pid, signal.SIGSTOP)
        asked = [asyncio.create_task(one.forker.fork()) for _ in range(3)]
        await asyncio.sleep(0)
        os.kill(one.forker.parent_pid, signal.SIGKILL)
        processes = await asyncio.wait_for(asyncio.gather(*asked), PATIENCE_S)
        assert all(alive(p.pid) and not p.orphan_wait for p in processes)


async def test_a_standby_that_is_killed_is_replaced() -> None:
    async with made() as one:
        standby = await one.standby()
        os.kill(standby, signal.SIGKILL)
        await eventually(lambda: one.forker.standby_pid not in (standby, None))
        await one.succeed()
        assert one.lost == []


async def test_standbys_that_are_killed_again_and_again_are_replaced_without_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.runtime.live.process.standby.SOUND_S", 0.0)
    monkeypatch.setattr("anabranch.runtime.live.process.standby.RETRY_MAX_S", 1000.0)
    async with made() as one:
        for _ in range(12):
            standby = await one.standby()
            os.kill(standby, signal.SIGKILL)
            await eventually(lambda: one.forker.standby_pid not in (standby, None))  # noqa: B023


async def test_a_standby_that_cannot_be_made_for_lack_of_files_is_made_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    socketpair, refused = socket.socketpair, list[bool]()

    def refuse_twice() -> tuple[socket.socket, socket.socket]:
        if len(refused) < 2:
            refused.append(True)
            raise OSError(errno.EMFILE, "Too many open files")
        return socketpair()

    async with made() as one:
        standby = await one.standby()
        monkeypatch.setattr(socket, "socketpair", refuse_twice)
        os.kill(standby, signal.SIGKILL)
        await eventually(lambda: one.forker.standby_pid not in (standby, None))
        assert len(refused) == 2
        await one.standby()


async def test_without_a_standby_and_another_parent_the_loss_of_the_parent_is_the_end() -> None:
    async with made() as one:
        await one.standby()
        kill_template_and_standby(one.forker.pids)
        await eventually(lambda: one.lost)
        assert one.lost == ["the process that all others are forked from is gone"]
        with pytest.raises(ForkError, match="has ended"):
            await one.forker.fork()


async def test_a_standby_has_little_memory_of_its_own() -> None:
    async with made() as one:
        assert private_kib(await one.standby()) < STANDBY_PRIVATE_KIB_MAX


# -- whole runs ------------------------------------------------------------------------------


def kill_parent(run: Run) -> None:
    os.kill(pids_with_standby(run)[0], signal.SIGKILL)


def incarnations_of(run: Run) -> set[int]:
    snapshot = run.snapshot()
    return {snapshot.operator(n).members[0].incarnation for n in ("lines", "work", "out")}


def test_a_run_goes_on_after_its_parent_was_killed_again_and_again() -> None:
    run = start(three_operators(Endless()))
    seen: set[int] = set()
    for incarnation in range(2, 5):
        seen |= set(run.snapshot().pids)
        kill_parent(run)
        until(lambda: incarnations_of(run) == {incarnation})  # noqa: B023
        until(lambda: run.snapshot().idle >= 2)
    run.end_input()
    report = finish(run)
    assert report.ok
    assert still_alive_after(seen) == []
    died = {e.detail for e in report.events if e.kind == "died"}
    assert died == {"ended with the process that it was forked from"}


def test_a_run_fails_with_parent_and_standby_if_nothing_has_its_pipeline_any_more() -> None:
    run = start(three_operators(Endless()))
    kill_template_and_standby(pids_with_standby(run))
    failed = failure_of(run)
    assert failed.failure.message == "the process that all others are forked from is gone"


SURVIVING = """
def tell_later(run):
    before = run.snapshot().pids
    deadline = time.monotonic() + 60
    while run.snapshot().idle < 2 or len(run.snapshot().pids) < 7:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(before[0], signal.SIGKILL)
    while set(run.snapshot().pids) & (set(before) - {before[1]}) or run.snapshot().idle < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    print(json.dumps(run.snapshot().pids), flush=True)

pipeline = fake.three_operators(fake.Endless())
if __name__ == "__main__":
    run = launch.start(pipeline, Options(preload=%r), entry=fake.ENTRY)
    tell_later(run)
    print(run._agent.run_dir.path, flush=True)
    run.wait()
"""


@pytest.mark.parametrize("way", ["fork", "import"])
def test_the_standby_tidies_up_if_the_agent_is_killed_after_it_has_taken_over(
    tmp_path: Path, way: str
) -> None:
    with program(tmp_path, SURVIVING % way) as (popen, pids):
        assert popen.stdout is not None
        folder = Path(popen.stdout.readline().strip())
        assert folder.is_dir()
        assert "ab:template" in map(name_of, pids)
        popen.kill()
        assert still_alive_after(pids) == []
        # Another run of this machine, which looks for what was left, may be removing it just now.
        until(lambda: not folder.exists())


def test_a_parent_that_is_killed_while_the_run_begins_is_followed_by_its_standby() -> None:
    """A sink has got ready by then, the next one has not."""

    def kill(me: fake.Fake) -> None:
        if not (me.run_dir / "killed").exists():
            (me.run_dir / "killed").touch()
            until(lambda: has_idle_parent_with_standby(os.getppid()))
            os.kill(os.getppid(), signal.SIGKILL)
            signal.pause()

    fake.BEFORE_READY["work"] = kill
    run = start(three_operators(Endless()))
    run.end_input()
    report = finish(run)
    assert report.ok
    died = {e.instance: e.detail for e in report.events if e.kind == "died"}
    assert died == dict.fromkeys(
        ["work.0", "out.0"], "ended with the process that it was forked from"
    )


def has_idle_parent_with_standby(parent: int) -> bool:
    """It has told the agent of its standby, for it waits for the next order."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    state = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "S" and "ab:standby" in map(name_of, map(int, children))
