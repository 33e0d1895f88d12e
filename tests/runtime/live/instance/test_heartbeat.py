"""Neighbours notice each other's silence, and none of their own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import anabranch as ab
from anabranch.runtime.live.instance import heartbeat
from anabranch.runtime.live.instance.heartbeat import SUSPECT_S, TICK_S, Heartbeat
from anabranch.runtime.live.instance.instance import Instance
from anabranch.runtime.live.link.messages import Suspect, Waits
from anabranch.runtime.reporting.status import id_from_wire
from tests.runtime.live.instance.test_keyed_watermarks import Spoken
from tests.runtime.network import Kept, Network
from tests.runtime.processes import eventually
from tests.runtime.virtual_time import in_virtual_time


async def begun(tmp_path: Path, source: Spoken) -> Network:
    pipeline = ab.Pipeline("heartbeat")
    pipeline.source("said", source).sink("out", Kept())
    network = Network(pipeline, tmp_path)
    await network.start()
    return network


def heartbeat_of(instance: Instance) -> Heartbeat:
    return Heartbeat(
        instance.membership,
        instance.neighbourhood,
        instance.agent_client.send,
        has_begun=instance.lifetime.began.is_set,
    )


def suspects(network: Network, instance: Instance, seconds: list[float]) -> list[str]:
    """Whom an instance suspects after ticks of these lengths in which nothing is heard."""
    told: list[str] = []

    def take(_home: object, message: object) -> None:
        if isinstance(message, Suspect):
            told.append(str(id_from_wire(message.peer)))

    network.take = take  # type: ignore[method-assign, assignment]
    heartbeat = heartbeat_of(instance)
    for tick in seconds:
        heartbeat.tick(tick)
    del network.take
    return told


@in_virtual_time
async def test_a_neighbour_that_says_nothing_for_long_is_suspected_once(tmp_path: Path) -> None:
    source = Spoken()
    network = await begun(tmp_path, source)
    (reader,) = network.of("said")
    ticks = int(SUSPECT_S / TICK_S)
    assert suspects(network, reader, [TICK_S] * (ticks - 1)) == []
    assert suspects(network, reader, [TICK_S]) == ["out.0"]
    assert suspects(network, reader, [TICK_S] * (ticks - 1)) == []
    source.end()
    await network.finish()


@in_virtual_time
async def test_a_word_in_between_ends_the_doubt(tmp_path: Path) -> None:
    source = Spoken()
    network = await begun(tmp_path, source)
    (reader,) = network.of("said")
    (writer,) = network.of("out")
    suspects(network, reader, [SUSPECT_S - TICK_S])
    channel = reader.neighbourhood.channel_to(writer.me)
    assert channel.silent_s > 0
    async with asyncio.timeout(5):
        while channel.silent_s:  # the writer's own tick, or its answer to the reader's
            writer.neighbourhood.channel_to(reader.me).statements.later()
            await asyncio.sleep(0.005)
    assert suspects(network, reader, [TICK_S]) == []
    source.end()
    await network.finish()


@in_virtual_time
async def test_who_was_kept_from_listening_blames_nobody_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A long call of a function keeps the loop from hearing anything."""
    monkeypatch.setattr(heartbeat, "TICK_S", 0.01)
    counted: list[float] = []
    monkeypatch.setattr(Heartbeat, "tick", lambda _, seconds: counted.append(seconds))
    task = asyncio.create_task(Heartbeat(*cast(Any, (None,) * 4)).run())
    await asyncio.sleep(0)
    _ = [sum(range(10**6)) for _ in range(20)]  # in which the loop hears nothing
    await eventually(lambda: len(counted) >= 3)
    task.cancel()
    assert max(counted) <= 0.01


@pytest.mark.parametrize("begun", [False, True])
def test_an_instance_that_has_not_begun_shows_that_it_lives(begun: bool) -> None:
    """Such as the next incarnation of one whose work is done: it tells of no work."""
    told: list[object] = []
    nothing: Any = SimpleNamespace(neighbours=(), channels=())
    Heartbeat(nothing, nothing, told.append, has_begun=lambda: begun).tick(TICK_S)
    assert told == [Waits()] * (not begun)


@in_virtual_time
async def test_an_instance_that_only_waits_to_end_shows_that_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last words are not acknowledged as long as its neighbour is gone."""
    pipeline = ab.Pipeline("parting")
    source = Spoken()
    pipeline.source("said", source).map("work", str).sink("out", Kept())
    network = Network(pipeline, tmp_path, journals=True)
    await network.start()
    told: list[Any] = []
    (worker,) = network.of("work")
    network.kill(network.of("out")[0].me)
    monkeypatch.setattr(network, "take", lambda _client, said: told.append(said))
    worker.lifetime.end("left")
    await asyncio.sleep(5 * TICK_S)
    assert told.count(Waits()) >= 4
    assert not network.running[worker.me].done()
    await network.abandon()
