"""Silent instances: what is stopped is resumed, what works or waits is left alone."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.live.agent import watchdog
from anabranch.runtime.live.agent.launch import Run
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.live.process import forker, kernel_view
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.reporting.report import Event
from anabranch.runtime.reporting.status import id_to_wire
from anabranch.runtime.values.checks import PipelineError
from tests.runtime import fake_instance as fake
from tests.runtime.agent_runs import finish, start, until
from tests.runtime.fake_instance import Endless, Fake, three_operators
from tests.runtime.processes import LINUX, eventually

pytestmark = [
    pytest.mark.usefixtures("usual_behaviour"),
    pytest.mark.skipif(not LINUX, reason="the states of processes are read from /proc"),
]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "LOOK_PERIOD_S", 0.02)
    monkeypatch.setattr(watchdog, "SUSPECT_S", 0.3)
    monkeypatch.setattr(watchdog, "WITNESS_S", 0.1)


def events(run: Run, kind: str) -> list[Event]:
    return [e for e in run.snapshot().events if kind in (e.kind, e.label)]


def incarnation(run: Run) -> int:
    return run.snapshot().operator("work").members[0].incarnation


def test_a_stopped_instance_is_ended_and_resumed() -> None:
    run = start(three_operators(Endless()))
    os.kill(run.snapshot().operator("work").members[0].pid, signal.SIGSTOP)
    until(lambda: events(run, "resumed"))
    assert (incarnation(run), events(run, "died")[0].detail) == (2, "was stopped (SIGSTOP)")
    run.end_input()
    report = finish(run)
    assert (report.ok, report.operator("work").deaths) == (True, 1)


def test_who_cannot_be_looked_at_for_lack_of_files_is_looked_at_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = []

    def refuse(pid: int) -> kernel_view.KernelLook:
        refused.append(pid)
        raise OSError(errno.EMFILE, "Too many open files", f"/proc/{pid}/stat")

    run = start(three_operators(Endless()))
    member = run.snapshot().operator("work").members[0]
    with monkeypatch.context() as scarce:
        scarce.setattr(forker, "look_at", refuse)
        os.kill(member.pid, signal.SIGSTOP)
        until(lambda: refused)
    until(lambda: events(run, "resumed"))
    assert events(run, "died")[0].detail == "was stopped (SIGSTOP)"
    run.end_input()
    assert finish(run).ok


@pytest.mark.parametrize("suspected", [True, False])
def test_a_witness_makes_the_agent_look_sooner(
    monkeypatch: pytest.MonkeyPatch, suspected: bool
) -> None:
    monkeypatch.setattr(watchdog, "SUSPECT_S", 60.0)

    def accuse(me: Fake) -> None:
        if suspected:
            until((me.run_dir / "stopped").exists)
            victim = id_to_wire(me.id._replace(operator=OperatorName("work")))
            me.say(msg.Suspect(peer=victim, silent_s=1.0))
        me.note("suspected")

    def tell(me: Fake) -> None:
        me.note("folder", str(me.run_dir))

    fake.BEHAVIOUR["out"] = accuse
    fake.BEHAVIOUR["work"] = tell
    run = start(three_operators(Endless()))
    until(lambda: events(run, "folder"))
    os.kill(run.snapshot().operator("work").members[0].pid, signal.SIGSTOP)
    open(f"{events(run, 'folder')[0].detail}/stopped", "w").close()
    if suspected:
        until(lambda: incarnation(run) == 2)
        run.end_input()
        assert finish(run).ok
        return
    until(lambda: events(run, "suspected"))
    time.sleep(0.5)
    assert incarnation(run) == 1
    run.stop()


def test_an_instance_that_computes_is_left_alone_and_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watchdog, "HANG_S", 0.5)

    def compute(me: Fake) -> None:
        me.status()
        while not (me.run_dir / "enough").exists():
            pass
        me.note("done")

    def look(me: Fake) -> None:
        me.note("folder", str(me.run_dir))

    fake.BEHAVIOUR["work"] = compute
    fake.BEHAVIOUR["out"] = look
    run = start(three_operators(Endless()))
    until(lambda: "lines.0" in {e.instance for e in events(run, "hangs")})
    until(lambda: "work.0" in {e.instance for e in events(run, "busy")})
    time.sleep(0.6)
    assert [e.instance for e in events(run, "busy")].count("work.0") == 1
    assert "work.0" not in {e.instance for e in events(run, "hangs")}
    assert incarnation(run) == 1
    folder = events(run, "folder")[0].detail
    open(f"{folder}/enough", "w").close()
    until(lambda: events(run, "done"))
    run.stop()


def test_an_instance_that_neither_speaks_nor_works_is_told_with_how_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "HANG_S", 0.5)
    enough = tmp_path / "enough"
    os.mkfifo(enough)
    fake.BEHAVIOUR["work"] = lambda me: open(enough).close()  # until the other end is opened
    run = start(three_operators(Endless()))
    pid = run.snapshot().operator("work").members[0].pid
    until(lambda: [e for e in events(run, "hangs") if e.instance == "work.0"])
    time.sleep(0.2)
    told = [e.detail for e in events(run, "hangs") if e.instance == "work.0"]
    assert len(told) == 1
    assert told[0].endswith(f"to see where it waits: py-spy dump --pid {pid}")
    assert incarnation(run) == 1
    enough.open("w").close()
    run.end_input()
    assert finish(run).ok


def test_an_instance_that_hangs_longer_than_the_user_allows_is_resumed() -> None:
    def hang(me: Fake) -> None:
        me.status()
        if me.assign.incarnation == 1:
            signal.pause()

    fake.BEHAVIOUR["work"] = hang
    run = start(three_operators(Endless()), hang_s=0.8)
    until(lambda: any(e.instance == "work.0" for e in events(run, "resumed")))
    died = [e.detail for e in events(run, "died") if e.instance == "work.0"]
    assert re.fullmatch(r"hung for \d+ s", died[0])
    run.stop()


def test_the_stopped_parent_is_told_to_go_on() -> None:
    lines: list[str] = []
    run = start(three_operators(Endless()), on_output=lambda _, line: lines.append(line))
    parent, victim = run.snapshot().pids[0], run.snapshot().operator("work").members[0].pid
    os.kill(parent, signal.SIGSTOP)
    os.kill(victim, signal.SIGKILL)
    until(lambda: incarnation(run) == 2)
    assert lines == [f"process {parent} was stopped, and gets SIGCONT"]
    run.end_input()
    assert finish(run).ok


def watching_over(watched: Any) -> watchdog.Watchdog:
    processes: Any = SimpleNamespace(parent_pid=os.getpid(), look=kernel_view.look_at)
    home: Any = SimpleNamespace(processes=processes)
    sites: Any = SimpleNamespace(home=home, of=lambda _host: home)
    news: Any = None
    return watchdog.Watchdog(watched, sites, news, lambda _line: None, None)


def test_the_agents_own_silence_is_not_the_silence_of_others() -> None:
    someone = SimpleNamespace(heard_s=10.0)
    watching = watching_over(lambda: [someone])
    watching._forgive(0.05)
    assert someone.heard_s == 10.0
    watching._forgive(3.0)
    assert someone.heard_s == 13.0


async def test_an_agent_that_was_stopped_itself_does_not_count_that_time() -> None:
    """As when all of a run is stopped for half a minute and the agent is the first to go on: the
    others are still seen stopped, and were silent for long."""

    someone = SimpleNamespace(heard_s=0.0, process=None, text="someone.0")
    watching = asyncio.create_task(watching_over(lambda: [someone]).watch())
    await asyncio.sleep(0)
    began_s = time.monotonic()
    while time.monotonic() < began_s + 1.0:
        pass  # and so is the loop
    await eventually(lambda: someone.heard_s > 0)
    watching.cancel()
    assert someone.heard_s > 0.9


def test_a_process_is_seen_as_what_it_is() -> None:
    look = kernel_view.look_at(os.getpid())
    assert look is not None
    assert look.state == "R"
    before = look.cpu
    until(lambda: sum(range(100_000)) and kernel_view.look_at(os.getpid()).cpu > before)  # type: ignore[union-attr]
    gone = kernel_view.look_at(2**22 + 1)
    assert gone is not None
    assert gone.state == "X"


def test_a_time_to_hang_without_sense_is_refused() -> None:
    with pytest.raises(PipelineError, match="hang_s must be above 0"):
        Options(hang_s=0)
