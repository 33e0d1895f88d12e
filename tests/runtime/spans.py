"""A pipeline with each construct that keeps something, a random input, and what must come of it.

python -m tests.runtime.spans FOLDER SEED INPUT OPTIONS     a run on processes; options as JSON
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import anabranch as ab
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.reporting.report import Report
from tests.runtime.processes import PATIENCE_S

WINDOW_S = 10.0
DISORDER_S = 4.0
LATENESS_S = 4.0
BEGIN_S = 1_000_000_000.0
FILES = ("left", "right")


class Reading(NamedTuple):
    at: float
    key: str
    value: int


def read(line: str) -> Reading:
    at, key, value = line.split()
    return Reading(float(at), key, int(value))


def at_of(one: Reading) -> float:
    return one.at


def key_of(one: Reading) -> str:
    return one.key


def add(total: int, one: Reading) -> int:
    return total + one.value


def paired(key: str, left: Reading, right: Reading) -> tuple[str, int, int]:
    return key, left.value, right.value


def window_of(at: float) -> float:
    return at // WINDOW_S * WINDOW_S


class Sums:
    """Per window, by timers instead of windows."""

    def on_tuple(self, key: str, state: Any, one: Reading, time: ab.KeyTime) -> None:
        start = window_of(one.at)
        state.sums[start] = state.sums.get(start, 0) + one.value
        time.set_timer(start + WINDOW_S, str(start))

    def on_timer(
        self, key: str, state: Any, timer: ab.Timer, time: ab.KeyTime
    ) -> Iterator[tuple[Any, ...]]:
        start = float(timer.name)
        yield key, start, state.sums[start]


@dataclass(frozen=True)
class Spanned:
    """`folder` has the input of both sources and the results. Values are
    large and random, so a sum tells which tuples are in it."""

    folder: Path
    seed: int

    @property
    def bounds(self) -> tuple[float, float]:
        """From where the backfill takes tuples, and where the live run begins."""
        rng = random.Random(self.seed + 1)
        return BEGIN_S + rng.uniform(0, 20), BEGIN_S + rng.uniform(20, 130)

    def lines(self, source: str) -> list[str]:
        """In disorder, of which some tuples come behind the watermark and none too late."""
        rng = random.Random(f"{self.seed} {source}")
        shift = rng.uniform(0, 3)
        return [
            f"{BEGIN_S + shift + n * 0.5 - rng.uniform(0, DISORDER_S + LATENESS_S - 1):.3f} "
            f"k{rng.randrange(4)} {rng.randrange(1, 10**9)}"
            for n in range(300)
        ]

    def write(self) -> None:
        """All of the input, and in `live` what comes from the end of the backfill on, beside older
        tuples."""
        _, end = self.bounds
        for source in FILES:
            lines = self.lines(source)
            first = next(n for n, line in enumerate(lines) if read(line).at >= end)
            old = random.Random(self.seed).randrange(first + 1)
            for name, some in (("all", lines), ("live", lines[old:])):
                (self.folder / name).mkdir(exist_ok=True)
                text = "".join(f"{line}\n" for line in some)
                (self.folder / name / f"{source}.txt").write_text(text)

    def pipeline(self, name: str) -> ab.Pipeline:
        """`name`: which input it reads, all or live."""
        pipeline = ab.Pipeline("spans", dead_letters=self.folder / "dead.jsonl")
        files = {s: ab.files(self.folder / name / f"{s}.txt") for s in FILES}
        left, right = (
            pipeline.source(source, files[source])
            .map(f"read_{source}", read)
            .event_time(at_of, disorder_s=DISORDER_S, idle_s=None)
            .key_by(key_of)
            for source in files
        )
        windows = left.window(ab.tumbling(WINDOW_S), lateness_s=LATENESS_S)
        pairs = left.join(right, ab.tumbling(WINDOW_S), lateness_s=LATENESS_S)
        results = {
            "totals": left.fold("total", 0, add),
            "windows": windows.fold("window", 0, add),
            "timers": left.process("sums", Sums, state={"sums": dict}),
            "pairs": pairs.apply("pair", paired),
        }
        for sink, stream in results.items():
            stream.sink(sink, ab.jsonl(self.folder / f"{sink}.jsonl"))
        return pipeline

    def check(self) -> None:
        """Last results are those of all tuples from the beginning of the span on."""
        begin, _ = self.bounds
        inputs = {s: [r for r in map(read, self.lines(s)) if r.at >= begin] for s in FILES}
        totals, windows = Counter[str](), Counter[tuple[str, float]]()
        for one in inputs["left"]:
            totals[one.key] += one.value
            windows[one.key, window_of(one.at)] += one.value
        pairs = Counter(
            (one.key, one.value, other.value)
            for one in inputs["left"]
            for other in inputs["right"]
            if one.key == other.key and window_of(one.at) == window_of(other.at)
        )
        assert self._last("totals", 1) == {(key,): total for key, total in totals.items()}
        assert self._last("timers", 2) == windows
        found = {(w[0], w[1]): (w[4], w[3]) for w in sorted(self._rows("windows"), key=by_revision)}
        assert {place: value for place, (_, value) in found.items()} == windows
        assert Counter(map(tuple, self._rows("pairs"))) == pairs
        assert not (self.folder / "dead.jsonl").exists()

    def left_out(self, name: str, *, live: bool) -> dict[str, int]:
        """By operator: tuples of this input that are out of the span of the run."""
        begin, end = self.bounds
        found = dict[str, int]()
        for source in FILES:
            lines = (self.folder / name / f"{source}.txt").read_text().splitlines()
            times = [read(line).at for line in lines]
            out = [at < end if live else not begin <= at < end for at in times]
            found[f"read_{source}"] = sum(out)
        return {operator: n for operator, n in found.items() if n}

    def _last(self, sink: str, places: int) -> dict[tuple[Any, ...], int]:
        """Sums only grow."""
        last: dict[tuple[Any, ...], int] = {}
        for row in self._rows(sink):
            place = tuple(row[:places])
            last[place] = max(last.get(place, 0), row[places])
        return last

    def _rows(self, sink: str) -> list[list[Any]]:
        return [*map(json.loads, (self.folder / f"{sink}.jsonl").read_text().splitlines())]


def by_revision(row: list[Any]) -> tuple[Any, ...]:
    return row[0], row[1], row[4]


def run(pipeline: ab.Pipeline, **options: Any) -> Report:
    from anabranch.runtime.live.agent import launch

    report = launch.start(pipeline, Options(**options)).wait(PATIENCE_S)
    assert report.ok, report.failure
    return report


def counted(report: Report) -> dict[str, int]:
    """Tuples that were left out, by operator."""
    return {o.name: sum(o.left_out.values()) for o in report.operators if o.left_out}


def main(folder: str, seed: str, name: str, options: str) -> None:
    run(Spanned(Path(folder), int(seed)).pipeline(name), **json.loads(options))


if __name__ == "__main__":
    from tests.runtime import spans  # by the name under which others unpickle what it keeps

    spans.main(*sys.argv[1:])
