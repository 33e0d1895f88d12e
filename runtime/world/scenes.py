"""Pipelines for worlds, each with an oracle: what must be among its results, whatever happens.

An oracle is sequential and independent of what it judges: plain Python over the numbers that go in.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.runtime.keyed.windows import tumbling
from anabranch.runtime.pipeline.graph import Pipeline, Stream
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.sinks.jsonl import jsonl
from anabranch.runtime.sources.files import files
from anabranch.runtime.sources.generate import generate
from anabranch.runtime.world import graph_oracle
from anabranch.runtime.world.graph_oracle import differences
from anabranch.runtime.world.graph_pipeline import GraphPipeline, as_item
from anabranch.runtime.world.graphs import Graph, GraphNode, Outlet, without_counts
from anabranch.runtime.world.guests import Guest
from anabranch.runtime.world.load import FOLDER, InputLoad
from anabranch.runtime.world.processes import crash, hang
from anabranch.runtime.world.standard_streams import StandardStreams

INSTANCES_MAX = 4
KEYS = 7
BAD = 41
"""A number with this remainder, divided by 50, makes a function raise, or crash."""
DISORDER = 10
"""By how many numbers a tuple may come too early or too late."""
WINDOW_S = 40.0
TEXT = Path(__file__).with_name("timeline.py")
"""A text that is there wherever worlds are."""

Rows = list[Any]
Sinks = dict[str, Rows]
"""What the sinks have got, by their names."""
Counts = dict[str, Counter[Any]]
"""How often each result, by sinks."""


class Scene(ABC):
    """`scaled`, `keyed`: operators that may be ordered to scale, and to move state. `crashes`:
    tuples of it end their process. `decides`: its operators scale by their load. `files`: sinks
    whose results are files of lines; `tables`: folders of Parquet files; `texts`: files of which
    the lines count, whatever they are; `taken`: what those have got that are functions, some twice
    perhaps if processes have died. `may_lose`: `counts` judges deliveries that lose some or give
    some twice; otherwise results depend on the order of tuples. `resumable`: another agent can go
    on with it.
    `served`: its ends have a service."""

    name: str
    scaled: tuple[str, ...]
    keyed: tuple[str, ...] = ()
    crashes: bool = False
    decides: bool = False
    files: tuple[str, ...] = ("out",)
    tables: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    may_lose: bool = False
    resumable: bool = True
    served: bool = False

    @abstractmethod
    def build(self, pipeline: Pipeline, load: InputLoad) -> None: ...

    @abstractmethod
    def faults(self, found: Sinks, load: InputLoad) -> Iterator[str]:
        """What is wrong with the results, where each counts once."""

    def guests(self) -> tuple[Guest, ...]:
        """What the pipeline that was built last deals with in its world."""
        return ()

    @property
    def streams(self) -> StandardStreams | None:
        """Standard input and output of the pipeline that was built last; None: those of the
        system."""
        return None

    def counts(self, found: Sinks, load: InputLoad) -> tuple[Counts, Counts] | None:
        """How often each result is there, and how often it should be. None unless `may_lose`."""
        return None

    def dead(self, load: InputLoad) -> int:
        """How many tuples become dead letters."""
        return 0

    @property
    def taken(self) -> Sinks:
        return {}


@dataclass(frozen=True)
class Single(Scene):
    """One with a single sink. `make`: from a pipeline to the stream of results. `fault`: what is
    wrong with the results of so many numbers, or nothing. `bad`: how many of them become dead
    letters. `wanted`: the results, for deliveries that lose some or give some twice."""

    name: str
    make: Callable[[Pipeline, InputLoad], Stream]
    fault: Callable[[Rows, int], str]
    scaled: tuple[str, ...]
    keyed: tuple[str, ...] = ()
    bad: Callable[[int], int] = lambda n: 0
    wanted: Callable[[int], Counter[Any]] | None = None
    crashes: bool = False

    @property
    def may_lose(self) -> bool:  # type: ignore[override]
        return self.wanted is not None

    def build(self, pipeline: Pipeline, load: InputLoad) -> None:
        self.make(pipeline, load).sink("out", jsonl(FOLDER / "out.jsonl"))

    def faults(self, found: Sinks, load: InputLoad) -> Iterator[str]:
        if told := self.fault(found["out"], load.count):
            yield told

    def counts(self, found: Sinks, load: InputLoad) -> tuple[Counts, Counts] | None:
        if self.wanted is None:
            return None
        return {"out": Counter(found["out"])}, {"out": self.wanted(load.count)}

    def dead(self, load: InputLoad) -> int:
        return self.bad(load.count)


class GraphScene(Scene):
    """A pipeline that was drawn by chance."""

    name = "graph"

    def __init__(self, graph: Graph, load: InputLoad, *, decides: bool) -> None:
        self.graph = graph
        self.decides = decides
        operators: list[GraphNode | Outlet] = [*graph.nodes, *graph.outlets]
        self.scaled = tuple(
            one.name for one in operators if one.scale is not None and one.scale.max_instances > 1
        )
        self.keyed = tuple(n.name for n in graph.nodes if n.keyed and n.name in self.scaled)
        self.files = tuple(o.name for o in graph.outlets if "jsonl" in o.kind)
        self.tables = tuple(o.name for o in graph.outlets if o.kind == "parquet")
        self.may_lose = not graph.timed
        self._pipeline = GraphPipeline(graph, load)
        self._want = graph_oracle.expected(graph, load)

    def build(self, pipeline: Pipeline, load: InputLoad) -> None:
        self._pipeline.build(pipeline)

    @property
    def taken(self) -> Sinks:
        return self._pipeline.taken

    def faults(self, found: Sinks, load: InputLoad) -> Iterator[str]:
        return graph_oracle.faults(self.graph, self._want, found, frozenset(self.taken))

    def counts(self, found: Sinks, load: InputLoad) -> tuple[Counts, Counts] | None:
        items = {name: map(as_item, rows) for name, rows in found.items()}
        stripped = {
            name: Counter((number, without_counts(trail)) for number, trail in some)
            for name, some in items.items()
        }
        return stripped, self._want.due

    def dead(self, load: InputLoad) -> int:
        return self._want.dead


def scale() -> Scale:
    return Scale(max_instances=INSTANCES_MAX)


def numbers(
    pipeline: Pipeline, load: InputLoad, name: str = "numbers", instances: int = 1
) -> Stream:
    """Each number once and somewhere near its place. `instances`: at least."""
    count = load.count

    def disordered(i: int) -> int:
        block = i - i % DISORDER
        return min(block + (i * 7 + 3) % DISORDER, count - 1) if block + DISORDER <= count else i

    source = generate(disordered, rate=count / load.span_s, count=count)
    several = Scale(min_instances=instances, max_instances=INSTANCES_MAX)
    return pipeline.source(name, source, scale=several)


def compared(found: Counter[Any], wanted: Counter[Any]) -> str:
    return differences(found, wanted, lost=False, repeats=False)


# -- without keys --------------------------------------------------------------------------------


def _double(n: int) -> int:
    if n % 50 == BAD:
        raise ValueError(n)
    return 2 * n


def _chain(pipeline: Pipeline, load: InputLoad) -> Stream:
    doubled = numbers(pipeline, load).map("double", _double, scale=scale())
    return doubled.filter("some", lambda n: n % 3 != 0, scale=scale())


def _chain_wanted(count: int) -> Counter[Any]:
    return Counter(2 * n for n in range(count) if n % 50 != BAD and 2 * n % 3 != 0)


def _chain_fault(rows: Rows, count: int) -> str:
    return compared(Counter(rows), _chain_wanted(count))


def _bad(count: int) -> int:
    return sum(n % 50 == BAD for n in range(count))


def _double_or_crash(n: int) -> int:
    if n % 50 == BAD:
        crash()
    return 2 * n


def _poison(pipeline: Pipeline, load: InputLoad) -> Stream:
    return numbers(pipeline, load).map("double", _double_or_crash, scale=scale())


def _double_or_hang(n: int) -> int:
    if n % 50 == BAD:
        hang()
    return 2 * n


def _deadlock(pipeline: Pipeline, load: InputLoad) -> Stream:
    return numbers(pipeline, load).map("double", _double_or_hang, scale=scale())


def _poison_fault(rows: Rows, count: int) -> str:
    return compared(Counter(rows), Counter(2 * n for n in range(count) if n % 50 != BAD))


# -- by key --------------------------------------------------------------------------------------


def _counts(pipeline: Pipeline, load: InputLoad) -> Stream:
    passed = numbers(pipeline, load).map("pass", lambda n: n, scale=scale())
    counted = passed.key_by(lambda n: n % KEYS).fold(
        "count", (0, 0), lambda s, n: (s[0] + 1, s[1] + n), scale=scale()
    )
    return counted.key_by(lambda row: row[0] % 3).fold(
        "again", (0, 0), lambda s, row: (s[0] + 1, s[1] + row[0]), scale=scale()
    )


def _counts_fault(rows: Rows, count: int) -> str:
    """The n-th result of a key differs from the one before by what its n-th tuple has added."""
    by_key: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for key, (n, total) in rows:
        by_key[key].append((n, total))
    added: Counter[tuple[int, int]] = Counter()
    for key, states in by_key.items():
        if [n for n, _ in states] != [*range(1, len(states) + 1)]:
            return f"of key {key}, the states do not come one after the other, each once"
        totals = [0, *(total for _, total in states)]
        added.update((key, b - a) for a, b in itertools.pairwise(totals))
    return compared(added, Counter((n % KEYS % 3, n % KEYS) for n in range(count)))


# -- by event time -------------------------------------------------------------------------------


def _windows(pipeline: Pipeline, load: InputLoad) -> Stream:
    passed = numbers(pipeline, load).map("pass", lambda n: n, scale=scale())
    timed = passed.event_time(float, disorder_s=2 * DISORDER).key_by(lambda n: n % KEYS)
    window = timed.window(tumbling(WINDOW_S), late="emit")
    return window.fold("spans", (0, 0), lambda s, n: (s[0] + 1, s[1] + n), scale=scale())


def _near(pipeline: Pipeline, load: InputLoad) -> Stream:
    """What several instances of a source state of event time comes together where the windows
    are."""
    read = numbers(pipeline, load, instances=3)
    timed = read.event_time(float, disorder_s=2 * DISORDER)
    window = timed.key_by(lambda n: n % KEYS).window(tumbling(WINDOW_S), late="emit")
    return window.fold("spans", (0, 0), lambda s, n: (s[0] + 1, s[1] + n), scale=scale())


def _windows_fault(rows: Rows, count: int) -> str:
    sums: defaultdict[tuple[int, float], list[int]] = defaultdict(list)
    for n in range(count):
        sums[n % KEYS, n // WINDOW_S * WINDOW_S].append(n)
    wanted = Counter((*at, len(ns), sum(ns), 0) for at, ns in sums.items())
    if late := [row for row in rows if len(row) == 3]:
        return f"{len(late)} tuples are late, such as {late[0]}"
    return compared(Counter((k, start, *state, rev) for k, start, _, state, rev in rows), wanted)


# -- with timers ---------------------------------------------------------------------------------


class _Timed:
    """Counts the tuples of each key by spans of event time; a timer ends each span."""

    def on_tuple(self, key: int, state: dict[str, int], n: int, time: Any) -> None:
        span = f"{n // WINDOW_S:g}"
        state[span] = state.get(span, 0) + 1
        time.set_timer((n // WINDOW_S + 1) * WINDOW_S, span)

    def on_timer(self, key: int, state: dict[str, int], timer: Any, time: Any) -> list[Any]:
        return [(key, timer.name, state.pop(timer.name))]


def _timers(pipeline: Pipeline, load: InputLoad) -> Stream:
    passed = numbers(pipeline, load).map("pass", lambda n: n, scale=scale())
    timed = passed.event_time(float, disorder_s=2 * DISORDER).key_by(lambda n: n % KEYS)
    return timed.process("spans", _Timed, state=dict, scale=scale())


def _timers_fault(rows: Rows, count: int) -> str:
    wanted = Counter((n % KEYS, f"{n // WINDOW_S:g}") for n in range(count))
    return compared(Counter(rows), Counter((*at, n) for at, n in wanted.items()))


# -- two streams ---------------------------------------------------------------------------------


def _pairs(pipeline: Pipeline, load: InputLoad) -> Stream:
    left, right = (
        numbers(pipeline, load, name)
        .map(f"{name}-pass", lambda n: n, scale=scale())
        .event_time(float, disorder_s=2 * DISORDER)
        .key_by(lambda n: n % KEYS)
        for name in ("left", "right")
    )
    joined = left.join(right, tumbling(WINDOW_S), late="emit")
    return joined.apply("pairs", lambda key, a, b: (key, a, b), scale=scale())


def _pairs_fault(rows: Rows, count: int) -> str:
    by_place: defaultdict[tuple[int, float], list[int]] = defaultdict(list)
    for n in range(count):
        by_place[n % KEYS, n // WINDOW_S].append(n)
    wanted = Counter((k, a, b) for (k, _), ns in by_place.items() for a in ns for b in ns)
    return compared(Counter(rows), wanted)


# -- a file --------------------------------------------------------------------------------------


def _texts(pipeline: Pipeline, load: InputLoad) -> Stream:
    lines = pipeline.source("lines", files(str(TEXT), split_bytes=400), scale=scale())
    words = lines.flat_map("split", str.split, scale=scale())
    counted = words.key_by(len).fold("count", 0, lambda n, _: n + 1, scale=scale())
    return counted.filter("pass", lambda _: True)


def _texts_fault(rows: Rows, count: int) -> str:
    lengths = Counter(map(len, TEXT.read_text(encoding="utf-8").split()))
    return compared(
        Counter(rows), Counter((k, i + 1) for k, n in lengths.items() for i in range(n))
    )


SCENES = {
    scene.name: scene
    for scene in (
        Single(
            "chain",
            _chain,
            _chain_fault,
            ("numbers", "double", "some"),
            bad=_bad,
            wanted=_chain_wanted,
        ),
        Single("poison", _poison, _poison_fault, ("numbers", "double"), bad=_bad, crashes=True),
        Single("counts", _counts, _counts_fault, ("pass", "count", "again"), ("count", "again")),
        Single("windows", _windows, _windows_fault, ("pass", "spans"), ("spans",)),
        Single("timers", _timers, _timers_fault, ("pass", "spans"), ("spans",)),
        Single("pairs", _pairs, _pairs_fault, ("left-pass", "right-pass", "pairs"), ("pairs",)),
        Single("texts", _texts, _texts_fault, ("lines", "split", "count"), ("count",)),
    )
}
"""Those that are not drawn."""

NEAR = Single("near", _near, _windows_fault, ("numbers", "spans"), ("spans",))
"""Drawn in the place of some with `windows`."""

DEADLOCK = Single(
    "deadlock", _deadlock, _poison_fault, ("numbers", "double"), bad=_bad, crashes=True
)
"""Not drawn for worlds: processes would do little else than hang."""
