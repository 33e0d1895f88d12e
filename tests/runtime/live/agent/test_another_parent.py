"""Parent and standby may be killed together: another parent reads the user's file again."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from anabranch.runtime.live.agent.host_sites import HostSite
from anabranch.runtime.live.agent.starter import Starter
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.live.link.control import FromParent, Loaded
from anabranch.runtime.live.process import template_process
from anabranch.runtime.live.process.processes import ForkError
from anabranch.runtime.live.process.run_dir import MARK, MARK_TEXT, RunDir
from anabranch.runtime.live.process.template_link import TemplateLink
from tests.runtime.agent_runs import finish, pids_with_standby, start, until
from tests.runtime.following_parents import MODULE, SLEEPS, Made, incarnations, made
from tests.runtime.processes import (
    LINUX,
    PATIENCE_S,
    ROOT,
    alive,
    eventually,
    kill_template_and_standby,
    program,
    still_alive_after,
)

pytestmark = [
    pytest.mark.usefixtures("usual_behaviour"),
    pytest.mark.skipif(not LINUX, reason="processes are told apart by their names"),
]


@pytest.fixture
def no_standbys(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on systems other than Linux, where nothing kills the children of a dead parent either:
    only the end of the lifeline tells them."""
    monkeypatch.setattr(template_process, "can_have_standbys", lambda: False)
    monkeypatch.setattr("anabranch.runtime.live.process.standby.can_have_standbys", lambda: False)
    monkeypatch.setattr(
        "anabranch.runtime.live.process.orphans.die_with_parent", lambda _parent: None
    )


# -- the agent's side alone ------------------------------------------------------------------


