"""Runs with a real broker: amqtt, and mosquitto where it is installed."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.live.agent.agent import Agent
from anabranch.runtime.live.agent.launch import Run
from anabranch.runtime.live.agent.scripted import choose
from anabranch.runtime.live.link.messages import Decide
from anabranch.runtime.policies.script import Scripted
from anabranch.runtime.reporting.report import Report
from tests.runtime.agent_runs import until
from tests.runtime.mqtt.brokers import MOSQUITTO, Device, amqtt, mosquitto, needs_mosquitto
from tests.runtime.processes import PATIENCE_S

COUNT = 2000


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Of mosquitto: amqtt drops messages for clients that are away or slow."""
    if MOSQUITTO is None:
        pytest.skip("amqtt cannot do this, and mosquitto is not installed")
    folder = tmp_path / "broker"
    folder.mkdir()
    with mosquitto(folder) as broker:
        yield f"mqtt://127.0.0.1:{broker.port}"


def found(out: Path) -> Counter[Any]:
    """Of whole lines: the last one may be in work."""
    whole, _, _ = out.read_text().rpartition("\n")
    return Counter(map(json.loads, whole.splitlines()))


def listen(source: Any, out: Path, **options: Any) -> Run:
    """A run that reads, as soon as the broker knows it."""
    pipeline = ab.Pipeline("listening")
    pipeline.source("taken", source).map("same", same).sink("out", ab.jsonl(out))
    return ab.start(pipeline, **options)


def same(value: Any) -> Any:
    return value


def publish(sink: Any, count: int = COUNT) -> Report:
    pipeline = ab.Pipeline("speaking")
    pipeline.source("numbers", ab.generate(same, count=count)).sink("sent", sink)
    return ab.run(pipeline)


def end(run: Run, delivered: Callable[[], bool]) -> Report:
    until(delivered)
    run.end_input()
    report = run.wait(PATIENCE_S)
    assert report.ledger.balanced
    return report


def numbers(*of: int) -> list[bytes]:
    return [str(number).encode() for number in range(*of)]


def is_there(out: Path) -> None:
    """The source is subscribed: a retained message has come."""
    until(lambda: out.exists() and out.stat().st_size > 0)


def dies_once(marker: Path, at: bytes) -> Callable[[bytes], int]:
    def decode(payload: bytes) -> int:
        if payload == at and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return int(payload)

    return decode


def arrives_once(address: str, tmp_path: Path, at: bytes) -> None:
    """Though the source is killed when it reads `at`."""
    out, marker = tmp_path / "out.jsonl", tmp_path / "died"
    run = listen(ab.mqtt(f"{address}/t/+", format=dies_once(marker, at)), out)
    with Device(address) as device:
        device.publish("t/n", b"-1", retain=True)
        is_there(out)
        device.publish("t/n", *numbers(COUNT))
        report = end(run, lambda: len(found(out)) > COUNT)
    assert found(out) == Counter(range(-1, COUNT))
    assert marker.exists()
    assert [e.kind for e in report.events if e.kind in ("died", "resumed")] == ["died", "resumed"]


def test_each_message_counts_once_though_the_source_is_killed(address: str, tmp_path: Path) -> None:
    arrives_once(address, tmp_path, b"700")


def test_the_broker_for_trials_brings_what_is_published(tmp_path: Path) -> None:
    out, marker = tmp_path / "out.jsonl", tmp_path / "died"
    with amqtt() as address:
        run = listen(ab.mqtt(f"{address}/t/+", format=dies_once(marker, b"19")), out)
        with Device(address) as device:
            device.publish("t/n", b"-1", retain=True)
            is_there(out)
            for number in numbers(20):
                device.publish("t/n", number)
            end(run, lambda: len(found(out)) > 20)
    counted = found(out)
    del counted[-1]  # amqtt sends what it retains once more for each connection
    assert counted == Counter(range(20))
    assert marker.exists()


