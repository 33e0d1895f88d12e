"""Pipelines drawn by chance: chains, diamonds, merges, several sources and sinks, several keyed
operators in a row, windows behind them.

A tuple is a pair: a number of a source, and the trail of operators that it has passed, as
`b+ c:3#17 d`. `b+` is the second of two results of `b`; `c:3#17` shows that it was the 17th tuple
of key 3 at `c`. So what has become of a tuple can be read off it at a sink.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Literal

from anabranch.runtime.policies.policy import Scale, policy_named

Kind = Literal["source", "pass", "double", "thin", "bad", "count", "window"]
STATELESS: tuple[Kind, ...] = ("pass", "pass", "pass", "double", "thin", "bad")
BAD = 41
"""A number with this remainder, divided by 50, makes a `bad` operator raise."""
DISORDER = 10
"""By how many numbers the event time of a tuple may be too early or too late."""
Item = tuple[int, str]
"""A tuple: a number and a trail."""
MIX = 2_654_435_761
"""Scatters neighbouring numbers (Knuth)."""
POLICIES = ("probabilistic", "probabilistic", "multi-metric", "multi-metric-summed", "rules")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """An operator. `above`: those whose results it gets. `scale`: None: it has one instance.
    `keys`, `skew`, `salt`: how many keys there are, how frequent the first of them is, and which
    tuples they get; of an operator by key. `window_s`: how long a window is. `cost_s`: processor
    time of a tuple."""

    name: str
    kind: Kind
    above: tuple[str, ...] = ()
    scale: Scale | None = None
    keys: int = 1
    skew: float = 1.0
    salt: int = 0
    window_s: float = 0.0
    cost_s: float = 0.0

    @property
    def keyed(self) -> bool:
        return self.kind in ("count", "window")

    def key_of(self, number: int) -> int:
        mixed = (number * MIX + self.salt * 40_503) & 0xFFFFFFFF
        scattered = ((mixed ^ (mixed >> 15)) * MIX & 0xFFFFFFFF) / 2**32
        return int(self.keys * scattered**self.skew)

    def window_of(self, number: int) -> int:
        return int(time_of(number) // self.window_s)


def time_of(number: int) -> float:
    """The event time of a tuple: somewhere near its place."""
    block = number - number % DISORDER
    return float(block + (number * 7 + 3) % DISORDER)


Supply = Literal["bursts", "outside", "items"]
SinkKind = Literal["jsonl", "keyed jsonl", "parquet", "foreach", "discard"]


@dataclass(frozen=True, slots=True)
class Outlet:
    """A sink behind an operator."""

    name: str
    above: str
    kind: SinkKind
    scale: Scale | None


@dataclass(frozen=True, slots=True)
class Graph:
    """`nodes` in an order in which each follows those above it. `paced`: sources give their tuples
    at a steady pace, or else as `supply` has it: in bursts, in bursts from outside, or as fast as
    they are read."""

    nodes: tuple[GraphNode, ...]
    outlets: tuple[Outlet, ...]
    paced: bool
    supply: Supply = "bursts"

    @property
    def sources(self) -> list[GraphNode]:
        return [node for node in self.nodes if node.kind == "source"]

    @property
    def timed(self) -> bool:
        """Whether event time is read."""
        return any(node.kind == "window" for node in self.nodes)

    @property
    def keyed_rows(self) -> list[tuple[str, str]]:
        """Operators by key, and those that follow them."""
        counting = {node.name for node in self.nodes if node.kind == "count"}
        among = [node for node in self.nodes if node.name in counting]
        return [(a, node.name) for node in among for a in node.above if a in counting]

    def in_parquet(self, rng: random.Random) -> Graph:
        """The same, but at least one sink whose results would go into a file writes Parquet files,
        unless they are all behind windows: their results are not in columns."""
        windows = {node.name for node in self.nodes if node.kind == "window"}
        fit = [o for o in self.outlets if "jsonl" in o.kind and o.above not in windows]
        if not fit:
            return self
        chosen = {o.name for o in rng.sample(fit, rng.randint(1, len(fit)))}
        outlets = (replace(o, kind="parquet") if o.name in chosen else o for o in self.outlets)
        return replace(self, outlets=(*outlets,))

    def congested(self, above: str, below: str, cost_s: float) -> Graph:
        """The same, but `above` has several instances, and `below` one that is slow."""
        several = Scale(min_instances=2, max_instances=3)
        nodes = {node.name: node for node in self.nodes}
        nodes[above] = replace(nodes[above], scale=several, keys=max(10, nodes[above].keys))
        nodes[below] = replace(nodes[below], scale=None, cost_s=cost_s)
        return replace(self, nodes=tuple(nodes.values()))


def keyed_row(rng: random.Random, *, timed: bool, ordered: bool) -> Graph:
    """Two operators by key in a row, the second of them slow: what it gets of a key comes by
    several ways while key groups of the first one move. `timed`: it makes windows, to which the
    first one passes event time on. `ordered`: the first one gets its tuples in one way only, so
    that it must keep their order."""
    several = Scale(min_instances=2, max_instances=3)
    keys, salt = rng.choice((10, 40)), rng.randrange(1000)
    by_key = partial(GraphNode, keys=keys, salt=salt)
    below = by_key(name="d", kind="count", above=("c",))
    if timed:
        below = by_key(name="d", kind="window", above=("c",), window_s=5.0)
    nodes = (
        GraphNode(name="a", kind="source"),
        GraphNode(name="b", kind="pass", above=("a",), scale=None if ordered else several),
        by_key(name="c", kind="count", above=("b",)),
        below,
    )
    graph = Graph(nodes, (Outlet("out-d", "d", "jsonl", None),), paced=rng.random() < 0.5)
    return graph.congested("c", "d", rng.choice((0.0005, 0.002, 0.005)))


def counted_twice(rng: random.Random) -> Graph:
    """Two operators by the same key in a row. The first one begins with one instance and may get
    more; the second one has one, which is slow."""
    by_key = partial(GraphNode, kind="count", keys=rng.choice((3, 6, 10)), salt=rng.randrange(1000))
    nodes = (
        GraphNode(name="a", kind="source"),
        by_key(name="c", above=("a",), scale=Scale(max_instances=3)),
        by_key(name="d", above=("c",), cost_s=rng.choice((0.005, 0.01))),
    )
    return Graph(nodes, (Outlet("out-d", "d", "jsonl", None),), paced=True)


def before_a_slow_one(rng: random.Random) -> Graph:
    """Instances of `b` may come and leave; `c`, which follows, has one, which is slow."""
    cost_s = rng.choice((0.0005, 0.002, 0.005))
    slow = GraphNode(name="c", kind=rng.choice(("pass", "count")), above=("b",), keys=3)
    nodes = (
        GraphNode(name="a", kind="source", scale=Scale(max_instances=2)),
        GraphNode(name="b", kind="pass", above=("a",), scale=Scale(max_instances=4)),
        replace(slow, cost_s=cost_s),
    )
    return Graph(nodes, (Outlet("out-c", "c", "jsonl", None),), paced=rng.random() < 0.5)


def step(node: GraphNode, item: Item) -> list[Item]:
    """What an operator without keys makes of a tuple. Raises `ValueError` if it is bad."""
    number, trail = item
    match node.kind:
        case "double":
            return [(number, further(trail, node.name + mark)) for mark in ("", "+")]
        case "thin" if number % 3 == 0:
            return []
        case "bad" if number % 50 == BAD:
            raise ValueError(number)
        case _:
            return [(number, further(trail, node.name))]


def further(trail: str, passed: str) -> str:
    return f"{trail} {passed}" if trail else passed


def without_counts(trail: str) -> str:
    """What does not depend on the order in which the tuples of a key came."""
    return re.sub(r"#\d+", "#", trail)


def rank(item: Item) -> tuple[int, str]:
    """The greatest tuple of a window stands for it."""
    return item[0], without_counts(item[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Breadth:
    """How big graphs get. `instances`: at the beginning, and at most."""

    operators: tuple[int, ...]
    instances: tuple[int, ...]
    instances_max: int


def drawn_graph(rng: random.Random, breadth: Breadth, *, decides: bool, work_s: float) -> Graph:
    """`decides`: policies decide by load, so that tuples cost processor time: `work_s` seconds of
    it for each one that an operator gets, at most."""
    return _GraphDrawing(rng, breadth, decides, work_s).graph()


class _GraphDrawing:
    def __init__(self, rng: random.Random, breadth: Breadth, decides: bool, work_s: float) -> None:
        self.rng = rng
        self.breadth = breadth
        self.decides = decides
        self.work_s = work_s
        self.names = "abcdefghij"[: rng.choice(breadth.operators)]
        self.keyed = rng.random() < 0.6
        self.salt = rng.randrange(1000)
        """Operators with the same have the same keys."""

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def graph(self) -> Graph:
        above = self._edges()
        windowed: set[str] = set()
        nodes: list[GraphNode] = []
        has_window = self.keyed and self.chance(0.35)
        for name in self.names:
            behind = bool(windowed.intersection(above[name]))
            node = self._node(name, above[name], behind, has_window)
            if behind or node.kind == "window":
                windowed.add(name)
            nodes.append(node)
        if not any(node.kind == "window" for node in nodes):
            has_window = False
        used = {a for node in nodes for a in node.above}
        return Graph(
            tuple(self._without_siblings(nodes) if has_window else nodes),
            tuple(self._outlets([n for n in nodes if n.name not in used or self.chance(0.1)])),
            paced=self.chance(0.6),
        )

    def _edges(self) -> dict[str, tuple[str, ...]]:
        """A chain, more often than not; otherwise any graph whose sources lead somewhere."""
        names, rng = self.names, self.rng
        above: dict[str, tuple[str, ...]] = {names[0]: ()}
        if self.chance(0.4):
            return above | {b: (a,) for a, b in pairwise(names)}
        for i, name in enumerate(names[1:], start=1):
            is_source = self.chance(0.15) and i < len(names) - 1
            count = 0 if is_source else min(i, rng.choice((1, 1, 2)))
            above[name] = tuple(sorted(rng.sample(names[:i], count)))
        return above

    def _node(self, name: str, above: tuple[str, ...], behind: bool, has_window: bool) -> GraphNode:
        """`behind`: a window is further up, so that no other follows."""
        rng = self.rng
        if not above:
            return GraphNode(name=name, kind="source", scale=self._scale(0.8))
        kind = rng.choice(STATELESS)
        if self.keyed and self.chance(0.6):
            kind = "window" if has_window and not behind and self.chance(0.5) else "count"
        return GraphNode(
            name=name,
            kind=kind,
            above=above,
            scale=self._scale(0.85),
            keys=rng.choice((1, 3, 10, 40)),
            skew=rng.choice((1.0, 2.0, 5.0)),
            salt=self.salt if self.chance(0.7) else rng.randrange(1000),
            window_s=rng.choice((5.0, 20.0, 70.0)),
            cost_s=self.work_s * rng.random() if self.decides else 0.0,
        )

    def _without_siblings(self, nodes: list[GraphNode]) -> list[GraphNode]:
        """Event time is read of the tuples of sources, where they still have an order."""
        return [
            GraphNode(name=node.name, kind="source") if node.kind == "source" else node
            for node in nodes
        ]

    def _scale(self, share: float) -> Scale | None:
        rng = self.rng
        if not self.chance(share):
            return None
        least = rng.choice(self.breadth.instances)
        most = max(least, rng.randint(1, self.breadth.instances_max))
        if not self.decides:
            return Scale(min_instances=least, max_instances=most)
        return Scale(
            min_instances=least,
            max_instances=most,
            period_s=rng.uniform(0.05, 0.3),
            cooldown_s=rng.uniform(0.0, 0.3),
            actions_per_minute_max=1000,
            placement=rng.choice(("balanced", "flux")),
            policy=policy_named(rng.choice(POLICIES))(),
        )

    def _outlets(self, leaves: list[GraphNode]) -> list[Outlet]:
        rng = self.rng
        found: list[Outlet] = []
        for leaf in leaves:
            kinds: list[SinkKind] = ["jsonl", "jsonl", "keyed jsonl", "foreach", "discard"]
            kind = rng.choice(kinds if found else kinds[:3])
            found.append(Outlet(f"out-{leaf.name}", leaf.name, kind, self._scale(0.5)))
        return found
