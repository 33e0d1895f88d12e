"""Brokers in processes of their own: amqtt, as `anabranch broker` runs it, and mosquitto."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
from paho.mqtt.client import Client, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion

from tests.runtime.processes import PATIENCE_S

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
MOSQUITTO = shutil.which("mosquitto", path=PATH)
needs_mosquitto = pytest.mark.skipif(
    MOSQUITTO is None, reason="amqtt cannot do this, and mosquitto is not installed"
)


@contextmanager
def amqtt(port: int = 0) -> Iterator[str]:
    """Its address."""
    command = [sys.executable, "-m", "anabranch.cli", "broker", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            yield line.split("at ")[1].split(";")[0]
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


class Mosquitto:
    """It keeps sessions in `folder` while it is stopped. `settings`: lines of its configuration."""

    def __init__(self, folder: Path, *settings: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port = found.getsockname()[1]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        given = settings or ("allow_anonymous true",)
        user = ("user root",) if os.geteuid() == 0 else ()
        lines = [
            f"listener {self.port} 127.0.0.1",
            "persistence true",
            f"persistence_location {folder}/",
            "max_queued_messages 0",
            *user,
            *given,
        ]
        (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        assert MOSQUITTO is not None
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [MOSQUITTO, "-c", str(self._folder / "mosquitto.conf")], stderr=log
            )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                assert time.monotonic() < deadline, (self._folder / "log").read_text()
                time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE_S)
            self._process = None

    def kill(self) -> None:
        """With SIGKILL: it has no time to say or keep anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)
            self._process = None


@contextmanager
def mosquitto(folder: Path, *settings: str) -> Iterator[Mosquitto]:
    broker = Mosquitto(folder, *settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


class Device:
    """A client of another kind. Publishes at QoS 1 through broken connections, and takes what comes
    for its session, which lasts. Its thread runs within `with`."""

    def __init__(self, address: str, topic: str = "") -> None:
        host, _, port = address.removeprefix("mqtt://").rpartition(":")
        self.taken: list[bytes] = []
        self._topic = topic
        self._where = host, int(port)
        self._client = Client(CallbackAPIVersion.VERSION2, f"device-{topic}", clean_session=False)
        self._client.reconnect_delay_set(1, 1)
        self._client.on_message = lambda _c, _u, message: self.taken.append(bytes(message.payload))
        self._client.max_queued_messages_set(0)

    def __enter__(self) -> Self:
        self._client.connect(*self._where)
        self._client.loop_start()
        deadline = time.monotonic() + PATIENCE_S
        while not self._client.is_connected():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if self._topic:
            self._client.subscribe(self._topic, 1)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def publish(self, topic: str, *payloads: bytes, retain: bool = False, qos: int = 1) -> None:
        """Return when the broker has them."""
        for one in self.begin(topic, *payloads, retain=retain, qos=qos):
            one.wait_for_publish(PATIENCE_S)

    def begin(
        self, topic: str, *payloads: bytes, retain: bool = False, qos: int = 1
    ) -> list[MQTTMessageInfo]:
        return [self._client.publish(topic, payload, qos, retain) for payload in payloads]
