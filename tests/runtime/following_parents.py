"""A forker whose parents are killed, and a module of the user's that the next ones read."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

from anabranch.runtime.live.agent.launch import Run
from anabranch.runtime.live.process.forker import Forker
from anabranch.runtime.live.process.origin import find_origin
from anabranch.runtime.live.process.template_process import (
    TemplateProcess,
    fork_template,
    import_template,
)
from tests.runtime import fake_instance as fake
from tests.runtime.processes import PATIENCE_S, ROOT, alive, eventually, kill_template_and_standby

MODULE = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from tests.runtime import fake_instance as fake

here = fake.three_operators(fake.Endless())
"""
SLEEPS = "import time\ntime.sleep(600)\n"
MEMBERS = ["lines", "work", "out"]


class Made:
    """A forker of `module`, and what has happened to its parents."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.begun: list[int] = []
        self.lost: list[str] = []
        self.followed: list[int] = []
        parent = fork_template(module.here, fake.ENTRY)
        self.forker = Forker(
            parent, lambda *_line: None, self.lost.append, self._follow, self._another
        )
        self.pids: set[int] = set()

    def _follow(self) -> None:
        self.followed.append(self.forker.parent_pid)

    def _another(self) -> TemplateProcess:
        origin = find_origin(self.module.here)
        assert origin is not None
        parent = import_template(self.module.here, origin, fake.ENTRY)
        self.begun.append(parent.pid)
        return parent

    async def lose_both(self) -> None:
        await eventually(lambda: self.forker.standby_pid is not None)
        self.pids |= set(self.forker.pids)
        kill_template_and_standby(self.forker.pids)

    async def kill_next(self, number: int) -> None:
        """The parent that was begun as this one, counted from 1, while it reads the file."""
        await eventually(lambda: len(self.begun) == number)
        pid = self.begun[-1]
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: self.lost or self.forker.parent_pid != pid)

    def rewrite(self, text: str) -> None:
        Path(self.module.__file__ or "").write_text(text)


@asynccontextmanager
async def made(module: ModuleType) -> AsyncIterator[Made]:
    one = Made(module)
    try:
        await one.forker.start(PATIENCE_S)
        one.forker.keep_standby()
        yield one
    finally:
        one.pids |= {*one.forker.pids, *one.begun}
        await one.forker.stop()
        assert not [pid for pid in one.pids if alive(pid)]


def incarnations(run: Run) -> list[int]:
    return [run.snapshot().operator(name).members[0].incarnation for name in MEMBERS]
