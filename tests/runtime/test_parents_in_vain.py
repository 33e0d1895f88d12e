"""The next parent may be killed too, while it reads the user's file: yet another one follows."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from types import ModuleType

import pytest

from anabranch.runtime.live.forker import FORKS_IN_FLIGHT_MAX, PARENTS_IN_VAIN_MAX, ForkError
from anabranch.runtime.live.launch import Run
from tests.runtime.agent_runs import failure_of, finish, pids_with_heir, start, until
from tests.runtime.following_parents import MODULE, SLEEPS, lives, made
from tests.runtime.processes import (
    LINUX,
    PATIENCE_S,
    alive,
    eventually,
    kill_parent_and_heir,
    still_alive_after,
)

pytestmark = [
    pytest.mark.usefixtures("usual_behaviour"),
    pytest.mark.skipif(not LINUX, reason="processes are told apart by their names"),
]

ENDS_ONCE_READ = f"""{MODULE}
import os
import __main__

__main__.Parent.serve = lambda _self: os._exit(3)
"""


async def test_a_parent_that_is_killed_while_it_reads_is_followed(module: ModuleType) -> None:
    async with made(module) as one:
        one.rewrite(SLEEPS)
        await one.lose_both()
        waiting = [asyncio.create_task(one.forker.fork()) for _ in range(FORKS_IN_FLIGHT_MAX + 1)]
        await one.kill_next(1)
        assert not any(task.done() for task in waiting)
        one.rewrite(MODULE)
        await one.kill_next(2)
        forked = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S)
        assert all(alive(process.pid) for process in forked)
        assert (len(one.begun), one.followed, one.lost) == (3, one.begun, [])


async def test_parents_that_are_killed_in_a_row_while_they_read_are_the_end(
    module: ModuleType,
) -> None:
    async with made(module) as one:
        await one.forker.fork()
        one.rewrite(SLEEPS)
        await one.lose_both()
        waiting = [asyncio.create_task(one.forker.fork()) for _ in range(3)]
        await eventually(lambda: one.begun)
        ready = asyncio.create_task(one.forker.ready())
        for number in range(1, PARENTS_IN_VAIN_MAX + 1):
            assert one.lost == []
            await one.kill_next(number)
        for task in [*waiting, ready]:
            with pytest.raises(ForkError, match="has ended"):
                await asyncio.wait_for(task, PATIENCE_S)
        assert len(one.lost) == 1
        assert "is gone, and 5 in a row ended before they could take its place: " in one.lost[0]
        assert "was killed by SIGKILL (" in one.lost[0]
        assert "dmesg" in one.lost[0]
        assert len(one.begun) == PARENTS_IN_VAIN_MAX


async def test_parents_that_end_as_soon_as_they_have_read_are_the_end(module: ModuleType) -> None:
    """Nothing that they were asked for has been done."""
    async with made(module) as one:
        await one.forker.fork()
        one.rewrite(ENDS_ONCE_READ)
        await one.lose_both()
        with pytest.raises(ForkError, match="has ended"):
            await asyncio.wait_for(one.forker.fork(), PATIENCE_S)
        await eventually(lambda: one.lost)
        assert "is gone, and 5 in a row ended before they could take its place: " in one.lost[0]
        assert "ended with exit code 3" in one.lost[0]


async def test_parents_that_have_forked_do_not_count(module: ModuleType) -> None:
    async with made(module) as one:
        for number in range(1, PARENTS_IN_VAIN_MAX + 2):
            await one.lose_both()
            await one.kill_next(number * 2 - 1)
            await one.forker.fork()
        assert one.lost == []


async def test_it_can_be_stopped_while_others_wait_for_the_second_that_reads(
    module: ModuleType,
) -> None:
    async with made(module) as one:
        one.rewrite(SLEEPS)
        await one.lose_both()
        waiting = asyncio.create_task(one.forker.fork())
        await one.kill_next(1)
        await eventually(lambda: len(one.begun) == 2)
        await asyncio.wait_for(one.forker.stop(), PATIENCE_S)
        with pytest.raises(ForkError):
            await asyncio.wait_for(waiting, PATIENCE_S)
        assert one.lost == []


def kill_follower(run: Run, former: int) -> int:
    """The parent that was begun after `former`, while it reads the file; its number."""
    assert run._agent is not None
    forker = run._agent.forker
    until(lambda: forker.parent_pid != former)
    pid = forker.parent_pid
    os.kill(pid, signal.SIGKILL)
    return pid


def test_a_run_goes_on_after_the_next_parents_were_killed_too(module: ModuleType) -> None:
    run = start(module.here)
    path = Path(module.__file__ or "")
    path.write_text(SLEEPS)
    seen = pids_with_heir(run)
    kill_parent_and_heir(seen)
    first = kill_follower(run, seen[0])
    path.write_text(MODULE)
    second = kill_follower(run, first)
    until(lambda: lives(run) == [2] * 3)
    run.end_input()
    assert finish(run).ok
    assert still_alive_after({*seen, first, second}) == []


def test_a_run_ends_when_all_that_follow_are_killed(module: ModuleType) -> None:
    run = start(module.here)
    Path(module.__file__ or "").write_text(SLEEPS)
    seen = list(pids_with_heir(run))
    kill_parent_and_heir(seen)
    for followed in range(PARENTS_IN_VAIN_MAX):
        seen.append(kill_follower(run, seen[-1] if followed else seen[0]))
    told = str(failure_of(run))
    assert "all others are forked from is gone, and 5 in a row ended before they could" in told
    assert "was killed by SIGKILL" in told
    assert still_alive_after(seen) == []
