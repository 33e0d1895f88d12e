"""Worlds in which hosts open and close, from worlds on several hosts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from anabranch.runtime.hosts.placement import HostRoom
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.world.drawn_trial import EXACTLY, Trial
from anabranch.runtime.world.graphs import Graph, Supply
from anabranch.runtime.world.load import InputLoad
from anabranch.runtime.world.pool_of_hosts import Heirlooms, Tides
from anabranch.runtime.world.scenes import GraphScene, Sinks

POOL = "pool"
TIDE_S = 4.0
"""How long there are tides, in which hosts open and close."""


class PooledScene(GraphScene):
    """`heirlooms`: what controllers have left to the next ones."""

    def __init__(self, graph: Graph, load: InputLoad, heirlooms: Heirlooms) -> None:
        super().__init__(graph, load, decides=True)
        self.heirlooms = heirlooms

    def faults(self, found: Sinks, load: InputLoad) -> Iterator[str]:
        if self.heirlooms.fault:
            yield self.heirlooms.fault
        yield from super().faults(found, load)


def pooled(trial: Trial) -> Trial:
    """The same for longer, and a controller plans instances and hosts, which open and close."""
    rng = random.Random(f"{trial.seed} pool")
    scene, longer = trial.scene, TIDE_S / trial.load.span_s
    assert isinstance(scene, GraphScene)
    bursts = tuple((min(TIDE_S, longer * at_s), count) for at_s, count in trial.load.bursts)
    load = replace(trial.load, span_s=TIDE_S, bursts=bursts)
    heirlooms = Heirlooms()

    class WorldTides(Tides):
        pass

    WorldTides.heirlooms = heirlooms
    scale = Scale(
        max_instances=4,
        period_s=0.2,
        actions_per_minute_max=600,
        policy=WorldTides(seed=trial.seed, every_s=rng.choice((0.4, 0.8, 1.6))),
    )
    nodes = [n if n.scale is None else replace(n, scale=scale) for n in scene.graph.nodes]
    outlets = [o if o.scale is None else replace(o, scale=scale) for o in scene.graph.outlets]
    supply: Supply = "bursts" if scene.graph.supply == "items" else scene.graph.supply
    graph = replace(scene.graph, nodes=tuple(nodes), outlets=tuple(outlets), supply=supply)
    names = [f"host-{number}" for number in range(4)]
    rates: dict[str, Any] = {name: rate / longer for name, rate in trial.troubles.rates.items()}
    return replace(
        trial,
        scene=PooledScene(graph, load, heirlooms),
        load=load,
        decisions=(),
        drains=(),
        rest_at_s=None,
        hosts=tuple(HostRoom(name, 4.0, 8_000.0) for name in names),
        troubles=replace(trial.troubles, until_s=TIDE_S, hosts=len(names), **rates),
        ends=tuple(e._replace(at_s=longer * e.at_s, power=False) for e in trial.ends),
        delivery=EXACTLY,
        losses=(),
        copies=0,
        pooled=True,
    )
