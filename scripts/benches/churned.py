"""What is kept of an instance that has gone: memory of the agent and of two instances that stay,
while one between them comes and goes all the time.

Both keep the latest ones one by one, and the agent events and samples, all up to a limit; the
longer the run, the less of that is in the figure.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import anabranch as ab
from anabranch.runtime.policies.script import parse_script
from anabranch.runtime.reporting.snapshot import RunSnapshot
from benches.result import Result, Settings

SECONDS_MAX = 40.0
RATE = 2_000
END_S = 0.5
"""Before the end it is looked for the last time."""
STAYING = ("numbers", "out")


class Look(NamedTuple):
    """Bytes of memory that no other process shares."""

    gone: int
    agent: int
    staying: float


def measure_churn(settings: Settings, seconds: float, result: Result) -> None:
    seconds = min(seconds, SECONDS_MAX)
    settings.say(f"storm: {seconds:g} s of instances that come and go beside some that stay")
    if not Path("/proc/self/smaps_rollup").exists():
        result.notes.append("memory: this system does not tell what a process has for itself")
        return
    half, end = _looks(settings, seconds)
    if (gone := end.gone - half.gone) <= 0:
        result.notes.append("memory: no instance has gone, so this says nothing about what is kept")
        return
    result.add("kept per instance that has gone, at the agent", "bytes", [_per(gone, half, end, 1)])
    name = "kept per instance that has gone, in one that stays"
    result.add(name, "bytes", [_per(gone, half, end, 2)])
    result.notes.append(f"memory: {half.gone} instances had gone, then {end.gone}")


def _per(gone: int, half: Look, end: Look, field: int) -> float:
    return round((end[field] - half[field]) / gone, 1)


def _looks(settings: Settings, seconds: float) -> tuple[Look, Look]:
    pipeline = ab.Pipeline("churn", dead_letters=settings.folder / "churn.jsonl")
    numbers = pipeline.source("numbers", ab.generate(itself, rate=RATE, duration_s=seconds))
    work = numbers.map("work", itself, scale=ab.Scale(max_instances=4))
    work.sink("out", ab.foreach(itself))
    script = parse_script(
        f"every 0.04 from 0.2 to {seconds}: work duplicate\n"
        f"every 0.04 from 0.22 to {seconds}: work leave\n"
    )
    began = time.monotonic()
    run = ab.start(pipeline, script=script, scaling=False, warm=4)
    looks = []
    for at in (seconds / 2, max(seconds / 2, seconds - END_S)):
        time.sleep(max(0.0, began + at - time.monotonic()))
        looks.append(_look(run.snapshot()))
    run.wait()
    return looks[0], looks[1]


def _look(snapshot: RunSnapshot) -> Look:
    staying = [m.pid for name in STAYING for m in snapshot.operator(name).members]
    gone = snapshot.operator("work").leaves
    return Look(gone, _private_bytes(os.getpid()), fmean(map(_private_bytes, staying)))


def _private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def itself(number: int) -> int:
    return number