def asyncio_errors() -> list[dict[str, Any]]:
    """What nobody has caught in the present event loop, from now on."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: found.append(context))
    return found


async def test_another_parent_follows_with_standbys_of_its_own(module: ModuleType) -> None:
    async with made(module) as one:
        before = await one.forker.fork()
        for number in range(1, 3):
            await one.lose_both()
            after = await one.forker.fork()
            assert (len(one.begun), one.lost) == (number, [])
            assert one.followed == one.begun, "a standby that has ended follows nobody"
            assert await before.exited == -signal.SIGKILL
            assert (before.orphan_wait, after.orphan_wait) == (True, False)
            before = after
        await eventually(lambda: one.forker.standby_pid is not None)
        standby = one.forker.standby_pid
        os.kill(one.forker.parent_pid, signal.SIGKILL)
        await eventually(lambda: one.forker.parent_pid == standby)
        assert len(one.begun) == 2


async def test_without_standbys_the_children_are_ended_before_others_come(
    module: ModuleType, no_standbys: None
) -> None:
    async with made(module) as one:
        before = await one.forker.fork()
        os.kill(one.forker.parent_pid, signal.SIGKILL)
        after = await one.forker.fork()
        assert await before.exited == -signal.SIGKILL
        assert not alive(before.pid)
        assert alive(after.pid)


async def test_the_folder_of_the_run_outlives_a_parent_that_does_not_listen(
    module: ModuleType, no_standbys: None, tmp_path: Path
) -> None:
    """It would remove it if it took the agent for gone."""
    folder = tmp_path / "run"
    folder.mkdir()
    async with made(module) as one:
        one.forker.guard(folder)
        await one.forker.fork()  # so it has obeyed
        follow = one.forker._follow

        def follow_slowly(link: TemplateLink) -> None:
            time.sleep(0.3)
            follow(link)

        one.forker._follow = follow_slowly  # type: ignore[method-assign]
        one.forker._lose()
        await one.forker.fork()
        assert len(one.begun) == 1
        assert folder.exists()


async def test_the_next_parent_guards_the_folder_too(module: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / MARK).write_bytes(MARK_TEXT)
    async with made(module) as one:
        one.forker.guard(folder)
        await one.lose_both()
        await one.forker.fork()
        await eventually(lambda: one.forker.standby_pid is not None)
        one.forker._link.parent.cut_lifeline()
        await eventually(lambda: not folder.exists())


async def test_the_folder_is_left_to_a_run_that_goes_on_in_it(
    module: ModuleType, tmp_path: Path
) -> None:
    """Its agent may be quicker than the parent that tidies up behind the last one."""
    folder = tmp_path / "run"
    folder.mkdir()
    async with made(module) as one:
        one.forker.guard(folder)
        await one.forker.fork()
        going_on = RunDir(folder)
        parent_pid = one.forker.parent_pid
        one.forker._link.parent.cut_lifeline()
        await eventually(lambda: not alive(parent_pid))
        assert going_on.is_there
        going_on.remove()


async def test_a_file_that_cannot_be_read_any_more_is_the_end(module: ModuleType) -> None:
    async with made(module) as one:
        one.rewrite("here = 1 / 0\n")
        await one.lose_both()
        with pytest.raises(ForkError):
            await one.forker.fork()
        await eventually(lambda: one.lost)
        assert len(one.lost) == 1
        assert "is gone, and no other could follow it:" in one.lost[0]
        assert "ZeroDivisionError" in one.lost[0]


async def test_a_file_that_takes_too_long_is_the_end(module: ModuleType) -> None:
    async with made(module) as one:
        one.forker._load_timeout_s = 1.0
        one.rewrite(SLEEPS)
        await one.lose_both()
        with pytest.raises(ForkError, match="within 1 s"):
            await one.forker.fork()
        await eventually(lambda: one.lost)
        assert "could not be read again within 1 s" in one.lost[0]
        await eventually(lambda: not alive(one.begun[0]))


async def test_it_can_be_stopped_while_another_parent_reads(module: ModuleType) -> None:
    async with made(module) as one:
        one.rewrite(SLEEPS)
        await one.lose_both()
        await eventually(lambda: one.begun)
        await asyncio.wait_for(one.forker.stop(), PATIENCE_S)
        assert one.lost == []


async def test_whoever_waits_for_a_process_has_the_deadline_anew_with_another_parent(
    module: ModuleType,
) -> None:
    async with made(module) as one:
        site = HostSite("", one.forker, 0, Tasks(lambda *_crashed: None))
        starter = Starter(3.0)
        one.rewrite(f"import time\ntime.sleep(5)\n{MODULE}")
        await eventually(lambda: one.forker.standby_pid is not None)
        os.kill(one.forker.parent_pid, signal.SIGSTOP)  # so that it does not fork any more
        taking = asyncio.create_task(starter.take("work.0", site))
        await eventually(lambda: one.forker._requests)
        kill_template_and_standby(one.forker.pids)
        assert alive((await taking).pid)


async def test_standbys_are_kept_though_the_parent_was_lost_before_they_were_wanted(
    module: ModuleType,
) -> None:
    one = Made(module)
    link, note, errors = one.forker._link, one.forker._note, asyncio_errors()

    def note_and_lose(message: FromParent) -> None:
        note(message)
        if isinstance(message, Loaded) and not one.begun:
            one.forker._lose()

    link._on_message = note_and_lose
    await one.forker.start(PATIENCE_S)
    one.forker.keep_standby()
    await one.forker.fork()
    await eventually(lambda: one.forker.standby_pid is not None)
    await one.lose_both()
    await one.forker.fork()
    await one.forker.stop()
    assert (len(one.begun), errors) == (2, [])


async def test_whatever_keeps_another_parent_from_beginning_is_told(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with made(module) as one:
        monkeypatch.setattr(sys, "executable", None)
        await one.lose_both()
        await eventually(lambda: one.lost)
        assert "is gone, and no other could be begun: TypeError" in one.lost[0]


async def test_entries_of_the_path_that_are_no_text_are_passed_over(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [tmp_path, *sys.path])
    async with made(module) as one:
        await one.lose_both()
        await one.forker.fork()
        assert len(one.begun) == 1


async def test_it_can_be_stopped_the_moment_a_standby_takes_over_that_ends_too(
    module: ModuleType,
) -> None:
    one = Made(module)
    errors, stopping = asyncio_errors(), []

    def end_and_stop() -> None:
        os.kill(one.forker.parent_pid, signal.SIGKILL)
        assert still_alive_after([one.forker.parent_pid]) == []
        stopping.append(asyncio.create_task(one.forker.stop()))

    one.forker._on_taken_over = end_and_stop
    await one.forker.start(PATIENCE_S)
    one.forker.keep_standby()
    await eventually(lambda: one.forker.standby_pid is not None)
    os.kill(one.forker.parent_pid, signal.SIGKILL)
    await eventually(lambda: stopping)
    await stopping[0]
    gc.collect()
    assert (one.lost, errors) == ([], [])


# -- whole runs ------------------------------------------------------------------------------


def test_a_run_goes_on_after_parent_and_standby_were_killed(module: ModuleType) -> None:
    run = start(module.here)
    seen: set[int] = set()
    for incarnation in range(2, 4):
        seen |= set(pids_with_standby(run))
        kill_template_and_standby(run.snapshot().pids)
        until(lambda: incarnations(run) == [incarnation] * 3)  # noqa: B023
        until(lambda: run.snapshot().idle >= 2)
    run.end_input()
    report = finish(run)
    assert report.ok
    assert still_alive_after(seen) == []


def test_a_run_without_standbys_goes_on_after_its_parent_was_killed(
    module: ModuleType, no_standbys: None
) -> None:
    run = start(module.here)
    seen = set(run.snapshot().pids)
    os.kill(run.snapshot().pids[0], signal.SIGKILL)
    until(lambda: incarnations(run) == [2, 2, 2])
    run.end_input()
    assert finish(run).ok
    assert still_alive_after(seen) == []


def test_instances_may_wait_for_the_file_longer_than_for_a_process(module: ModuleType) -> None:
    run = start(module.here)
    path = Path(module.__file__ or "")
    path.write_text(f"import time\ntime.sleep(5)\n{MODULE}")
    assert run._agent is not None
    run._agent.starter._deadline_s = 3.0
    kill_template_and_standby(pids_with_standby(run))
    until(lambda: incarnations(run) == [2, 2, 2])
    run.end_input()
    report = finish(run)
    assert report.ok
    assert "start_failed" not in {event.kind for event in report.events}


PROGRAM = """
pipeline = fake.three_operators(fake.Endless())
with open("times", "a") as times:
    times.write("again")
