"""A drawn graph as a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from anabranch.runtime.keyed.windows import tumbling
from anabranch.runtime.pipeline.graph import Pipeline, Stream
from anabranch.runtime.plan.ends import Sink, Source
from anabranch.runtime.ports import clock
from anabranch.runtime.sinks.discard import discard
from anabranch.runtime.sinks.foreach import foreach
from anabranch.runtime.sinks.jsonl import jsonl
from anabranch.runtime.sinks.parquet import parquet
from anabranch.runtime.sources.generate import generate
from anabranch.runtime.sources.items import items
from anabranch.runtime.world.bursts import Bursts
from anabranch.runtime.world.graphs import (
    DISORDER,
    Graph,
    GraphNode,
    Item,
    Outlet,
    further,
    rank,
    step,
    time_of,
)
from anabranch.runtime.world.load import FOLDER, InputLoad
from anabranch.runtime.world.outside import Outside, Sender

COLUMNS = "number long, trail string"
ROWS, EVERY_S = 40, 0.1
"""Of each Parquet file: so few that there are several."""


class GraphPipeline:
    """`taken`: what the sinks have got that are functions, by their names."""

    def __init__(self, graph: Graph, load: InputLoad) -> None:
        self.graph = graph
        self.load = load
        self.taken: dict[str, list[Any]] = {
            outlet.name: [] for outlet in graph.outlets if outlet.kind == "foreach"
        }

    def build(self, pipeline: Pipeline) -> None:
        streams: dict[str, Stream] = {}
        for node in self.graph.nodes:
            if node.kind == "source":
                streams[node.name] = self._source(pipeline, node, self.graph.sources.index(node))
            else:
                above = [streams[name] for name in node.above]
                into = above[0] if len(above) == 1 else pipeline.merge(*above)
                streams[node.name] = _operator(into, node)
        for outlet in self.graph.outlets:
            self._end(streams[outlet.above], outlet)

    def _source(self, pipeline: Pipeline, node: GraphNode, place: int) -> Stream:
        every, load = len(self.graph.sources), self.load
        make = partial(_tuple, place, every)
        source: Source = Bursts(load.bursts, make)
        if self.graph.paced:
            source = generate(make, rate=load.count / load.span_s, count=load.count)
        elif self.graph.supply == "outside":
            source = Outside(Sender(load.bursts), make)
        elif self.graph.supply == "items":
            source = items([make(n) for n in range(load.count)])
        stream = pipeline.source(node.name, source, scale=node.scale)
        if self.graph.timed:
            stream = stream.event_time(_time_of, disorder_s=float(every * 2 * DISORDER))
        return stream

    def _end(self, stream: Stream, outlet: Outlet) -> None:
        kind, taken = outlet.kind, self.taken.get(outlet.name, [])
        sink: Sink = jsonl(FOLDER / f"{outlet.name}.jsonl")
        if kind == "foreach":
            sink = foreach(partial(_take, taken))
        elif kind == "discard":
            sink = discard()
        elif kind == "parquet":
            sink = parquet(FOLDER / outlet.name, COLUMNS, rows=ROWS, every_s=EVERY_S)
        if kind == "keyed jsonl":
            stream.key_by(_last_key).sink(outlet.name, sink, scale=outlet.scale)
        else:
            stream.sink(outlet.name, sink, scale=outlet.scale)


def as_item(row: Sequence[Any]) -> Item:
    """What an operator gets: a tuple, or the result of a window, which is its greatest tuple."""
    if len(row) == 2:
        return row[0], row[1]
    key, start, _, (name, count, (number, trail)), _ = row
    return number, further(trail, f"{name}:{key}@{start:g}={count}")


def _tuple(place: int, every: int, n: int) -> Item:
    return n * every + place, ""


def _time_of(item: Item) -> float:
    return time_of(item[0])


def _take(taken: list[Any], row: Any) -> None:
    taken.append(row)


def _last_key(row: Sequence[Any]) -> Any:
    """What the last operator by key took the tuple for, so that its order is kept to the end."""
    _, trail = as_item(row)
    step = trail.rpartition(" ")[2]
    return step.partition("#")[0] if "#" in step else int(as_item(row)[0])


def _operator(into: Stream, node: GraphNode) -> Stream:
    match node.kind:
        case "count":
            by_key = into.key_by(partial(_key_of, node))
            return by_key.process(node.name, partial(_count, node), state=_zero, scale=node.scale)
        case "window":
            timed = into.key_by(partial(_key_of, node))
            window = timed.window(tumbling(node.window_s), time=_time_of_row, late="emit")
            state = (node.name, 0, (-1, ""))
            return window.fold(node.name, state, partial(_greatest, node), scale=node.scale)
        case _:
            return into.flat_map(node.name, partial(_step, node), scale=node.scale)


def _work(node: GraphNode) -> None:
    if node.cost_s:
        clock.pause(node.cost_s)


def _key_of(node: GraphNode, row: Sequence[Any]) -> int:
    return node.key_of(as_item(row)[0])


def _time_of_row(row: Sequence[Any]) -> float:
    return time_of(as_item(row)[0])


def _zero() -> list[int]:
    return [0]


def _count(node: GraphNode, key: int, state: list[int], row: Sequence[Any]) -> list[Item]:
    _work(node)
    number, trail = as_item(row)
    state[0] += 1
    return [(number, further(trail, f"{node.name}:{key}#{state[0]}"))]


def _greatest(node: GraphNode, state: Sequence[Any], row: Sequence[Any]) -> Any:
    _work(node)
    name, count, best = state
    return name, count + 1, max((best[0], best[1]), as_item(row), key=rank)


def _step(node: GraphNode, row: Sequence[Any]) -> list[Item]:
    _work(node)
    return step(node, as_item(row))
