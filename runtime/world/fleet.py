"""A fleet: a pipeline on many hosts, all of them its own, which are cut off, lost and drained while
instances join, leave, relocate and move their state.

    source ─▶ pass ─▶ count ─▶ file      one branch; a fleet has many of them, side by side

So the number of channels grows with the number of instances, and a fleet may have a thousand.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from anabranch.runtime.hosts.placement import HostRoom
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.world.drawn_trial import Trial
from anabranch.runtime.world.graphs import Graph, GraphNode, Outlet
from anabranch.runtime.world.load import InputLoad
from anabranch.runtime.world.scenes import GraphScene
from anabranch.runtime.world.troubles import Troubles
from anabranch.runtime.world.variants import drawn_conditions
from anabranch.runtime.world.world import HostDrain

FLEET = "fleet"
BURSTS = 20
DECISIONS_EACH = 4
"""For each host."""
GROUPS = 128
KEYS = 60
SPARE = 2
"""By so many instances an operator may be smaller or larger than at its start."""
STATELESS = ("duplicate", "duplicate", "leave", "relocate")
KEYED = (*STATELESS, "move")


class FleetSize(NamedTuple):
    """`passes`, `counts`: instances of the two operators of each branch at the start. `tuples`: of
    each branch."""

    hosts: int
    branches: int
    passes: int
    counts: int
    tuples: int
    span_s: float

    @property
    def instances(self) -> int:
        """With the source and the sink of each branch."""
        return self.branches * (1 + self.passes + self.counts + 1)


FLEETS = {
    "small": FleetSize(10, 3, 4, 7, 200, 3.0),
    "large": FleetSize(100, 25, 12, 26, 400, 15.0),
}


def fleet(seed: int, size: str, *, deadly: bool) -> Trial:
    """`deadly`: hosts and processes are lost, too. Raises `KeyError` for an unknown size."""
    rng, large = random.Random(f"{seed} fleet"), FLEETS[size]
    burst = large.tuples // BURSTS
    times = (large.span_s * n / BURSTS for n in range(BURSTS))
    load = InputLoad(
        count=burst * BURSTS, span_s=large.span_s, bursts=tuple((t, burst) for t in times)
    )
    scene = GraphScene(_graph(large), load, decides=False)
    names = [f"host-{number}" for number in range(large.hosts)]
    drained = rng.sample(names[1:], large.hosts // 10)
    return Trial(
        seed=seed,
        size=size,
        scene=scene,
        load=load,
        decisions=tuple(_decisions(rng, scene, large)),
        conditions=drawn_conditions(rng),
        groups=GROUPS,
        hosts=tuple(HostRoom(name, 4.0, 8_000.0) for name in names),
        apart=True,
        drains=tuple(HostDrain(rng.uniform(0.0, large.span_s), name) for name in drained),
        troubles=_troubles(large, deadly=deadly),
    )


def _graph(large: FleetSize) -> Graph:
    nodes: list[GraphNode] = []
    outlets: list[Outlet] = []
    for n in range(large.branches):
        source, passing, counting = f"s{n}", f"p{n}", f"c{n}"
        nodes.append(GraphNode(name=source, kind="source"))
        passes = _around(large.passes)
        nodes.append(GraphNode(name=passing, kind="pass", above=(source,), scale=passes))
        by_key = GraphNode(
            name=counting,
            kind="count",
            above=(passing,),
            scale=_around(large.counts),
            keys=KEYS,
            salt=n,
        )
        nodes.append(by_key)
        outlets.append(Outlet(f"out-{counting}", counting, "jsonl", None))
    return Graph(tuple(nodes), tuple(outlets), paced=False)


def _around(instances: int) -> Scale:
    return Scale(min_instances=instances - SPARE, max_instances=instances + SPARE)


def _decisions(rng: random.Random, scene: GraphScene, large: FleetSize) -> list[str]:
    times = sorted(rng.uniform(0.0, large.span_s) for _ in range(DECISIONS_EACH * large.hosts))
    operators = [rng.choice(scene.scaled) for _ in times]
    acts = [rng.choice(KEYED if name in scene.keyed else STATELESS) for name in operators]
    return [f"{t:.4f} {name} {act}" for t, name, act in zip(times, operators, acts, strict=True)]


def _troubles(large: FleetSize, *, deadly: bool) -> Troubles:
    until_s, hosts = large.span_s + 0.3, large.hosts
    if not deadly:
        return Troubles(until_s=until_s, host_cuts=hosts / 10, cut_off_s=3.0)
    return Troubles(
        until_s=until_s,
        host_cuts=hosts / 10,
        cut_off_s=3.0,
        host_losses=hosts / 20,
        away_s=2.0,
        kills=hosts / 20,
        kills_each_max=3,
    )
