"""One agent's incarnation as seen from outside: the program that carries out the run, what it
tells."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from faults import processes
from faults.settings import Settings

SCRIPTS = Path(__file__).resolve().parent.parent
LINE_BYTES_MAX = 2**20


class Happening(NamedTuple):
    """An event of the run; `at_s` on the clock of this machine, the same for all incarnations."""

    at_s: float
    operator: str
    kind: str
    instance: str
    detail: str


@dataclass(slots=True)
class Told:
    """What the last line said of one instance."""

    name: str
    pid: int
    keeper: bool
    state: str
    silent_s: float
    waiting_for: list[str]


@dataclass(slots=True)
class Incarnation:
    number: int
    process: asyncio.subprocess.Process
    script: str
    seconds: float
    """Of the script."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every line, and at the end."""
    began_s: float = 0.0
    """Zero of the run's clock, which scripts and events count from."""
    running: bool = False
    parent: int = 0
    operators: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: dict[tuple[Any, ...], Happening] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    """Of every process that was ever told of."""
    failed: str = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def over(self) -> bool:
        return self.process.returncode is not None

    @property
    def tuples(self) -> int:
        """Grows while anything goes on."""
        return sum(o["in"] + o["out"] for o in self.operators.values())

    def members(self, operator: str | None = None) -> Iterator[Told]:
        for name, known in self.operators.items():
            if operator in (None, name):
                yield from (Told(*member) for member in known["members"])

    def keeper(self, operator: str) -> int | None:
        """Its process, if it has one."""
        return next((m.pid for m in self.members(operator) if m.keeper and m.pid), None)

    def take(self, message: dict[str, Any]) -> None:
        if "failed" in message:
            self.failed = f"{message['failed']} {message['detail'][-1500:]}".strip()
            return
        began_s = message["began_s"]
        # The least delayed line is the truest; a run's clock may begin anew once, at its start.
        if not self.running or began_s < self.began_s:
            self.began_s = began_s
        self.running = message["phase"] in ("running", "ending", "closing")
        self.parent = message["parent"]
        self.operators = message["operators"]
        self.names |= {member.pid: member.name for member in self.members()}
        self.note(message["events"])

    def note(self, events: list[list[Any]]) -> None:
        for t, operator, kind, instance, detail in events:
            found = Happening(self.began_s + t, operator, kind, instance, detail)
            self.events.setdefault((t, operator, kind, instance, detail), found)

    async def follow(self) -> None:
        """Until it ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if line.endswith(b"\n"):  # one that was killed may have half told something
                self.take(json.loads(line))
                self.news.set()
        await self.process.wait()
        self.news.set()

    async def until_running(self, timeout_s: float) -> bool:
        """Whether all its instances are there; not so if it ends before, or takes too long."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.running and not self.over:
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            return False
        return self.running


async def begin(
    number: int, settings: Settings, script: str, seconds: float, *, resume: bool
) -> Incarnation:
    path = settings.folder / f"script{number}.txt"
    path.write_text(script, encoding="utf-8")
    path_of_modules = os.pathsep.join(filter(None, [str(SCRIPTS), os.environ.get("PYTHONPATH")]))
    own = {processes.MARK: settings.mark, "PYTHONPATH": path_of_modules}
    places = {name: str(settings.base) for name in ("TMPDIR", "XDG_RUNTIME_DIR")}
    command = [str(settings.folder / "settings.json"), str(path), *(["--resume"] * resume)]
    words = os.open(settings.words, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "faults.drive"),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=words,
            limit=LINE_BYTES_MAX,
            env={**os.environ, **own, **places},
            start_new_session=True,
        )
    finally:
        os.close(words)
    return Incarnation(number, process, script, seconds)
