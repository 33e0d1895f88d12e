"""A hundred thousand messages at QoS 1 through a broker that is stopped and started ten times."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.runtime.mqtt.brokers import Device, mosquitto, needs_mosquitto
from tests.runtime.mqtt.test_mqtt_runs import found, is_there, listen, numbers

COUNT, RESTARTS = 100_000, 10
LONG_S = 900.0

pytestmark = [needs_mosquitto, pytest.mark.nightly, pytest.mark.timeout(3 * LONG_S)]


class Resending(Device):
    """Counts the messages that it sends once more because it has no acknowledgement."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.resent = 0
        send: Any = self._client._send_publish

        def counted(*words: Any, **given: Any) -> Any:
            self.resent += bool(words[5] if len(words) > 5 else given.get("dup", False))
            return send(*words, **given)

        self._client._send_publish = counted  # type: ignore[method-assign]


def wait_for(is_so: Any) -> None:
    deadline = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_source_loses_nothing_and_recognises_repeats(tmp_path: Path) -> None:
    """The device may publish a message twice, if the broker ends before it has acknowledged it:
    that is for the device to know. What the broker sends again counts once."""
    out, folder = tmp_path / "out.jsonl", tmp_path / "broker"
    folder.mkdir()
    with mosquitto(folder) as broker:
        address = f"mqtt://127.0.0.1:{broker.port}"
        run = listen(ab.mqtt(f"{address}/t/n"), out)
        with Resending(address) as device:
            device.publish("t/n", b"-1", retain=True)
            is_there(out)
            for restart in range(RESTARTS):
                share = COUNT // RESTARTS
                begun = device.begin("t/n", *numbers(restart * share, (restart + 1) * share))
                wait_for(begun[share // 3].is_published)
                broker.stop()
                broker.start()
                wait_for(begun[-1].is_published)
            wait_for(lambda: len(found(out)) > COUNT)
            resent = device.resent
        run.end_input()
        report = run.wait(LONG_S)
    counts = found(out)
    del counts[-1]
    doubled = sum(counts.values()) - COUNT
    repeats = [e.detail for e in report.events if e.label == "mqtt_repeats"]
    print(f"\nsource: {COUNT:,} published, {resent:,} of them sent again by the device")
    print(f"  {len(counts):,} read, {doubled:,} twice; {'; '.join(repeats)}")
    assert report.ledger.balanced
    assert counts.keys() == set(range(COUNT))
    assert repeats
    assert doubled <= resent


def test_a_sink_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    folder.mkdir()
    with mosquitto(folder) as broker:
        address = f"mqtt://127.0.0.1:{broker.port}"
        with Device(address, "t/n"):
            pass  # it has a session now
        pipeline = ab.Pipeline("speaking")
        numbered = pipeline.source("numbers", ab.generate(int, count=COUNT))
        numbered.sink("sent", ab.mqtt(address, to="t/n"))
        run = ab.start(pipeline)
        for restart in range(RESTARTS):
            wait_for(lambda at=(restart + 0.5) / RESTARTS: sent(run) > at * COUNT)
            broker.stop()
            broker.start()
        report = run.wait(LONG_S)
        with Device(address, "t/n") as device:
            wait_for(lambda: len(set(device.taken)) == COUNT)
    doubled = len(device.taken) - COUNT
    print(f"\nsink: {COUNT:,} sent, {len(set(device.taken)):,} have come, {doubled:,} twice")
    assert report.ledger.balanced
    assert set(device.taken) == set(numbers(COUNT))


def sent(run: Any) -> int:
    return int(run.snapshot().operator("sent").tuples_out)
