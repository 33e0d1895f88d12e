"""A pipeline between standard input and output, with its oracle."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.sinks.stdout import stdout
from anabranch.runtime.sources.stdin import stdin
from anabranch.runtime.world.graph_oracle import differences
from anabranch.runtime.world.load import InputLoad
from anabranch.runtime.world.scenes import KEYS, Scene, Sinks, scale
from anabranch.runtime.world.standard_streams import StandardStreams

STDIO = "stdio"
FIRST_S = 0.05
"""A world begins a little before its run."""


class StdioScene(Scene):
    """Lines of standard input, and two sinks that share standard output. What a sink had written
    when its process died is written again; the last of it may be half a line."""

    name = STDIO
    files = ()
    texts = ("stdout",)
    scaled = ("double", "count")
    keyed = ("count",)
    resumable = False

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"{seed} stdio")
        self.is_file = self._rng.random() < 0.5
        self._streams: StandardStreams | None = None

    def build(self, pipeline: Pipeline, load: InputLoad) -> None:
        self._streams = StandardStreams(_fed(load, self._rng), self._rng, is_file=self.is_file)
        numbers = pipeline.source("lines", stdin()).map("number", int)
        numbers.map("double", _doubled, scale=scale()).sink("x", stdout(format="jsonl"))
        by_key = numbers.key_by(lambda n: n % KEYS)
        counted = by_key.fold("count", 0, lambda n, _: n + 1, scale=scale())
        counted.map("row", _row).sink("y", stdout(format="jsonl"))

    @property
    def streams(self) -> StandardStreams | None:
        return self._streams

    def faults(self, found: Sinks, load: InputLoad) -> Iterator[str]:
        wanted = _wanted(load.count)
        texts = {_text(row): row for row in wanted}
        lines = [line for line in found["stdout"] if line]
        halves = [line for line in lines if line not in texts]
        for line in halves:
            if not any(text.startswith(line) for text in texts):
                yield f"a line is not one that was written: {line!r}"
        whole = Counter(texts[line] for line in lines if line in texts)
        if told := differences(whole, wanted, lost=False, repeats=True):
            yield told


def _doubled(n: int) -> list[object]:
    return ["x", 2 * n]


def _row(counted: tuple[int, int]) -> list[object]:
    return ["y", *counted]


def _text(row: tuple[object, ...]) -> str:
    return json.dumps(row, separators=(",", ":"))


def _wanted(count: int) -> Counter[tuple[object, ...]]:
    of_keys = Counter(n % KEYS for n in range(count))
    counts = [("y", key, i + 1) for key, n in of_keys.items() for i in range(n)]
    return Counter([*(("x", 2 * n) for n in range(count)), *counts])


def _fed(load: InputLoad, rng: random.Random) -> list[tuple[float, bytes]]:
    """The lines, cut anywhere into pieces."""
    fed: list[tuple[float, bytes]] = []
    first = 0
    for at_s, count in load.bursts:
        data = b"".join(b"%d\n" % n for n in range(first, first + count))
        first += count
        while data:
            size = rng.randint(1, 400)
            fed.append((FIRST_S + at_s, data[:size]))
            data = data[size:]
    return fed
