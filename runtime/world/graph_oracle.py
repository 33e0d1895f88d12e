"""What must come out of a drawn graph: worked out operator by operator, as if there were one
instance of each and the tuples came sorted; and what the results show of the order of tuples.

    results of each sink       every tuple as often as it should be, with its trail
    counts of each key         each number once, from 1 on: its state was never lost, nor older
    order of each key          tuples of one origin come in the order in which they were made

An origin is a key of the operator before, or a source with one instance, behind which only
operators with one instance follow.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from anabranch.runtime.world.graph_pipeline import as_item
from anabranch.runtime.world.graphs import Graph, GraphNode, Item, rank, step, without_counts
from anabranch.runtime.world.load import InputLoad

SHOWN = 5
_COUNTED = re.compile(r"(?P<name>\w+):(?P<key>\d+)#(?P<count>\d+)")


@dataclass
class Expected:
    """`due`: by sink. `counts`: how many tuples each key of an operator has. `dead`: how many
    tuples become dead letters."""

    due: dict[str, Counter[Item]] = field(default_factory=dict)
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    dead: int = 0


def expected(graph: Graph, load: InputLoad) -> Expected:
    found, made = Expected(), dict[str, list[Item]]()
    every = len(graph.sources)
    for node in graph.nodes:
        if node.kind == "source":
            place = graph.sources.index(node)
            made[node.name] = [(n * every + place, "") for n in range(load.count)]
            continue
        into = [item for above in node.above for item in made[above]]
        made[node.name] = [*_made(node, into, found)]
    for outlet in graph.outlets:
        if outlet.kind != "discard":
            found.due[outlet.name] = Counter(made[outlet.above])
    return found


def _made(node: GraphNode, into: list[Item], found: Expected) -> Iterator[Item]:
    match node.kind:
        case "count":
            for number, trail in into:
                key = node.key_of(number)
                found.counts[node.name, key] += 1
                yield number, f"{trail} {node.name}:{key}#".strip()
        case "window":
            windows: defaultdict[tuple[int, int], list[Item]] = defaultdict(list)
            for item in into:
                windows[node.key_of(item[0]), node.window_of(item[0])].append(item)
            for (key, window), items in windows.items():
                number, trail = max(items, key=rank)
                start = window * node.window_s
                yield number, f"{trail} {node.name}:{key}@{start:g}={len(items)}".strip()
        case _:
            for item in into:
                try:
                    yield from step(node, item)
                except ValueError:
                    found.dead += 1


# -- verdicts ------------------------------------------------------------------------------------


def faults(
    graph: Graph, want: Expected, rows: dict[str, list[Any]], may_repeat: frozenset[str]
) -> Iterator[str]:
    """What is wrong with the results, by sinks. `may_repeat`: sinks that may get some twice."""
    found: dict[str, list[Item]] = {}
    for name, some in rows.items():
        if late := [row for row in some if len(row) not in (2, 5)]:
            yield f"{len(late)} tuples are late at {name}, such as {late[0]}"
            return
        found[name] = [as_item(row) for row in some]
    for name, due in want.due.items():
        got = Counter((number, without_counts(trail)) for number, trail in found[name])
        yield from _differences(name, got, due, repeats=name in may_repeat)
    items = [item for some in found.values() for item in some]
    yield from _counts(want, items)
    yield from _order_of_sources(graph, items)
    for outlet in graph.outlets:
        if outlet.kind == "keyed jsonl":
            yield from _order_at_sink(outlet.name, found[outlet.name])


def differences(found: Counter[Any], want: Counter[Any], *, lost: bool, repeats: bool) -> str:
    """What is missing or too many; `lost`, `repeats`: it may be."""
    missing, extra = want - found, found - want
    told = []
    if missing and not lost:
        told.append(f"{missing.total()} tuples are lost: {_some(missing)}")
    doubled = {x: n for x, n in extra.items() if x in want}
    if doubled and not repeats:
        told.append(f"{sum(doubled.values())} tuples are doubled: {_some(doubled)}")
    if strange := {x: n for x, n in extra.items() if x not in want}:
        told.append(f"{sum(strange.values())} tuples are unexpected: {_some(strange)}")
    return "; ".join(told)


def _differences(
    name: str, found: Counter[Any], want: Counter[Any], *, repeats: bool
) -> Iterator[str]:
    if told := differences(found, want, lost=False, repeats=repeats):
        yield f"at {name} {told}"


def _counts(want: Expected, items: list[Item]) -> Iterator[str]:
    """Whether the tuples of each key were counted one after the other, and in their order."""
    places: defaultdict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    order: defaultdict[tuple[str, ...], dict[int, int]] = defaultdict(dict)
    for number, trail in items:
        before = None
        for step_ in _COUNTED.finditer(trail):
            name, key, count = step_["name"], step_["key"], int(step_["count"])
            which = f"{number} {trail[: step_.start()]}"
            if places[name, key].setdefault(count, which) != which:
                yield f"K1: key {key} of {name} has counted to {count} twice"
                return
            if count > want.counts[name, int(key)]:
                yield f"K1: key {key} of {name} has counted to {count}, which is too far"
                return
            if before is not None and trail[before.end() : step_.start()] == " ":
                order[before["name"], before["key"], name, key][int(before["count"])] = count
            before = step_
    for (name, key), by_count in places.items():
        if len({*by_count.values()}) < len(by_count):
            yield f"K1: key {key} of {name} has counted a tuple twice"
    for (above, origin, name, key), taken in order.items():
        if not _rises(taken[n] for n in sorted(taken)):
            yield f"K2: key {key} of {name} has tuples of key {origin} of {above} in another order"


def _order_at_sink(name: str, items: Iterable[Item]) -> Iterator[str]:
    """A sink by key writes the results of each key of the operator before in their order."""
    last: dict[str, int] = {}
    for _, trail in items:
        step_ = trail.rpartition(" ")[2]
        if found := _COUNTED.fullmatch(step_):
            key, count = found["key"], int(found["count"])
            if count < last.get(key, 0):
                yield f"K2: results of key {key} of {found['name']} are in another order at {name}"
                return
            last[key] = count


def _rises(numbers: Iterable[int]) -> bool:
    found = [*numbers]
    return found == sorted(found)


def _some(found: Iterable[Any]) -> str:
    return ", ".join(map(str, sorted(found)[:SHOWN]))


def _order_of_sources(graph: Graph, items: list[Item]) -> Iterator[str]:
    """Behind a source with one instance, and operators with one instance, keys get the tuples in
    the order in which they were read."""
    every = len(graph.sources)
    single = _in_order(graph)
    taken: defaultdict[tuple[Any, ...], dict[Item, int]] = defaultdict(dict)
    for number, trail in items:
        first = _COUNTED.search(trail)
        if first is None or "@" in trail[: first.start()]:
            continue
        way = trail[: first.start()].split()
        operators = [graph.sources[number % every].name, *(one.rstrip("+") for one in way)]
        if single.issuperset(operators):
            place = (*operators, first["name"], first["key"])
            taken[place][number, " ".join(way)] = int(first["count"])
    for place, by_item in taken.items():
        if not _rises(by_item[item] for item in sorted(by_item)):
            yield f"K2: key {place[-1]} of {place[-2]} has tuples of {place[0]} in another order"


def _in_order(graph: Graph) -> set[str]:
    """Operators whose results have one order: that of their source."""
    found: set[str] = set()
    for node in graph.nodes:
        is_single = node.scale is None and not node.keyed and len(node.above) < 2
        if is_single and found.issuperset(node.above):
            found.add(node.name)
    return found
