"""A parent may be killed while it reads the user's file, the first one too: another one follows."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from anabranch.runtime.live.agent.launch import Run
from anabranch.runtime.live.process.forker import (
    FORKS_IN_FLIGHT_MAX,
    PARENTS_IN_VAIN_MAX,
    Forker,
)
from anabranch.runtime.live.process.origin import find_origin
from anabranch.runtime.live.process.processes import ForkError
from anabranch.runtime.live.process.template_process import import_template
from anabranch.runtime.reporting.failure import RunFailed
from tests.runtime import fake_instance as fake
from tests.runtime.agent_runs import failure_of, finish, pids_with_standby, start, until
from tests.runtime.following_parents import MODULE, SLEEPS, incarnations, made
from tests.runtime.processes import (
    LINUX,
    PATIENCE_S,
    alive,
    eventually,
    kill_template_and_standby,
    still_alive_after,
)

pytestmark = [
    pytest.mark.usefixtures("usual_behaviour"),
    pytest.mark.skipif(not LINUX, reason="processes are told apart by their names"),
]

ENDS_ONCE_READ = f"""{MODULE}
import os
import __main__

__main__.Template.serve = lambda _self: os._exit(3)
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
    seen = pids_with_standby(run)
    kill_template_and_standby(seen)
    first = kill_follower(run, seen[0])
    path.write_text(MODULE)
    second = kill_follower(run, first)
    until(lambda: incarnations(run) == [2] * 3)
    run.end_input()
    assert finish(run).ok
    assert still_alive_after({*seen, first, second}) == []


def test_a_run_ends_when_all_that_follow_are_killed(module: ModuleType) -> None:
    run = start(module.here)
    Path(module.__file__ or "").write_text(SLEEPS)
    seen = list(pids_with_standby(run))
    kill_template_and_standby(seen)
    for followed in range(PARENTS_IN_VAIN_MAX):
        seen.append(kill_follower(run, seen[-1] if followed else seen[0]))
    told = str(failure_of(run))
    assert "all others are forked from is gone, and 5 in a row ended before they could" in told
    assert "was killed by SIGKILL" in told
    assert still_alive_after(seen) == []


def killing_its_readers(folder: Path, first: int) -> str:
    """The module, as one that kills so many of the processes that read it."""
    return f"""{MODULE}
import os, pathlib, signal

pathlib.Path({str(folder)!r}, str(os.getpid())).touch()
if len(os.listdir({str(folder)!r})) <= {first}:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def rewrite(module: ModuleType, text: str) -> None:
    Path(module.__file__ or "").write_text(text)


def readers(module: ModuleType, folder: Path, first: int) -> Path:
    """Where those that read the module, of which the first so many are killed, note themselves."""
    noted = folder / "readers"
    noted.mkdir()
    rewrite(module, killing_its_readers(noted, first))
    return noted


def test_a_run_begins_although_the_first_parents_were_killed(
    module: ModuleType, tmp_path: Path
) -> None:
    noted = readers(module, tmp_path, PARENTS_IN_VAIN_MAX - 1)
    run = start(module.here, preload="import")
    run.end_input()
    assert finish(run).ok
    assert len(list(noted.iterdir())) == PARENTS_IN_VAIN_MAX
    assert still_alive_after(int(path.name) for path in noted.iterdir()) == []


def test_a_run_does_not_begin_when_all_first_parents_are_killed(
    module: ModuleType, tmp_path: Path
) -> None:
    noted = readers(module, tmp_path, PARENTS_IN_VAIN_MAX)
    with pytest.raises(RunFailed) as failed:
        start(module.here, preload="import")
    assert "did not start: the template process has ended, and 5 in a row" in str(failed.value)
    assert "was killed by SIGKILL" in str(failed.value)
    assert len(list(noted.iterdir())) == PARENTS_IN_VAIN_MAX
    assert still_alive_after(int(path.name) for path in noted.iterdir()) == []


async def test_what_the_next_one_finds_wrong_in_the_file_is_told(module: ModuleType) -> None:
    """By the first parent it would be told, too."""
    origin = find_origin(module.here)
    assert origin is not None
    rewrite(module, SLEEPS)
    first = import_template(module.here, origin, fake.ENTRY)
    forker = Forker(
        first, print, print, another=lambda: import_template(module.here, origin, fake.ENTRY)
    )
    starting = asyncio.create_task(forker.start(PATIENCE_S))
    await asyncio.sleep(0)
    rewrite(module, "here = 1 / 0\n")
    os.kill(first.pid, signal.SIGKILL)
    with pytest.raises(ForkError, match="ZeroDivisionError"):
        await asyncio.wait_for(starting, PATIENCE_S)
    await forker.stop()
    assert not alive(first.pid)


async def test_a_parent_that_was_killed_before_it_was_asked_is_followed(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = find_origin(module.here)
    assert origin is not None
    begin = subprocess.Popen

    def killed_at_once(*args: Any, **extra: Any) -> subprocess.Popen[bytes]:
        made = begin(*args, **extra)
        os.kill(made.pid, signal.SIGKILL)
        made.wait()
        return made

    monkeypatch.setattr(subprocess, "Popen", killed_at_once)
    first = import_template(module.here, origin, fake.ENTRY)
    monkeypatch.undo()
    forker = Forker(
        first, print, print, another=lambda: import_template(module.here, origin, fake.ENTRY)
    )
    await forker.start(PATIENCE_S)
    assert alive((await forker.fork()).pid)
    await forker.stop()