def test_a_sink_that_is_killed_repeats_and_loses_nothing(address: str, tmp_path: Path) -> None:
    marker = tmp_path / "died"
    with Device(address, "t/n"):
        pass  # it has a session now

    def to(number: int) -> str:
        if number == 700 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "t/n"

    report = publish(ab.mqtt(address, to=to))
    with Device(address, "t/n") as device:
        until(lambda: len(set(device.taken)) == COUNT)
    assert set(device.taken) == set(numbers(COUNT))
    assert [e.kind for e in report.events if e.kind == "may_repeat"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_sink_publishes_at_each_quality_of_service(
    address: str, tmp_path: Path, qos: int
) -> None:
    out = tmp_path / "out.jsonl"
    with Device(address, "t/n"):
        pass
    report = publish(ab.mqtt(address, to="t/n", qos=qos, retain=True), 200)
    assert report.ledger.balanced
    if qos == 0:  # for a client that is away, a broker keeps none but the retained one
        run = listen(ab.mqtt(f"{address}/t/n", with_topic=True), out)
        is_there(out)
        end(run, lambda: True)
        (message,) = map(json.loads, out.read_text().splitlines())
        assert (message["topic"], message["value"], message["retained"]) == ("t/n", 199, True)
        return
    with Device(address, "t/n") as device:
        until(lambda: len(device.taken) >= 200)
    assert Counter(device.taken)[b"0"] == 1
    assert set(device.taken) == set(numbers(200))


def test_a_bad_payload_is_counted_and_acknowledged(address: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    run = listen(ab.mqtt(f"{address}/t/n"), out)
    with Device(address) as device:
        device.publish("t/n", b"-1", retain=True)
        is_there(out)
        device.publish("t/n", b"{", b"5", b"NaN", b"\xff", b"6")
        report = end(run, lambda: len(found(out)) == 3)
    assert report.ledger.dead_letters == 3
    assert found(out) == Counter([-1, 5, 6])


def test_what_comes_between_two_runs_waits_in_the_session(address: str, tmp_path: Path) -> None:
    out, later = tmp_path / "out.jsonl", tmp_path / "later.jsonl"
    source = ab.mqtt(f"{address}/t/n")
    with Device(address) as device:
        device.publish("t/n", b"-1", retain=True)
    first = listen(source, out)
    is_there(out)
    end(first, lambda: True)
    with Device(address) as device:
        device.publish("t/n", *numbers(100))
    end(listen(source, later), lambda: later.exists() and len(found(later)) >= 100)
    assert set(range(100)) <= set(found(later))


@needs_mosquitto
@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_a_broker_that_is_stopped_and_started_loses_nothing(tmp_path: Path, version: Any) -> None:
    out, folder = tmp_path / "out.jsonl", tmp_path / "broker"
    folder.mkdir()
    with mosquitto(folder) as broker:
        address = f"mqtt://127.0.0.1:{broker.port}"
        run = listen(ab.mqtt(f"{address}/t/n", version=version), out)
        with Device(address) as device:
            device.publish("t/n", b"-1", retain=True)
            is_there(out)
            for share in range(3):
                part = numbers(3000 * share, 3000 * (share + 1))
                device.begin("t/n", *part)
                until(lambda share=share: len(found(out)) > 3000 * share + 500)  # type: ignore[misc]
                broker.stop()
                broker.start()
            report = end(run, lambda: len(found(out)) > 9000)
    assert set(found(out)) == set(range(-1, 9000))
    assert [e.kind for e in report.events if e.kind == "goes on"]


@needs_mosquitto
@pytest.mark.slow
def test_instances_share_a_subscription_while_they_join_and_leave(tmp_path: Path) -> None:
    out, folder = tmp_path / "out.jsonl", tmp_path / "broker"
    folder.mkdir()
    with mosquitto(folder) as broker:
        address = f"mqtt://127.0.0.1:{broker.port}"
        pipeline = ab.Pipeline("sharing")
        source = ab.mqtt(f"{address}/$share/g/t/n", version="5")
        taken = pipeline.source("taken", source, scale=ab.Scale(max_instances=3))
        taken.map("same", same).sink("out", ab.jsonl(out))
        run = ab.start(pipeline)
        with Device(address) as device:
            ready = 0
            while not (out.exists() and len(found(out)) > 0):
                device.publish("t/n", b"-1")
                ready += 1
            sent = 0
            for action, instances in (("duplicate", 3), ("leave", 1)):
                while run.snapshot().operator("taken").instances != instances:
                    run._tell(lambda agent, action=action: decide(agent, action))  # type: ignore[misc]
                    device.publish("t/n", *numbers(sent, sent + 100))
                    sent += 100
            device.publish("t/n", *numbers(sent, sent + 100))
            sent += 100
            report = end(run, lambda: len(found(out)) > sent)
    assert set(found(out)) == set(range(-1, sent))
    assert sum(found(out).values()) <= sent + ready
    assert len([e for e in report.events if e.kind == "left"]) == 2


def decide(agent: Agent, action: Any) -> None:
    """By any instance that may; it refuses while it does something else."""
    decision = Scripted(0.0, "taken", action, 1)
    member = choose(decision, agent.roster.active("taken"), random.Random(0))
    if member is not None:
        agent.messenger.send(member.id, Decide(action=action, n=1))
