"""The gateway as a service of a run: what it needs, what it tells, when it ends."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import ServiceContext, Sink, Source, Split
from anabranch.runtime.values.checks import PipelineError
from anabranch.spark_bridge import messages as m
from anabranch.spark_bridge.client import Caller
from anabranch.spark_bridge.errors import SparkUnavailable
from anabranch.spark_bridge.gateway_needs import GatewayNeeds, gateway_needs
from anabranch.spark_bridge.places import Place, PlaceUnknown, RunEnded
from anabranch.spark_bridge.service import GatewayService
from anabranch.spark_bridge.sink import SparkCollect
from anabranch.spark_bridge.source import SparkFeed
from anabranch.spark_bridge.verbs import finish, release, wait
from tests.runtime.processes import PATIENCE_S
from tests.spark_bridge.support import FakeQuery, ask, context, drain, fetch, latest, until

FEED = SparkFeed("lines")
COLLECT = SparkCollect("scores", "text string")


class FakeContext(ServiceContext):
    """What a run gives to its service."""

    def __init__(self, run_dir: Path, ends: Mapping[str, Source | Sink]) -> None:
        self.pipeline = "test"
        self.operators = tuple(ends)
        self.ends = ends
        self.run_dir = run_dir
        self.started_s = 1.0
        self.limits = DEFAULT_LIMITS
        self.token = b"secret"
        self.addresses: list[str] = []
        self.published: list[tuple[str, Split]] = []
        self.ended_operators: list[str] = []
        self.end = asyncio.Event()

    def address(self, text: str) -> None:
        self.addresses.append(text)

    async def publish(self, operator: str, splits: list[Split]) -> None:
        self.published.extend((operator, split) for split in splits)

    async def ended(self, operator: str) -> None:
        self.ended_operators.append(operator)

    @property
    def closing(self) -> bool:
        return self.end.is_set()

    async def closed(self) -> None:
        await self.end.wait()


async def test_a_run_is_fed_and_collected_through_its_service(tmp_path: Path) -> None:
    run = FakeContext(tmp_path, {"in": FEED, "out": COLLECT})
    serving = asyncio.create_task(GatewayService().serve(run))
    await until(lambda: run.addresses)
    place = Place.of_run(tmp_path)
    assert run.addresses == [f"tcp:{place.addresses[0]}"]
    await FakeQuery(place).feed(0, "a", "b")
    await ask(place, m.Finish(stream="lines"))
    ((operator, split),) = run.published
    assert (operator, run.ended_operators) == ("in", ["in"])
    writer = COLLECT.open(context(tmp_path, "out.0"))
    await writer.write((await drain(split))[0])
    await writer.close()
    run.end.set()
    end = await latest(place, "scores")
    assert not serving.done()
    rows = await fetch(place, "scores", end.generation, "out.0", 0, 2)
    assert rows == [{"text": "a"}, {"text": "b"}]
    await asyncio.wait_for(serving, PATIENCE_S)


async def test_results_that_nobody_collects_hold_the_end_up_for_so_long_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = FakeContext(tmp_path, {"out": COLLECT})
    service = GatewayService()
    service.linger_s = 0.05
    serving = asyncio.create_task(service.serve(run))
    await until(lambda: run.addresses)
    writer = COLLECT.open(context(tmp_path, "out.0"))
    await writer.write(["a"])
    await writer.close()
    run.end.set()
    await asyncio.wait_for(serving, PATIENCE_S)
    assert "not all results were collected" in caplog.text


async def test_a_state_elsewhere_is_found_through_the_run_all_the_same(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    run = FakeContext(run_dir, {"in": SparkFeed("lines", state=tmp_path / "kept")})
    serving = asyncio.create_task(GatewayService().serve(run))
    await until(lambda: run.addresses)
    assert (tmp_path / "kept" / "feed" / "journal").exists()
    await FakeQuery(Place.of_run(run_dir)).feed(0, "a")
    run.end.set()
    await asyncio.wait_for(serving, PATIENCE_S)


async def serve_to_its_end(tmp_path: Path, *, complete: bool = True) -> Path:
    """The `state` folder of a run that has ended, or was stopped."""
    state = tmp_path / "kept"
    (tmp_path / "run").mkdir(exist_ok=True)
    run = FakeContext(tmp_path / "run", {"in": SparkFeed("lines", state=state)})
    serving = asyncio.create_task(GatewayService().serve(run))
    await until(lambda: run.addresses)
    if complete:
        run.end.set()
    else:
        serving.cancel()
    await asyncio.wait([serving], timeout=PATIENCE_S)
    return state


def wishes(state: Path) -> list[Callable[[], None]]:
    return [lambda: finish(state, "lines"), lambda: wait(state), lambda: release(state)]


async def test_nothing_is_left_to_be_wished_of_a_run_that_has_ended(tmp_path: Path) -> None:
    state = await serve_to_its_end(tmp_path)
    for wish in wishes(state):
        wish()


async def test_a_wish_that_the_end_of_the_run_overtakes_is_given_up_at_once(
    tmp_path: Path,
) -> None:
    state = await serve_to_its_end(tmp_path)
    caller = Caller(Place(("127.0.0.1:9",), "secret", str(state / "gateway.json")), 60)
    with pytest.raises(RunEnded, match="has ended"):
        caller.ask(m.Release(), unless_ended=True)


async def test_who_waits_for_a_run_that_was_stopped_is_told(tmp_path: Path) -> None:
    state = await serve_to_its_end(tmp_path, complete=False)
    release(state)
    with pytest.raises(RunEnded, match=r"kept was stopped or has failed: begin it again"):
        wait(state)


async def test_a_run_that_begins_where_another_has_ended_is_not_taken_for_it(
    tmp_path: Path,
) -> None:
    state = await serve_to_its_end(tmp_path)
    SparkFeed("lines", state=state).prepare()
    for wish in wishes(state):
        with pytest.raises(PlaceUnknown, match="is the pipeline running"):
            wish()


def test_a_place_that_never_was_is_an_error(tmp_path: Path) -> None:
    for wish in wishes(tmp_path):
        with pytest.raises(PlaceUnknown, match="no gateway has written its address"):
            wish()


def needs(tmp_path: Path, **ends: Source | Sink) -> GatewayNeeds:
    return gateway_needs(ends, tmp_path)


def test_what_the_ends_of_a_pipeline_need_is_read_off_them(tmp_path: Path) -> None:
    expected = GatewayNeeds(
        {"lines": "in_"}, {"scores": "text string"}, tmp_path / "spark", "127.0.0.1", 0
    )
    assert needs(tmp_path, in_=FEED, out=COLLECT) == expected
    heartbeat = needs(tmp_path, in_=SparkFeed("lines", listen="0.0.0.0:7700"), out=COLLECT)
    assert (heartbeat.host, heartbeat.port) == ("0.0.0.0", 7700)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (SparkCollect("lines", "a int"), "operator 'b': another one has the stream 'lines'"),
        (SparkFeed("more", state="/elsewhere"), "'a' and 'b': .* the same `state`"),
        (SparkFeed("more", listen="[::1]:7700"), "'a' and 'b': .* the same `listen`"),
    ],
)
def test_ends_that_contradict_each_other_are_named(
    tmp_path: Path, other: Any, expected: str
) -> None:
    with pytest.raises(PipelineError, match=expected):
        needs(tmp_path, a=SparkFeed("lines", listen="127.0.0.1:7700"), b=other)


def test_an_address_to_listen_on_is_checked(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="listen 'everywhere': expected host:port"):
        needs(tmp_path, a=SparkFeed("lines", listen="everywhere"))


def test_all_ends_of_a_pipeline_name_one_service() -> None:
    pipeline = Pipeline("p")
    pipeline.source("in", FEED).sink("out", COLLECT)
    services = {id((o.source or o.sink).service) for o in pipeline.operators.values()}  # type: ignore[union-attr]
    assert len(services) == 1


@pytest.mark.parametrize("end", [FEED, COLLECT])
def test_without_pyarrow_a_run_does_not_begin(
    end: SparkFeed | SparkCollect, monkeypatch: pytest.MonkeyPatch
) -> None:
    end.prepare()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SparkUnavailable, match=r"pip install 'anabranch\[spark\]'"):
        end.prepare()