if __name__ == "__main__":
    run = launch.start(pipeline, Options(preload=%r), entry=fake.ENTRY)
    while len(run.snapshot().pids) < 7:
        time.sleep(0.01)
    parent, standby, *_ = run.snapshot().pids
    print(json.dumps(run.snapshot().pids), flush=True)
    os.kill(parent, signal.SIGSTOP)
    os.kill(standby, signal.SIGKILL)
    os.kill(parent, signal.SIGKILL)
    deadline = time.monotonic() + 60
    try:
        while {m.incarnation for o in run.snapshot().operators for m in o.members} != {2}:
            assert time.monotonic() < deadline
            time.sleep(0.01)
            if run.snapshot().phase == "ended":
                run.wait()
        run.end_input()
        print(json.dumps(run.wait().ended))
    except Exception as error:
        print(json.dumps(str(error)))
"""


@pytest.mark.parametrize(
    ("way", "told", "times"),
    [
        ("fork", "the process that all others are forked from is gone", 1),
        ("import", "completed", 3),
    ],
)
def test_a_program_is_run_again_only_if_that_is_its_way(
    tmp_path: Path, way: str, told: str, times: int
) -> None:
    with program(tmp_path, PROGRAM % way) as (popen, pids):
        assert popen.stdout is not None
        assert json.loads(popen.stdout.readline()) == told
        assert popen.wait(PATIENCE_S) == 0
        assert still_alive_after(pids) == []
        assert (tmp_path / "times").read_text() == times * "again"


COUNTED = """
import anabranch as ab

pipeline = ab.Pipeline("counted")
numbers = pipeline.source("numbers", ab.generate(lambda n: n, rate=10_000))
keyed = numbers.map("twice", lambda n: 2 * n).key_by(lambda n: n % 7)
sums = keyed.fold("sums", 0, lambda total, n: total + n)
sums.sink("out", ab.jsonl("out.jsonl"))
"""


@contextmanager
def command(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """`anabranch run`, of `COUNTED`; killed if it goes on."""
    (folder / "counted.py").write_text(textwrap.dedent(COUNTED))
    popen = subprocess.Popen(
        [sys.executable, "-m", "anabranch.cli", "run", "counted.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield popen
    finally:
        popen.kill()
        popen.communicate()


def children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def test_the_command_gives_every_result_once_whoever_is_killed(tmp_path: Path) -> None:
    with command(tmp_path) as popen:
        for _ in range(2):
            before = results(tmp_path)
            until(lambda: results(tmp_path) > before + 1000)  # noqa: B023
            for parent in children(popen.pid):
                os.kill(parent, signal.SIGSTOP)  # or it might make others meanwhile
                for child in children(parent):
                    os.kill(child, signal.SIGKILL)
                os.kill(parent, signal.SIGKILL)
        before = results(tmp_path)
        until(lambda: results(tmp_path) > before)
        popen.send_signal(signal.SIGINT)
        told, _ = popen.communicate(timeout=PATIENCE_S)
    assert popen.returncode == 0, told
    assert "balanced: every tuple is accounted for" in told
    came: dict[int, list[int]] = {}
    for line in (tmp_path / "out.jsonl").read_text().splitlines():
        key, total = json.loads(line)
        came.setdefault(key, []).append(total)
    for key in range(7):
        right, total = [], 0
        for n in range(results(tmp_path)):
            if 2 * n % 7 == key:
                right.append(total := total + 2 * n)
        assert came[key] == right


def results(folder: Path) -> int:
    try:
        return (folder / "out.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0
