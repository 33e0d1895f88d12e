"""The process of a service may die at any time; another one serves in its place."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from anabranch.runtime.live.agent import deaths, launch, watchdog
from anabranch.runtime.live.agent.launch import Run
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.plan.ends import Service, ServiceContext
from anabranch.runtime.reporting.failure import RunFailed
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.values.kinds import EventKind
from tests.runtime import fake_instance as fake
from tests.runtime.agent_runs import TIMEOUT_S, failure_of, finish, pids_with_standby, until
from tests.runtime.fake_instance import Endless, Nowhere, Numbers
from tests.runtime.processes import LINUX

pytestmark = pytest.mark.usefixtures("usual_behaviour")


class Mortal(Service):
    """Counts its lives in a file, and tells where it listens. What each incarnation does is
    overridden."""

    name = "mortal"
    linger_s = 10.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def serve(self, context: ServiceContext) -> None:
        incarnation = len(list(self.folder.glob("incarnation.*"))) + 1
        (self.folder / f"incarnation.{incarnation}").write_text(
            f"{os.getpid()} {context.former_address}"
        )
        await self.live(incarnation, context)

    async def live(self, incarnation: int, context: ServiceContext) -> None:
        context.address("here")
        await context.closed()

    def pid(self, incarnation: int) -> int:
        """Of that incarnation; waits until it has begun."""
        path = self.folder / f"incarnation.{incarnation}"
        until(lambda: path.exists() and path.read_text())
        return int(path.read_text().split()[0])

    def former_address(self, incarnation: int) -> str:
        return (self.folder / f"incarnation.{incarnation}").read_text().partition(" ")[2]


def start(service: Service, **options: Any) -> Run:
    """lines -> out; the source is served."""
    pipeline = Pipeline("fake")
    source = Numbers(0)
    source.service = service
    pipeline.source("lines", source).sink("out", Nowhere())
    return launch.start(pipeline, Options(**options), entry=fake.ENTRY)


def told(report: Report) -> list[str]:
    """What happened to the service, without how long it took."""
    events = [e for e in report.events if e.instance == "service mortal"]
    return [f"{e.operator} {e.kind} {e.detail.partition(' after')[0]}" for e in events]


def kill_incarnation(service: Mortal, incarnation: int) -> None:
    os.kill(service.pid(incarnation), signal.SIGKILL)


def number_of(n: int) -> dict[str, int]:
    return {"n": n, "number": n}


class Repeating(Mortal):
    """Each incarnation publishes what the earlier ones have published, and one split more."""

    async def live(self, incarnation: int, context: ServiceContext) -> None:
        context.address("here")
        await context.publish("lines", [number_of(n) for n in range(2 + incarnation)])
        if incarnation == 3:
            await context.ended("lines")
        (self.folder / f"published.{incarnation}").touch()
        await context.closed()


def test_a_service_that_is_killed_goes_on_and_its_splits_count_once(tmp_path: Path) -> None:
    service = Repeating(tmp_path)
    run = start(service)
    for incarnation in (1, 2):
        until((tmp_path / f"published.{incarnation}").exists)
        kill_incarnation(service, incarnation)
    report = finish(run)
    assert (report.ok, report.ledger.tuples_in) == (True, 5)
    died = "lines died was killed by SIGKILL"
    assert told(report) == [
        died,
        "lines resumed incarnation 2",
        died,
        "lines resumed incarnation 3",
    ]
    assert [service.former_address(n) for n in (1, 2, 3)] == ["", "here", "here"]


class Silent(Mortal):
    """Its first process waits for a signal that never comes, and does nothing else."""

    async def live(self, incarnation: int, context: ServiceContext) -> None:
        context.address("here")
        await asyncio.sleep(0)  # or that would not be said any more
        if incarnation == 1:
            signal.pause()
        await context.ended("lines")
        await context.closed()


@pytest.mark.skipif(not LINUX, reason="the states of processes are read from /proc")
def test_a_service_that_hangs_longer_than_the_user_allows_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "SUSPECT_S", 0.3)
    report = finish(start(Silent(tmp_path), hang_s=2.0))
    force, died, *others = told(report)
    assert report.ok
    assert force.startswith("lines ended by force no word and no work for")
    assert died.startswith("lines died hung for")
    assert others == ["lines resumed incarnation 2"]


@pytest.mark.skipif(not LINUX, reason="the states of processes are read from /proc")
def test_a_service_that_was_stopped_goes_on_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "SUSPECT_S", 0.3)
    service = Mortal(tmp_path)
    run = start(service)
    os.kill(service.pid(1), signal.SIGSTOP)
    service.pid(2)
    until(lambda: "was stopped (SIGSTOP)" in {e.detail for e in run.snapshot().events})
    run.stop()


class Repentant(Mortal):
    """Says in its first incarnation that the input has ended, and says it all again in the
    second."""

    async def live(self, incarnation: int, context: ServiceContext) -> None:
        context.address("here")
        await context.publish("lines", [number_of(0), number_of(1)])
        await context.ended("lines")
        if incarnation == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        await context.closed()


def test_an_input_that_is_ended_twice_has_ended(tmp_path: Path) -> None:
    report = finish(start(Repentant(tmp_path)))
    assert (report.ok, report.ledger.tuples_in) == (True, 2)


class Stillborn(Mortal):
    """Two incarnations end before they have said where they listen."""

    async def live(self, incarnation: int, context: ServiceContext) -> None:
        if incarnation <= 2:
            os.kill(os.getpid(), signal.SIGKILL)
        await super().live(incarnation, context)


def test_a_service_that_is_killed_while_it_starts_starts_again(tmp_path: Path) -> None:
    run = start(Stillborn(tmp_path))
    assert run.service_address("lines") == "here"
    run.end_input()
    report = finish(run)
    assert report.ok
    assert len(told(report)) == 3


class Lingering(Mortal):
    """Stays after the end until its second incarnation has been told of it, too."""

    async def live(self, incarnation: int, context: ServiceContext) -> None:
        context.address("here")
        await context.closed()
        (self.folder / f"closed.{incarnation}").touch()
        if incarnation == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_service_that_is_killed_while_it_lingers_is_resumed_and_told_of_the_end(
    tmp_path: Path,
) -> None:
    run = start(Lingering(tmp_path))
    run.end_input()
    assert finish(run).ok
    assert (tmp_path / "closed.2").exists()


@pytest.mark.usefixtures("deaths_add_up")
def test_a_service_that_always_dies_fails_the_run(tmp_path: Path) -> None:
    class Hopeless(Mortal):
        async def live(self, incarnation: int, context: ServiceContext) -> None:
            context.address("here")
            if incarnation == 1:
                await context.publish("lines", [{"n": 0}])
            os.kill(os.getpid(), signal.SIGKILL)

    service = Hopeless(tmp_path)
    # The run may fail before it has begun.
    with pytest.raises(RunFailed) as failed:
        start(service).wait(TIMEOUT_S)
    message = str(failed.value)
    assert f"service mortal died {deaths.RESUMES_MAX + 1} times within" in message
    assert len(list(tmp_path.glob("incarnation.*"))) == deaths.RESUMES_MAX + 1


@pytest.mark.usefixtures("deaths_add_up")
def test_later_incarnations_that_always_die_before_they_are_ready_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long each of them has lived."""

    class Late(Mortal):
        async def live(self, incarnation: int, context: ServiceContext) -> None:
            if incarnation > 1:
                await asyncio.sleep(0.1)
                os.kill(os.getpid(), signal.SIGKILL)
            await super().live(incarnation, context)

    monkeypatch.setattr(deaths, "IDLE_LIFETIME_S", 0.05)
    service = Late(tmp_path)
    run = start(service)
    kill_incarnation(service, 1)
    failure = failure_of(run).failure
    assert failure.message.startswith(f"service mortal died {deaths.RESUMES_MAX + 1} times within")


