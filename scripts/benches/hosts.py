"""The agent of a host that has nothing to do: how soon it listens, what it holds, what it uses. And
what certificates, a broker, and copies of journals cost between two instances."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from anabranch.authority import Wanted, new_authority, save_identity
from anabranch.runtime.hosts.roles import AGENT
from benches.chain import check
from benches.chain_functions import write_lines
from benches.contestants import ContestantFailed, compete
from benches.figures import in_turns, rates, ratios, spread
from benches.memory import memory_of
from benches.result import Result, Row, Settings
from benches.startup import anabranch

ABOUT = "the agent of a host, idle, among others that gossip; lines between two instances over TCP"
PLAIN, TLS = "without certificates", "with certificates"
BROKER = "through a broker"
MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
TLS_SHARE_MIN = 0.7
ALONE, COPIED = "journals without copies", "journals with a copy elsewhere"
COPIED_SHARE_MIN = 0.5
RUNS, SECONDS = 5, 10.0
AGENTS = 3
SETTLED_S = 3.0
"""Until the agents know each other and are at rest."""
TIMEOUT_S = 60.0
START_MS_MAX, MEMORY_MIB_MAX, CORE_SHARE_MAX = 1000.0, 60.0, 1.0


def measure(settings: Settings) -> Result:
    found: dict[str, list[float]] = {"start": [], "resident": [], "private": [], "core": []}
    for number in range(settings.runs_or(RUNS)):
        folder = settings.folder / str(number)
        folder.mkdir()
        for name, value in look(folder, settings.seconds_or(SECONDS)).items():
            found[name].append(value)
        settings.say(f"hosts: run {number + 1}")
    result = Result("hosts", ABOUT)
    add(result, "from the command until it listens", "ms", found["start"], START_MS_MAX)
    add(result, "resident memory", "MiB", found["resident"], MEMORY_MIB_MAX)
    result.add("private memory", "MiB", found["private"])
    add(result, "processor time", "% of a core", found["core"], CORE_SHARE_MAX)
    if not found["resident"]:
        result.notes.append("this system does not tell what a process holds (/proc is needed)")
    compare(settings, result)
    compare_copies(settings, result)
    return result


def compare(settings: Settings, result: Result) -> None:
    """Lines from one instance to another, with certificates and without, and through a broker, in
    turns."""
    with broker() as url:
        _compare(settings, result, url)


def _compare(settings: Settings, result: Result, url: str) -> None:
    path = settings.folder / "lines.txt"
    write_lines(path, settings.lines)
    tls = str(identity(settings.folder / "tls"))
    ways = {PLAIN: [], TLS: [tls], BROKER: [tls, url]}
    took: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(settings.runs_or(RUNS)):
        for way in in_turns(tuple(ways), number):
            figures = compete("secured_ours", path, *ways[way], folder=settings.folder)
            check(way, figures, settings.lines, result)
            took[way].append(figures["seconds"])
            settings.say(f"hosts: round {number + 1}, {way}: {figures['seconds']:.2f} s")
    for way, seconds in took.items():
        result.add(way, "lines/s", rates(seconds, settings.lines))
    result.at_least(f"{TLS}/{PLAIN}", ratios(took[PLAIN], took[TLS]), TLS_SHARE_MIN)
    result.add(f"{BROKER}/{TLS}", "", ratios(took[TLS], took[BROKER]))


def compare_copies(settings: Settings, result: Result) -> None:
    """The same lines, with `durable="process"` and with copies in another process."""
    path, ways = settings.folder / "lines.txt", {ALONE: [], COPIED: ["copied"]}
    took: dict[str, list[float]] = {way: [] for way in ways}
    used: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(settings.runs_or(RUNS)):
        folder = settings.folder / f"copies-{number}"
        folder.mkdir()
        for way in in_turns(tuple(ways), number):
            figures = compete("copied_ours", path, *ways[way], folder=folder)
            check(way, figures, settings.lines, result)
            took[way].append(figures["seconds"])
            used[way].append(1e6 * figures["cpu_s"] / settings.lines)
            settings.say(f"hosts: round {number + 1}, {way}: {figures['seconds']:.2f} s")
    for way, seconds in took.items():
        result.add(way, "lines/s", rates(seconds, settings.lines))
    result.at_least(f"{COPIED}/{ALONE}", ratios(took[ALONE], took[COPIED]), COPIED_SHARE_MIN)
    for way, microseconds in used.items():
        result.add(f"{way}: processor time", "us/line", microseconds)


def identity(folder: Path) -> Path:
    """A new certificate for an agent of this machine, of a new authority."""
    authority, key = new_authority(), Ed25519PrivateKey.generate()
    chain = authority.issue(Wanted("a", (AGENT,), ("127.0.0.1",)), key.public_key())
    save_identity(folder, key, chain, authority.trusted)
    return folder


def add(result: Result, name: str, unit: str, values: list[float], most: float) -> None:
    if values:
        met = spread(values).median <= most
        result.rows.append(Row(name, unit, values, f"<= {most:g}", met))


def look(folder: Path, seconds: float) -> dict[str, float]:
    """Of one of them, once all have found each other."""
    with ExitStack() as running:
        began = time.monotonic()
        first = running.enter_context(agent(folder, "a", []))
        at = first.address
        start_ms = 1000 * (time.monotonic() - began)
        for number in range(1, AGENTS):
            other = running.enter_context(agent(folder, f"a{number}", ["--seed", at]))
            assert other.address
        time.sleep(SETTLED_S)
        before, began = first.processor_s(), time.monotonic()
        time.sleep(seconds)
        after, ended = first.processor_s(), time.monotonic()
        memory = memory_of(first.pid)
        found = {"start": start_ms}
        if memory is not None:
            found |= {"resident": memory.resident, "private": memory.private}
        if before is not None and after is not None:
            found["core"] = 100 * (after - before) / (ended - began)
        return found


class Agent:
    """Its log is read as far as the line that says where it listens."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        assert process.stderr is not None
        for line in process.stderr:
            told = json.loads(line)
            if told["event"] == "started":
                self.address = str(told["address"])
                return
        raise ContestantFailed("the agent has ended before it listened")

    def processor_s(self) -> float | None:
        """What it has used so far; None if the system does not tell."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def broker() -> Iterator[str]:
    """Its URL: mosquitto where it is installed, else `anabranch broker`."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    ours = [*anabranch(), "broker", "--port", str(port)]
    command = ours if MOSQUITTO is None else [MOSQUITTO, "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"mqtt://127.0.0.1:{port}/bench"
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)


@contextmanager
def agent(folder: Path, name: str, more: list[str]) -> Iterator[Agent]:
    """Until the end of the block."""
    own = ["--name", name, "--data", str(folder / name), "--bind", "127.0.0.1:0", "--log", "json"]
    command = [*anabranch(), "agent", *own, *more]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            yield Agent(process)
        finally:
            process.terminate()
            process.communicate(timeout=TIMEOUT_S)
