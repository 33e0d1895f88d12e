"""The command line from nothing: what a user waits for."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benches.contestants import ContestantFailed
from benches.figures import in_turns
from benches.result import Result, Settings

ABOUT = "milliseconds from the start of a command"
RUNS = 10
TIMEOUT_S = 60.0
FIRST = b"hello\n"
PIPELINE = """\
import anabranch as ab

pipeline = ab.Pipeline("tiny")
pipeline.source("words", ab.items(["hello"])).map("same", str).sink("out", ab.stdout())
"""


def measure(settings: Settings) -> Result:
    file = settings.folder / "tiny.py"
    file.write_text(PIPELINE)
    command = anabranch()
    contestants: dict[str, Callable[[], list[float]]] = {
        "python -c pass": lambda: [until_exit([sys.executable, "-c", "pass"], file.parent)],
        "anabranch --version": lambda: [until_exit([*command, "--version"], file.parent)],
        "anabranch run, a tiny pipeline": lambda: until_first_tuple_and_exit(
            [*command, "run", file.name], file.parent
        ),
    }
    runs: dict[str, list[list[float]]] = {name: [] for name in contestants}
    for number in range(settings.runs_or(RUNS)):
        for name in in_turns(list(contestants), number):
            runs[name].append(contestants[name]())
        settings.say(f"startup: round {number + 1}")
    result = Result("startup", ABOUT)
    for name, many in runs.items():
        times = list(zip(*many, strict=True))
        heads = [""] if len(times) == 1 else [": first tuple", ": exit"]
        for head, seconds in zip(heads, times, strict=True):
            result.add(f"{name}{head}", "ms", [1000 * s for s in seconds])
    return result


def anabranch() -> list[str]:
    """As a user starts it, by the script that the installation made."""
    script = shutil.which("anabranch", path=str(Path(sys.executable).parent))
    return [script] if script else [sys.executable, "-m", "anabranch"]


def until_exit(command: list[str], folder: Path) -> float:
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S
    )
    ended = time.monotonic()
    if done.returncode:
        raise ContestantFailed(f"{command}: {done.stderr.decode(errors='replace')[-2000:]}")
    return ended - began


def until_first_tuple_and_exit(command: list[str], folder: Path) -> list[float]:
    began = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as popen:
        assert popen.stdout is not None
        line = popen.stdout.readline()
        first = time.monotonic()
        popen.communicate(timeout=TIMEOUT_S)
    ended = time.monotonic()
    if popen.returncode or line != FIRST:
        raise ContestantFailed(f"{command} printed {line!r}, exit code {popen.returncode}")
    return [first - began, ended - began]