def test_a_later_incarnation_that_says_why_it_cannot_go_on_fails_the_run(tmp_path: Path) -> None:
    class Refused(Mortal):
        async def live(self, incarnation: int, context: ServiceContext) -> None:
            if incarnation == 2:
                raise OSError("port 7077 is taken")
            await super().live(incarnation, context)

    service = Refused(tmp_path)
    run = start(service)
    kill_incarnation(service, 1)
    failure = failure_of(run).failure
    assert failure.message == "service mortal failed: OSError: port 7077 is taken"


def test_a_later_incarnation_that_returns_too_early_fails_the_run(tmp_path: Path) -> None:
    class Hasty(Mortal):
        async def live(self, incarnation: int, context: ServiceContext) -> None:
            context.address("here")
            if incarnation == 1:
                await context.closed()

    service = Hasty(tmp_path)
    run = start(service)
    kill_incarnation(service, 1)
    failure = failure_of(run).failure
    assert failure.message == "service mortal returned before it ended lines"


def test_a_service_that_returns_before_it_said_where_it_listens_is_named(tmp_path: Path) -> None:
    class Mute(Mortal):
        async def live(self, incarnation: int, context: ServiceContext) -> None:
            return

    with pytest.raises(RunFailed, match="returned before it said where it listens"):
        start(Mute(tmp_path))


def test_a_run_that_is_stopped_does_not_resume_its_services(tmp_path: Path) -> None:
    run = start(Mortal(tmp_path))
    report = run.stop()
    assert told(report) == []
    assert len(list(tmp_path.glob("incarnation.*"))) == 1


class Twin(Mortal):
    """Says in its second incarnation where it listens once the other one begins its second, too."""

    async def live(self, incarnation: int, context: ServiceContext) -> None:
        wanted = 1 if incarnation == 1 else 2
        while len(list(self.folder.parent.glob(f"*/incarnation.{incarnation}"))) < wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        context.address(f"at {self.folder.name}")
        await context.closed()


@pytest.mark.skipif(not LINUX, reason="a parent has a standby on Linux only")
def test_services_of_one_name_may_begin_their_next_incarnations_together(tmp_path: Path) -> None:
    pipeline = Pipeline("fake")
    lines = pipeline.source("lines", Endless())
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        sink = Nowhere()
        sink.service = Twin(tmp_path / name)
        lines.sink(name, sink)
    run = launch.start(pipeline, Options(), entry=fake.ENTRY)
    os.kill(pids_with_standby(run)[0], signal.SIGKILL)

    def resumed() -> int:
        told = [e.kind for e in run.snapshot().events if e.instance == "service mortal"]
        return told.count(EventKind.RESUMED)

    until(lambda: resumed() == 2 or run.snapshot().phase == "ended")
    assert [run.service_address(name) for name in ("a", "b")] == ["at a", "at b"]
    run.end_input()
    assert finish(run).ok
