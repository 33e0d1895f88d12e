"""Runs of `anabranch run slow.py` that are slow while a file `slowly` is there."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.runtime.processes import PATIENCE_S

WAIT = """
    import os, time

    def wait(one):
        time.sleep(0.01 if os.path.exists("slowly") else 0)
        return int(one)
"""
"""The beginning of the file: a function that can be slow."""


@contextmanager
def slowly(folder: Path) -> Iterator[None]:
    (folder / "slowly").touch()
    yield
    (folder / "slowly").unlink()


@contextmanager
def command(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Killed at the end, if it goes on."""
    with subprocess.Popen(
        [sys.executable, "-m", "anabranch.cli", "run", "slow.py", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def wait_until_lines(running: subprocess.Popen[str], file: Path, count: int) -> None:
    """Until the command has written so many lines into the file, and goes on."""
    deadline = time.monotonic() + PATIENCE_S
    while not file.exists() or file.read_bytes().count(b"\n") < count:
        assert running.poll() is None, running.communicate()[0]
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
