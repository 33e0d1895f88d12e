"""The runtime, and the gateway to Spark, meet the world around them by ports only: time, chance,
streams between processes, the disk. Read from the source text."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.test_architecture import FACE, PACKAGE, ROOT, Rule, Source, found_by

ASKS_THE_SYSTEM = {
    f"{FACE}.runtime.ports.clock": "it is the one that does",
    f"{FACE}.runtime.live.process.reseeding": "it gives new seeds to generators of the user's",
    f"{FACE}.runtime.explorer": "it says how long a search has taken",
    f"{FACE}.runtime.world.swarm": "it has a deadline",
}
"""Modules and rooms of runtime that may ask the system for time or chance, and why."""
CLOCKS = {"time": set[str](), "secrets": set[str](), "random": {"Random"},
          "uuid": {"UUID"}}  # fmt: skip
"""Modules that tell time or draw, and what of them does neither."""
CLOCK_CALLS = {"urandom", "getrandom", "times", "now", "utcnow", "today"}
"""Functions of `os` and `datetime` that do."""
STREAM_CALLS = {
    *("create_server", "create_unix_server", "create_connection", "create_unix_connection"),
    *("open_connection", "open_unix_connection", "start_server", "start_unix_server"),
}

SPARKS_SIDE = tuple(
    f"{FACE}.spark_bridge.{name}"
    for name in ("client", "datasource", "local", "sending", "sessions", "spreading", "verbs")
)
"""Modules of the bridge that run in processes of Spark, or talk to it. They wait in real time."""
FILE_MODULES = {"fcntl", "shutil", "tempfile"}
FILE_CALLS = {
    *("mkdir", "unlink", "touch", "is_dir", "iterdir", "glob", "rglob", "walk"),
    *("read_bytes", "read_text", "write_bytes", "write_text"),
}
"""Methods of paths that ask the system, but for those that a store has, too."""


CHANGES_FILES = {
    f"{FACE}.runtime.ports": "it has the ports",
    f"{FACE}.runtime.live.process": "folders of sockets, descriptors and pipes of real processes: "
    "in worlds, runtime/world/processes.py stands for all of it",
    f"{FACE}.runtime.live.agent.run_files": "it removes the socket of an instance that has ended",
    f"{FACE}.runtime.processing.plain_calls": "it says on standard error why a process ends",
    f"{FACE}.runtime.reporting.standard_output": "it moves descriptors, before anything is written",
    f"{FACE}.runtime.sources.raw": "it opens what a user has, to read it",
}
"""Modules and rooms of runtime that write or remove files beside the port, and why."""
CHANGING_MODULES = {"shutil", "tempfile"}
CHANGING_CALLS = {"mkdir", "unlink", "write_bytes", "write_text", "rmdir"}
"""Methods of paths that do."""
CHANGING_OS_CALLS = {
    *("write", "writev", "pwrite", "splice", "ftruncate", "truncate", "fsync", "fdatasync"),
    *("open", "replace", "rename", "unlink", "remove", "mkdir", "rmdir", "link", "symlink"),
}


def runs_in_worlds(source: Source) -> bool:
    """Whether it has to meet the world around it through ports."""
    is_gateways = source.layer == "spark_bridge" and not source.name.startswith(SPARKS_SIDE)
    return source.layer == "runtime" or is_gateways


def against_the_clock(source: Source) -> Iterator[str]:
    """Only the port asks the system for the time, or for a number that nobody has seeded."""
    if not runs_in_worlds(source) or any(map(source.name.startswith, ASKS_THE_SYSTEM)):
        return
    told = "is for runtime/ports/clock.py alone, whose functions stand for it"
    for found in source.imports:
        module, _, name = found.module.partition(".")
        if module in CLOCKS and (name or not CLOCKS[module]) and name not in CLOCKS[module]:
            yield f"{source.at(found)}: {found.module} {told}"
    for node in ast.walk(ast.parse(source.text)):
        match node:
            case ast.Attribute(value=ast.Name("os" | "datetime" | "date"), attr=name):
                asks = name in CLOCK_CALLS
            case ast.Attribute(value=ast.Name("random" | "uuid" as module), attr=name):
                asks = name not in CLOCKS[module]
            case ast.Call(func=ast.Attribute(attr="Random") | ast.Name("Random"), args=[]):
                asks, name = True, "a Random without a seed"
            case _:
                continue
        if asks:
            yield f"{source.path.name}:{node.lineno}: {name} {told}"


def against_the_transport(source: Source) -> Iterator[str]:
    """Only the port opens sockets by an address."""
    if not runs_in_worlds(source) or source.name == f"{FACE}.runtime.ports.sockets":
        return
    for node in ast.walk(ast.parse(source.text)):
        match node:
            case ast.Call(func=ast.Attribute(attr=name), keywords=words) if name in STREAM_CALLS:
                if not any(word.arg == "sock" for word in words):
                    told = f"{name} is for runtime/ports/sockets.py alone"
                    yield f"{source.path.name}:{node.lineno}: {told}"


def against_the_store(source: Source) -> Iterator[str]:
    """The gateway to Spark reaches the disk by its port only."""
    if source.layer != "spark_bridge" or not runs_in_worlds(source):
        return
    told = "is for runtime/ports/disk.py alone, whose store stands for it"
    for found in source.imports:
        if found.top in FILE_MODULES:
            yield f"{source.at(found)}: {found.module} {told}"
    for node in ast.walk(ast.parse(source.text)):
        match node:
            case ast.Attribute(value=ast.Name("os"), attr=name):
                asks = name != "path" and not name.startswith("O_")
            case ast.Call(func=ast.Attribute(attr=name)):
                asks = name in FILE_CALLS
            case ast.Call(func=ast.Name("open" as name)):
                asks = True
            case _:
                continue
        if asks:
            yield f"{source.path.name}:{node.lineno}: {name} {told}"


def against_changes(source: Source) -> Iterator[str]:
    """What a run writes it writes by the port, so that the disk of a world can fail it."""
    if source.layer != "runtime" or any(map(source.name.startswith, CHANGES_FILES)):
        return
    told = "is for runtime/ports/disk.py alone, whose store stands for it"
    for found in source.imports:
        if found.top in CHANGING_MODULES:
            yield f"{source.at(found)}: {found.module} {told}"
    for node in ast.walk(ast.parse(source.text)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name("os"), attr=name), args=args):
                reads = name == "open" and "O_RDONLY" in ast.dump(args[1])
                asks = name in CHANGING_OS_CALLS and not reads
            case ast.Call(func=ast.Attribute(attr=name)):
                asks = name in CHANGING_CALLS
            case ast.Call(func=ast.Name("open" as name), args=[_, *args]):
                asks = not (args and isinstance(args[0], ast.Constant) and args[0].value == "rb")
            case _:
                continue
        if asks:
            yield f"{source.path.name}:{node.lineno}: {name} {told}"


def test_only_the_port_changes_files() -> None:
    assert found_by(against_changes, PACKAGE) == []


@pytest.mark.parametrize("listed", CHANGES_FILES)
def test_what_may_change_files_beside_the_port_does(
    listed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(CHANGES_FILES, listed)
    assert found_by(against_changes, [s for s in PACKAGE if s.name.startswith(listed)])


def test_only_the_port_listens_and_dials() -> None:
    assert found_by(against_the_transport, PACKAGE) == []


def test_the_gateway_to_spark_reaches_the_disk_by_its_port() -> None:
    assert found_by(against_the_store, PACKAGE) == []


def test_only_the_port_asks_the_system_for_time_and_chance() -> None:
    assert found_by(against_the_clock, PACKAGE) == []


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        *(
            (against_the_clock, "anabranch.runtime.live.instance.a", text)
            for text in (
                "import time",
                "from time import monotonic",
                "def f():\n  import secrets",
                "from random import choice",
                "import random\nrandom.random()",
                "import random\nrandom.Random()",
                "from random import Random\nRandom()",
                "import uuid\nuuid.uuid4()",
                "import os\nos.urandom(8)",
                "from datetime import datetime\ndatetime.now()",
            )
        ),
        (against_the_transport, "anabranch.runtime.live.a", "loop.create_unix_server(f, path)"),
        (against_the_transport, "anabranch.runtime.live.a", "asyncio.open_connection('host', 1)"),
        (against_the_transport, "anabranch.spark_bridge.a", "asyncio.start_server(f, 'host', 1)"),
        (against_the_clock, "anabranch.spark_bridge.a", "import time"),
        (against_changes, "anabranch.runtime.sinks.a", "import shutil"),
        (against_changes, "anabranch.runtime.sinks.a", "import os\nos.open(path, os.O_RDWR)"),
        (against_changes, "anabranch.runtime.sinks.a", "with open('a', 'w') as f:\n  pass"),
        (against_changes, "anabranch.runtime.sinks.a", "path.unlink()"),
        (against_the_store, "anabranch.spark_bridge.a", "import shutil"),
        (against_the_store, "anabranch.spark_bridge.a", "import os\nos.fsync(1)"),
        (against_the_store, "anabranch.spark_bridge.a", "with open('a') as f:\n  pass"),
        (against_the_store, "anabranch.spark_bridge.a", "path.unlink()"),
    ],
)
def test_each_rule_finds_what_breaks_it(rule: Rule, name: str, text: str) -> None:
    assert len(list(rule(Source(name, ROOT / "made_up.py", text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import random\nrng = random.Random(7)",
        "from random import Random\nrng = Random(f'{seed}')",
        "import uuid\nkinds = (uuid.UUID,)",
        "from anabranch.runtime.ports import clock\nclock.monotonic()",
        "def f(time):\n  return time.watermark",
    ],
)
def test_a_seeded_generator_and_what_is_only_called_time_are_fine(text: str) -> None:
    source = Source("anabranch.runtime.keyed.a", ROOT / "made_up.py", text)
    assert [*against_the_clock(source)] == []
