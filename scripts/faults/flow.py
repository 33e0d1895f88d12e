r"""The pipeline that has to stand all this, and its input, which the seed decides.

    lines -> split -> count ----------> counted      words: counted, summed up by first letter
                          \-> letters -/
    made -> wait -> trail -> traced                  numbers: one source, so their order is known
                \-> spans -/

Every result of a keyed operator is [key, [n, total]]: the n-th of its key, and the sum of the
numbers of all tuples until then. So each result tells by its difference to the one before which
tuple it comes from, in whatever order they came, and that no state was lost in between.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anabranch as ab
from faults.clocked import Clocked
from faults.settings import Settings

VOCABULARY = 1500
WORDS_MAX = 12
WORD_NUMBERS = 16
"""Numbers of tuples per line; more than words."""
KEYS = 40
SPAN_S = 1.0
GROUPS = 64
INSTANCES_MAX = 3
SPLIT_BYTES = 32 * 2**10
WAIT_SHARE, WAIT_S = 0.01, 0.004
"""How many calls of `wait` do wait, and for how long."""

SCALED = ("lines", "split", "count", "letters", "counted", "trail", "spans", "traced")
KEYED = ("count", "letters", "counted", "trail", "spans", "traced")
SINGLE = ("made", "wait")
"""One instance each, which keeps the order of the numbers."""
OPERATORS = (*SCALED, *SINGLE)
EDGES = (
    ("lines", "split"),
    ("split", "count"),
    ("count", "letters"),
    ("count", "counted"),
    ("letters", "counted"),
    ("made", "wait"),
    ("wait", "trail"),
    ("wait", "spans"),
    ("trail", "traced"),
    ("spans", "traced"),
)

State = tuple[int, int]
"""How many tuples of the key have come, and the sum of their numbers."""
Row = list[Any]
"""[key, [n, total]]"""


def words_of(seed: int, number: int) -> list[int]:
    """The words of a line, by number; few are frequent, and some lines have none."""
    rng = random.Random(seed * 2**32 + number)
    return [int(VOCABULARY * rng.random() ** 3) for _ in range(rng.randrange(WORDS_MAX))]


def write_input(settings: Settings) -> None:
    with open(settings.input, "w", encoding="ascii", newline="\n") as file:
        for number in range(settings.lines):
            words = " ".join(map(str, words_of(settings.seed, number)))
            file.write(json.dumps([number, words]) + "\n")


def split(line: Row) -> list[tuple[str, int]]:
    """The kept words of a line with the numbers of their tuples."""
    number, text = line
    numbered = enumerate(map(int, text.split()))
    return [(name(word), number * WORD_NUMBERS + at) for at, word in numbered if kept(word)]


def kept(word: int) -> bool:
    """A third of all words is dropped."""
    return word % 3 != 0


def name(word: int) -> str:
    return f"{chr(ord('a') + word % 26)}{word}"


def first(item: Any) -> Any:
    return item[0]


def letter(counted: tuple[str, State]) -> str:
    """Capital, for results of both operators go to one file."""
    return counted[0][0].upper()


def add(state: State, item: tuple[str, int]) -> State:
    return state[0] + 1, state[1] + item[1]


def add_count(state: State, counted: tuple[str, State]) -> State:
    """`n` of a word's result: these are the numbers 1, 2, 3, ... of every word."""
    return state[0] + 1, state[1] + counted[1][0]


def made(number: int) -> Row:
    return [number % KEYS, number]


def trail(key: int, state: list[int], item: Row, _time: Any) -> list[Row]:
    state[0] += 1
    state[1] += item[1]
    return [[f"t{key}", list(state)]]


def span(key: int, _window: Any, items: list[Row]) -> list[Row]:
    return [[f"s{key}", [len(items), sum(number for _, number in items)]]]


class At:
    """Event time of a made number: those of one second are in one window."""

    def __init__(self, per_s: int) -> None:
        self.per_s = per_s

    def __call__(self, item: Row) -> float:
        return float(item[1] / self.per_s)


class Noted:
    """A function that leaves a line at its first call in a process: when it got its first tuple."""

    def __init__(self, operator: str, fn: Callable[..., Any], path: Path) -> None:
        self.operator = operator
        self.fn = fn
        self.path = path
        self._pid = 0

    def __call__(self, *args: Any) -> Any:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            note(self.path, f"{self.operator} {self._pid} {time.monotonic()}\n")
        return self.fn(*args)


class Waiting(Noted):
    """Passes tuples on, with several calls open at a time and some of them waiting."""

    async def __call__(self, item: Row) -> Row:
        super().__call__(item)
        if random.random() < WAIT_SHARE:
            await asyncio.sleep(WAIT_S)
        return item


def note(path: Path, line: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode())
    os.close(fd)


def pipeline_of(settings: Settings) -> ab.Pipeline:
    def noted(operator: str, fn: Callable[..., Any]) -> Noted:
        return Noted(operator, fn, settings.first_calls)

    scale = ab.Scale(max_instances=INSTANCES_MAX)
    pipeline = ab.Pipeline("chaos", groups=GROUPS, dead_letters=settings.dead)

    file = ab.files(settings.input, format="jsonl", split_bytes=SPLIT_BYTES)
    bytes_per_s = settings.input.stat().st_size / settings.input_s
    pace = settings.epoch_s, settings.seconds, settings.healed
    lines = pipeline.source("lines", Clocked(file, bytes_per_s, *pace), scale=scale)
    words = lines.flat_map("split", noted("split", split), scale=scale)
    count = words.key_by(first).fold("count", (0, 0), noted("count", add), scale=scale)
    letters = count.key_by(letter).fold("letters", (0, 0), noted("letters", add_count), scale=scale)
    results = count.merge(letters).key_by(first)
    results.sink("counted", ab.jsonl(settings.counted), scale=scale)

    numbers = ab.generate(noted("made", made), count=settings.made)
    source = Clocked(numbers, settings.made_per_s, *pace)
    wait = pipeline.source("made", source).map("wait", Waiting("wait", first, settings.first_calls))
    keyed = wait.event_time(At(settings.made_per_s)).key_by(first)
    trails = keyed.process("trail", noted("trail", trail), state=lambda: [0, 0], scale=scale)
    spans = keyed.window(ab.tumbling(SPAN_S)).apply("spans", noted("spans", span), scale=scale)
    both = trails.merge(spans).key_by(first)
    both.sink("traced", ab.jsonl(settings.traced), scale=scale)
    return pipeline
