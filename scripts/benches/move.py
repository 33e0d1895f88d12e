"""What a move of key groups costs: state of several sizes goes to another instance while tuples of
all keys come at a steady rate.

Half of the key groups of a keyed operator move, with half of its state. Of keys that stay: p99 of
the latency while the move lasts, against before. Of keys that move: the longest pause, which is
the greatest latency of their tuples. Both in one run.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import anabranch as ab
from anabranch.runtime.policies.script import parse_script
from benches.result import Result, Settings

ABOUT = "half of the state of a keyed operator goes to a newcomer, under 2,000 tuples/s"
SIZES_MB = (2, 10, 50, 100, 200)
"""Of the whole state; half of it moves."""
JUDGED_MB = 100
RUNS = 1
KEYS = 4000
PER_S = 2000.0
MOVE_AT_S = 8.0
END_AT_S = 12.0
FILLED_S = KEYS / PER_S + 1.0


class Row(NamedTuple):
    key: int
    born: float
    done: float
    pid: int


class Holder:
    """Keeps so many bytes for each key, in strings of a kilobyte."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __call__(self, key: int, state: dict[str, str], item: Any) -> list[Row]:
        if not state:
            state.update({f"part{n}": os.urandom(512).hex() for n in range(self._size // 1024)})
        return [Row(key, item[1], time.monotonic(), os.getpid())]


def stamped(number: int) -> tuple[int, float]:
    return number % KEYS, time.monotonic()


def key_of(item: tuple[int, float]) -> int:
    return item[0]


def measure(settings: Settings) -> Result:
    result = Result("move", ABOUT)
    pauses: dict[float, list[float]] = {}
    for number in range(settings.runs_or(RUNS)):
        for size_mb in SIZES_MB:
            settings.say(f"move: run {number + 1}, {size_mb} MB of state")
            one = run(settings, f"{number}-{size_mb}", size_mb, result)
            if one is None:
                continue
            before_ms, during_ms, pause_ms, moved = one
            moved_mb = size_mb / 2
            pauses.setdefault(moved_mb, []).append(pause_ms)
            result.add(f"{moved_mb:g} MB: p99 of keys that stay, before", "ms", [before_ms])
            result.add(f"{moved_mb:g} MB: p99 of keys that stay, meanwhile", "ms", [during_ms])
            result.add(f"{moved_mb:g} MB: longest pause of {moved:,} keys", "ms", [pause_ms])
            if size_mb == JUDGED_MB:
                result.at_least("before/meanwhile", [before_ms / during_ms], 0.5)
                result.at_least("a second/longest pause", [1000 / pause_ms], 1.0)
    picture = Path("move.svg")
    draw(pauses, picture)
    result.notes.append(f"how the pause grows with the state: {picture.resolve()}")
    return result


def run(
    settings: Settings, name: str, size_mb: int, result: Result
) -> tuple[float, float, float, int] | None:
    """p99 before and meanwhile, the longest pause (ms), and how many keys moved."""
    out = settings.folder / f"{name}.jsonl"
    pipeline = ab.Pipeline("move", dead_letters=settings.folder / "dead.jsonl")
    numbers = pipeline.source("numbers", ab.generate(stamped, rate=PER_S, duration_s=END_AT_S))
    keyed = numbers.key_by(key_of)
    holder = Holder(size_mb * 1_000_000 // KEYS)
    held = keyed.process("hold", holder, state=dict, scale=ab.Scale(max_instances=2))
    held.sink("out", ab.jsonl(out))
    script = parse_script(f"{MOVE_AT_S} hold duplicate")
    report = ab.start(pipeline, script=script, scaling=False, warm=2).wait()
    if not report.ok:
        result.faults.append(f"{name}: {report.ledger.faults[:2] or report.failure}")
        return None
    return judged([Row(*json.loads(line)) for line in out.open()])


def judged(rows: list[Row]) -> tuple[float, float, float, int]:
    first = rows[0].pid
    moved = {row.key for row in rows if row.pid != first}
    began = rows[0].born
    move_at = began + MOVE_AT_S - 0.2
    over = min(row.done for row in rows if row.pid != first) + 1.0
    over = max([over, *(r.done for r in rows if r.pid != first and r.done - r.born > 0.1)])
    stay = [row for row in rows if row.key not in moved]
    before = [r.done - r.born for r in stay if began + FILLED_S < r.done < move_at]
    during = [r.done - r.born for r in stay if move_at <= r.done <= over]
    pause = max(r.done - r.born for r in rows if r.key in moved and r.born > move_at - 1)
    return 1000 * p99(before), 1000 * p99(during), 1000 * pause, len(moved)


def p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))]


def draw(pauses: dict[float, list[float]], path: Path) -> None:
    """Needs matplotlib, as the other pictures do."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5))
    axes = figure.subplots()
    sizes = sorted(pauses)
    axes.plot(sizes, [max(pauses[s]) for s in sizes], marker="o")
    axes.axhline(1000, linestyle="--", linewidth=1, color="grey")
    axes.set_xlabel("state moved (MB)")
    axes.set_ylabel("longest pause of a moved key (ms)")
    axes.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(path)
