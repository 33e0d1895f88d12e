"""PL-P9: what siblings tell each other of their work is advice, and may be lost."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from anabranch.runtime.live.channel.load_reports import LoadReports
from anabranch.runtime.measuring.reading import Figures
from anabranch.runtime.policies.policy import Policy, Scale
from anabranch.runtime.policies.predictive.policy import Predictive
from anabranch.runtime.world.drawing import drawn
from anabranch.runtime.world.drawn_trial import Trial
from anabranch.runtime.world.graphs import Graph, GraphNode, Outlet
from anabranch.runtime.world.scenes import GraphScene
from anabranch.runtime.world.trial import WorldOutcome, WorldVerdict, judged

SEEDS = 4
SHORT = Predictive(latency_ms=20, horizon=2)


def in_concert(seed: int, policy: Policy[Any] = SHORT) -> Trial:
    """Two operators in a row decide by sums of short periods, and have much to do."""
    trial = drawn(seed, "chain", crashes="none")
    load = replace(trial.load, count=600, span_s=2.0)
    scale = Scale(max_instances=5, period_s=0.1, policy=policy)
    nodes = (
        GraphNode(name="a", kind="source"),
        GraphNode(name="b", kind="pass", above=("a",), scale=scale, cost_s=0.008),
        GraphNode(name="c", kind="count", above=("b",), scale=scale, cost_s=0.008, keys=40),
    )
    graph = Graph(nodes, (Outlet("out", "c", "jsonl", None),), paced=True)
    scene = GraphScene(graph, load, decides=True)
    return replace(trial, scene=scene, load=load, decisions=(), groups=8)


def outcomes(policy: Policy[Any]) -> list[WorldOutcome]:
    return [judged(in_concert(seed, policy)) for seed in range(SEEDS)]


def test_p9_sums_that_are_lost_lose_no_tuple(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, tell = random.Random(9), LoadReports.tell_figures
    lost = [0, 0]

    def now_and_then(self: LoadReports, figures: Figures, *, of_all: bool) -> None:
        is_lost = rng.random() < 0.5
        lost[is_lost] += 1
        if not is_lost:
            tell(self, figures, of_all=of_all)

    monkeypatch.setattr(LoadReports, "tell_figures", now_and_then)
    found = outcomes(SHORT)
    assert [o.text for o in found if o.verdict is WorldVerdict.INVALID] == []
    assert sum(o.happened["joins"] for o in found) > SEEDS / 4
    assert min(lost) > 100
