"""Looks at real processes, for tests that nothing stays behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300
"""For what comes at once unless something is broken, however busy the machine is."""
LINUX = sys.platform.startswith("linux")

HEAD = f"""
import sys, time, json, os, signal
sys.path.insert(0, {str(ROOT)!r})
from tests.runtime import fake_instance as fake
from anabranch.runtime.live.agent import launch
from anabranch.runtime.live.process import orphans
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.reporting.standard_output import results_fd
from tests.runtime.agent_runs import pids_with_standby, until

def tell(run):
    until(lambda: run.snapshot().idle >= 2)
    pids = pids_with_standby(run) if {LINUX} else run.snapshot().pids
    print(json.dumps(pids), flush=True)
"""


def alive(pid: int) -> bool:
    """A process that has ended but was not reaped yet does not count."""
    if LINUX:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return stat.rpartition(")")[2].split()[0] not in "ZX"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def still_alive_after(pids: Iterable[int], timeout_s: float = PATIENCE_S) -> list[int]:
    """Waits until all have ended; those that have not after the timeout."""
    deadline = time.monotonic() + timeout_s
    left = [p for p in pids if alive(p)]
    while left and time.monotonic() < deadline:
        time.sleep(0.01)
        left = [p for p in left if alive(p)]
    return left


async def eventually(condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    """Return once the condition holds. Raises `TimeoutError`."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


def name_of(pid: int) -> str:
    """As `ps` shows it; empty if it has gone. Only on Linux."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def kill_template_and_standby(pids: Sequence[int]) -> None:
    """The first two of a run that has a standby, so that none is left to fork the others."""
    parent, standby, *_ = pids
    os.kill(parent, signal.SIGSTOP)  # or it might make another standby
    os.kill(standby, signal.SIGKILL)
    assert still_alive_after([standby]) == []
    os.kill(parent, signal.SIGKILL)


def private_kib(pid: int) -> int:
    """Memory that is this process's alone."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_"))


@contextmanager
def program(folder: Path, text: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Run a script of `HEAD` and `text` until it has told its pids. Whatever is left of it and
    of them at the end is killed, so that a failing test leaves nothing either."""
    path = folder / "script.py"
    path.write_text(HEAD + textwrap.dedent(text))
    popen = subprocess.Popen(
        [sys.executable, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        start_new_session=True,
    )
    pids: list[int] = []
    try:
        assert popen.stdout is not None
        line = popen.stdout.readline()
        if not line:
            raise AssertionError(popen.communicate(timeout=PATIENCE_S)[1])
        pids = json.loads(line)
        yield popen, pids
    finally:
        for pid in [popen.pid, *pids]:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        popen.communicate(timeout=PATIENCE_S)
