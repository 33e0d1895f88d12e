"""Runs whose broker, link, host or processes fail, with mosquitto."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.reporting.report import Report
from tests.runtime.agent_runs import until
from tests.runtime.mqtt.brokers import PATH, Device, Mosquitto, mosquitto, needs_mosquitto
from tests.runtime.mqtt.test_mqtt_runs import (
    dies_once,
    end,
    found,
    is_there,
    listen,
    numbers,
    publish,
    same,
)
from tests.runtime.processes import PATIENCE_S

OPENSSL, PASSWD = (shutil.which(name, path=PATH) for name in ("openssl", "mosquitto_passwd"))
pytestmark = needs_mosquitto


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    folder = tmp_path / "broker"
    folder.mkdir()
    with mosquitto(folder) as broker:
        yield broker


class Cable:
    """Between a client and a broker, at work within `with`: runs begin before, since they fork.
    `cut`: from then on what goes through the connections that there are is swallowed, and neither
    end hears of it."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self._cut = 0
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Cable:
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[:1]:
            thread.join()
        for one in self._ends:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in (*self._ends, self._listener):
            one.close()

    def cut(self) -> None:
        self._cut = self.connections

    def _begin(self, work: Any, *args: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=args))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._to))
            self._ends += [near, far]
            self.connections += 1
            self._begin(self._carry, near, far, self.connections)
            self._begin(self._carry, far, near, self.connections)

    def _carry(self, one: socket.socket, other: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if number > self._cut:
                    other.sendall(data)
            if number > self._cut:  # else the other end is not told
                other.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
def test_a_silent_link_is_given_up_and_nothing_is_lost(broker: Mosquitto, tmp_path: Path) -> None:
    out, address = tmp_path / "out.jsonl", f"mqtt://127.0.0.1:{broker.port}"
    link = Cable(broker.port)
    run = listen(ab.mqtt(f"mqtt://127.0.0.1:{link.port}/t/n", keepalive_s=1), out)
    with link, Device(address) as device:
        device.publish("t/n", b"-1", retain=True)
        is_there(out)
        link.cut()
        device.publish("t/n", *numbers(200))
        report = end(run, lambda: len(found(out)) == 201)
    assert found(out) == Counter(range(-1, 200))
    assert link.connections > 1
    assert [e.kind for e in report.events if e.kind in ("waits", "goes on")][:2] == [
        "waits",
        "goes on",
    ]


def test_payloads_are_large_and_too_large(broker: Mosquitto, tmp_path: Path) -> None:
    out, address = tmp_path / "out.jsonl", f"mqtt://127.0.0.1:{broker.port}"
    run = listen(ab.mqtt(f"{address}/t/n", format="text", spool_bytes=2**20), out)
    with Device(address) as device:
        device.publish("t/n", b"-", retain=True)
        is_there(out)
        for _ in range(3):
            device.publish("t/n", b"x" * 10_000_000)
        device.publish("t/n", b"x" * 17_000_000, b"last")
        report = end(run, lambda: "last" in found(out))
    assert sorted((len(text), n) for text, n in found(out).items()) == [
        (1, 1),
        (4, 1),
        (10_000_000, 3),
    ]
    assert report.ledger.dead_letters == 1


def test_a_host_that_is_not_there_is_named_and_does_not_keep_the_run_from_ending(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for host in (f"no.such.host.invalid:{port}", f"127.0.0.1:{port}"):
        run = listen(ab.mqtt(f"mqtt://{host}/t"), tmp_path / "out.jsonl")
        until(lambda run=run: [e for e in run.snapshot().events if e.kind == "waits"])  # type: ignore[misc]
        run.end_input()
        report = run.wait(PATIENCE_S)
        (told,) = (e.detail for e in report.events if e.kind == "waits")
        assert told.startswith(f"mqtt://{host} cannot be reached: [Errno ")


@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
def test_the_pipeline_says_what_a_death_of_the_source_may_do(
    broker: Mosquitto, tmp_path: Path, delivery: Any
) -> None:
    out, marker = tmp_path / "out.jsonl", tmp_path / "died"
    address = f"mqtt://127.0.0.1:{broker.port}"
    pipeline = ab.Pipeline("listening", delivery=delivery)
    source = ab.mqtt(f"{address}/t/n", format=dies_once(marker, b"700"))
    pipeline.source("taken", source).map("same", same).sink("out", ab.jsonl(out))
    run = ab.start(pipeline)
    with Device(address) as device:
        device.publish("t/n", b"-1", retain=True)
        is_there(out)
        device.publish("t/n", *numbers(1500), b"9999")
        until(lambda: 9999 in found(out))
        run.end_input()
        run.wait(PATIENCE_S)
    assert marker.exists()
    if delivery == "at-least-once":
        assert set(found(out)) == {*range(-1, 1500), 9999}
    else:
        assert max(found(out).values()) == 1


def make_certificates(folder: Path) -> None:
    """`ca.pem`; `server.pem` and `server.key` for 127.0.0.1."""
    commands = (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem",
        "req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr",
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
        "-extfile names -out server.pem",
    )
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for command in commands:
        subprocess.run(
            [str(OPENSSL), *command.split()], cwd=folder, check=True, capture_output=True
        )


@pytest.mark.skipif(not (OPENSSL and PASSWD), reason="needs openssl and mosquitto_passwd")
def test_a_broker_with_tls_and_passwords_is_read_though_it_comes_later(tmp_path: Path) -> None:
    out, folder = tmp_path / "out.jsonl", tmp_path / "broker"
    folder.mkdir()
    make_certificates(folder)
    (folder / "login").write_text("plant:s3cret")
    make = [str(PASSWD), "-b", "-c", str(folder / "users"), "plant", "s3cret"]
    subprocess.run(make, check=True, capture_output=True)
    broker = Mosquitto(
        folder,
        f"certfile {folder}/server.pem",
        f"keyfile {folder}/server.key",
        "allow_anonymous false",
        f"password_file {folder}/users",
    )
    url = f"mqtts://127.0.0.1:{broker.port}"
    given = {"login": f"file:{folder / 'login'}", "ca_file": str(folder / "ca.pem")}
    run = listen(ab.mqtt(f"{url}/t/n", **given), out)  # type: ignore[call-overload]
    until(lambda: [e for e in run.snapshot().events if e.kind == "waits"])
    broker.start()
    try:
        until(lambda: [e for e in run.snapshot().events if e.kind == "goes on"])
        run.end_input()
        run.wait(PATIENCE_S)
        sink = ab.mqtt(url, to="t/n", retain=True, **given)  # type: ignore[call-overload]
        assert publish(sink, 300).ledger.balanced
        run = listen(ab.mqtt(f"{url}/t/n", **given), out)  # type: ignore[call-overload]
        report = end(run, lambda: out.exists() and 299 in found(out))
        told = refused(ab.mqtt(f"{url}/t/n", ca_file=given["ca_file"]), tmp_path)
        assert "the broker refuses the connection: Not authorized" in told
        told = refused(ab.mqtt(f"{url}/t/n", login=given["login"]), tmp_path)
        assert "CERTIFICATE_VERIFY_FAILED" in told
    finally:
        broker.stop()
    assert "s3cret" not in str(report) + (folder / "log").read_text()


def refused(source: Any, folder: Path) -> str:
    run = listen(source, folder / "never.jsonl")
    until(lambda: [e for e in run.snapshot().events if e.kind == "waits"])
    run.end_input()
    report: Report = run.wait(PATIENCE_S)
    return next(e.detail for e in report.events if e.kind == "waits")


@pytest.mark.slow
def test_a_run_whose_agent_is_killed_goes_on_with_each_message_once(
    broker: Mosquitto, tmp_path: Path
) -> None:
    out, address = tmp_path / "out.jsonl", f"mqtt://127.0.0.1:{broker.port}"
    file = tmp_path / "listening.py"
    file.write_text(
        textwrap.dedent(f"""
        import anabranch as ab

        pipeline = ab.Pipeline("listening")
        taken = pipeline.source("taken", ab.mqtt("{address}/t/n"))
        taken.map("same", lambda n: n).sink("out", ab.jsonl({str(out)!r}))
        """)
    )
    command = [sys.executable, "-m", "anabranch.cli", "run", str(file), "--state", "state"]
    with Device(address) as device:
        device.publish("t/n", b"-1", retain=True)
        for share in range(3):
            more = ["--resume"] if share else []
            run = subprocess.Popen([*command, *more], cwd=tmp_path, stderr=subprocess.DEVNULL)
            try:
                is_there(out)
                part = numbers(1000 * share, 1000 * (share + 1))
                device.publish("t/n", *part[:500])
                device.begin("t/n", *part[500:])
                until(lambda share=share: len(found(out)) > 1000 * share + 200)  # type: ignore[misc]
            finally:
                run.send_signal(signal.SIGKILL)
                run.wait(PATIENCE_S)
        run = subprocess.Popen(
            [*command, "--resume"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert run.stdout is not None
        assert b"goes on" in run.stdout.readline()  # from now on it knows what Ctrl-C is
        until(lambda: len(found(out)) == 3001)
        run.send_signal(signal.SIGINT)
        assert run.wait(PATIENCE_S) in (0, 130)
        run.stdout.close()
    assert found(out) == Counter(range(-1, 3000))
    assert not os.path.exists(tmp_path / "state" / "mqtt-taken-0")
