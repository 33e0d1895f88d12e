"""Readings of real motes, published as SenML at their recorded times, some thousand times as fast:
the means by window are the oracle's."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.workloads import sensors
from anabranch.workloads.sensors import Mean, Reading, motes
from tests.runtime.agent_runs import until
from tests.runtime.mqtt.brokers import Device, mosquitto, needs_mosquitto
from tests.runtime.processes import PATIENCE_S
from tests.workloads.shared_data import lines_of

PACKS = 3_000
FASTER, PERIOD_S = 5_000, 0.01
WINDOW_S = 60.0
BEGAN_S = datetime(2010, 5, 9, tzinfo=UTC).timestamp()
"""Time 0 of the rows, as the packs have it."""
THERE = b'[{"n":"urn:dev:mote:0:there","vb":true}]'


def temperatures(record: dict[str, Any]) -> list[Reading]:
    *_, mote, quantity = record["n"].split(":")
    if quantity != "temperature":
        return []
    return [Reading(f"mote{mote}", record["t"] - BEGAN_S, record["v"])]


def publish(device: Device, packs: list[str]) -> None:
    """At their recorded times. Return when the broker has all of them."""
    times = [json.loads(pack)[0]["bt"] for pack in packs]
    began_s, sent = time.monotonic(), []
    for pack, at in zip(packs, times, strict=True):
        while (at - times[0]) / FASTER > time.monotonic() - began_s:
            time.sleep(PERIOD_S)
        mote = json.loads(pack)[0]["bn"].split(":")[3]
        sent += device.begin(f"motes/{mote}", pack.encode())
    for one in sent:
        one.wait_for_publish(PATIENCE_S)


def means_in(path: Path) -> dict[str, list[Mean]]:
    means: dict[str, list[Mean]] = {}
    for line in path.read_text().splitlines():
        one = Mean(*json.loads(line)[:4])
        means.setdefault(one.device, []).append(one)
    return {device: sorted(found) for device, found in means.items()}


@needs_mosquitto
def test_readings_that_devices_publish_have_the_means_of_the_oracle(tmp_path: Path) -> None:
    packs = lines_of("iot/wsn_singlehop_senml.jsonl.gz")[:PACKS]
    rows = lines_of("iot/wsn_singlehop.csv.gz")[: PACKS + 1]
    disorder_s = sensors.disorder_of(rows, motes)
    expected = sensors.expected(rows, motes, window_s=WINDOW_S, disorder_s=disorder_s)
    assert expected.late == []
    out, folder = tmp_path / "out.jsonl", tmp_path / "broker"
    folder.mkdir()
    with mosquitto(folder) as broker:
        address = f"mqtt://127.0.0.1:{broker.port}"
        source = ab.mqtt(f"{address}/motes/+", format="senml")
        reader: Any = temperatures
        run = ab.start(
            sensors.pipeline(
                source, ab.jsonl(out), reader, window_s=WINDOW_S, disorder_s=disorder_s
            )
        )
        with Device(address) as device:
            device.publish("motes/0", THERE, retain=True)
            until(lambda: taken(run) >= 1)
            publish(device, packs)
        until(lambda: taken(run) >= 1 + sum(len(json.loads(pack)) for pack in packs))
        run.end_input()
        report = run.wait(PATIENCE_S)
    assert report.ledger.balanced
    assert report.ledger.dead_letters == 0
    found = means_in(out)
    assert found.keys() == expected.means.keys()
    for name, means in expected.means.items():
        assert [mean[:3] for mean in found[name]] == [mean[:3] for mean in means]
        assert [mean.mean for mean in found[name]] == pytest.approx([mean.mean for mean in means])


def taken(run: Any) -> int:
    return int(run.snapshot().operator("lines").tuples_out)
