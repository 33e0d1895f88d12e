"""PL-P9: what siblings tell each other of their work is advice, and may be lost."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from anabranch.runtime.measuring.reading import Figures
from anabranch.runtime.policies.policy import Policy, Scale
from anabranch.runtime.policies.predictive.policy import Predictive
from anabranch.runtime.simulation.channel import Channel
from anabranch.runtime.simulation.scene import Scene
from anabranch.runtime.simulation.scene_drawing import draw
from anabranch.runtime.simulation.trial import Trial, Verdict

SEEDS = 40
SHORT = Predictive(latency_ms=20, horizon=2)


def in_concert(seed: int, policy: Policy[Any] = SHORT) -> Scene:
    """All operators but sources and sinks decide by sums of short periods."""
    scene = draw(seed)
    below = {b for _, b in scene.edges}
    above = {a for a, _ in scene.edges}
    scale = Scale(max_instances=5, period_s=0.1, policy=policy)
    models = tuple(
        replace(m, scale=scale if m.name in above & below else None) for m in scene.models
    )
    return replace(
        scene, models=models, policy=True, knobs=replace(scene.knobs, tick_s=0.05), decisions=()
    )


def test_p9_sums_that_are_lost_lose_no_tuple(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, tell = random.Random(9), Channel.tell_figures
    lost = [0, 0]

    def now_and_then(self: Channel, figures: Figures, *, of_all: bool) -> None:
        is_lost = rng.random() < 0.5
        lost[is_lost] += 1
        if not is_lost:
            tell(self, figures, of_all=of_all)

    monkeypatch.setattr(Channel, "tell_figures", now_and_then)
    found = [Trial(in_concert(seed)).run() for seed in range(SEEDS)]
    assert [o for o in found if o.verdict is Verdict.INVALID] == []
    assert sum(o.joins for o in found) > SEEDS / 4
    assert min(lost) > 100
