"""Services: processes beside the instances, started before them and ended after them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from anabranch.protocol.limits import Limits
from anabranch.runtime.live.agent import launch
from anabranch.runtime.live.agent.launch import Run
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.live.process.service import services_of
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.plan.ends import Service, ServiceContext
from anabranch.runtime.reporting.failure import RunFailed
from tests.runtime import fake_instance as fake
from tests.runtime.fake_instance import Fake, Nowhere, Numbers
from tests.runtime.processes import PATIENCE_S, eventually, still_alive_after

TIMEOUT_S = PATIENCE_S
pytestmark = pytest.mark.usefixtures("usual_behaviour")


class Publisher(Service):
    """Publishes five splits to each of its sources, and stays until the run is over."""

    name = "publisher"
    linger_s = 5.0

    async def serve(self, context: ServiceContext) -> None:
        assert list(context.ends) == list(context.operators)
        context.address(f"unix:{context.run_dir}/publisher")
        for operator in context.operators:
            if operator != "out":
                await context.publish(operator, [{"n": n} for n in range(5)])
                await context.ended(operator)
        await context.closed()
        assert context.closing


def served(service: Service, source: Numbers | None = None) -> Pipeline:
    """lines -> out, both with the same service."""
    pipeline = Pipeline("fake")
    source = source or Numbers(0)
    source.service = service
    sink = Nowhere()
    sink.service = service
    pipeline.source("lines", source).sink("out", sink)
    return pipeline


def start(pipeline: Pipeline, **options: Any) -> Run:
    return launch.start(pipeline, Options(**options), entry=fake.ENTRY)


def failure_of(pipeline: Pipeline, **options: Any) -> str:
    with pytest.raises(RunFailed) as failed:
        start(pipeline, **options).wait(TIMEOUT_S)
    return str(failed.value)


def test_ends_that_name_the_same_object_share_one_service() -> None:
    pipeline = served(Publisher())
    pipeline.source("other", Numbers()).sink("log", Nowhere())
    ((service, operators),) = services_of(pipeline)
    assert (service.name, operators) == ("publisher", ("lines", "out"))


def test_a_service_publishes_what_the_instances_of_a_source_read() -> None:
    run = start(served(Publisher(), Numbers(2)))
    report = run.wait(TIMEOUT_S)
    assert report.ok
    assert report.ledger.tuples_in == 7
    assert still_alive_after(run.snapshot().pids, 0) == []


def test_instances_and_the_user_learn_where_the_service_listens() -> None:
    def tell(me: Fake) -> None:
        me.note("address", f"{me.assign.service_address} {len(me.assign.token)}")

    fake.BEHAVIOUR["lines"] = fake.BEHAVIOUR["out"] = tell
    run = start(served(Publisher()))
    address = run.service_address("out")
    report = run.wait(TIMEOUT_S)
    assert address.endswith("/publisher")
    told = [e.detail for e in report.events if e.label == "address"]
    assert told == [f"{address} 32"] * 2


class Lingering(Publisher):
    """Goes on after everything has ended, as long as somebody takes what is left."""

    linger_s = 0.3

    def __init__(self, more_s: float, path: Path) -> None:
        self.more_s = more_s
        self.path = path

    async def serve(self, context: ServiceContext) -> None:
        await super().serve(context)
        await asyncio.sleep(self.more_s)
        self.path.touch()


def test_a_service_may_go_on_until_everything_was_taken(tmp_path: Path) -> None:
    path = tmp_path / "done"
    service = Lingering(0.2, path)
    service.linger_s = PATIENCE_S
    assert start(served(service)).wait(TIMEOUT_S).ok
    assert path.exists()


def test_a_service_that_goes_on_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.runtime.live.agent.attendants.LINGER_GRACE_S", 0.1)
    run = start(served(Lingering(600, tmp_path / "done")))
    assert run.wait(TIMEOUT_S).ok
    assert still_alive_after(run.snapshot().pids, 0) == []


def test_stop_does_not_wait_for_a_service_that_lingers(tmp_path: Path) -> None:
    service = Lingering(600, tmp_path / "done")
    service.linger_s = 600
    run = start(served(service))
    deadline = time.monotonic() + TIMEOUT_S
    while run.snapshot().phase != "closing" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert run.snapshot().phase == "closing"
    # The stream was finished already, so it is complete, only not everything was fetched.
    assert run.stop().ended == "completed"


class Faulty(Publisher):
    async def serve(self, context: ServiceContext) -> None:
        context.address("nowhere")
        raise OSError("port 7077 is taken")


def test_a_service_that_raises_fails_the_run_with_its_reason() -> None:
    text = failure_of(served(Faulty()))
    assert text.startswith("service publisher failed: OSError: port 7077 is taken")
    assert "raise OSError" in text


class Silent(Publisher):
    async def serve(self, context: ServiceContext) -> None:
        await context.closed()


def test_a_service_that_says_no_address_fails_the_start_within_the_deadline() -> None:
    text = failure_of(served(Silent()), limits=Limits(start_deadline_s=10.0))
    assert "service publisher was not ready within 10 s" in text


class Hasty(Publisher):
    async def serve(self, context: ServiceContext) -> None:
        context.address("nowhere")


def test_a_service_that_returns_before_its_source_has_ended_fails_the_run() -> None:
    assert failure_of(served(Hasty())) == "service publisher returned before it ended lines"


class Busy(Publisher):
    async def serve(self, context: ServiceContext) -> None:
        context.address(f"pid:{os.getpid()}")
        await context.closed()


def test_the_end_of_the_input_ends_a_source_whose_service_goes_on() -> None:
    run = start(served(Busy()))
    run.end_input()
    assert run.wait(TIMEOUT_S).ok


class Late(Publisher):
    """Does not know that the input has been told to end."""

    async def serve(self, context: ServiceContext) -> None:
        context.address("nowhere")
        await eventually((context.run_dir / "lines.0.ending").exists)
        await context.publish("lines", [{"n": 1}])
        (context.run_dir / "published").touch()
        await context.closed()


def test_splits_published_after_the_input_was_ended_are_left_out() -> None:
    def slow_end(me: Fake) -> None:
        me.expect(msg.EndInput)
        (me.run_dir / "lines.0.ending").touch()
        while not (me.run_dir / "published").exists():
            time.sleep(0.005)

    fake.BEHAVIOUR["lines"] = slow_end
    run = start(served(Late()))
    run.end_input()
    report = run.wait(TIMEOUT_S)
    assert (report.ok, report.ledger.tuples_in) == (True, 0)
