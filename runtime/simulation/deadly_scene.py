"""Deaths for a drawn world. Drawn apart, so that worlds without deaths stay what they are."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from anabranch.runtime.simulation.happenings import Damage, Decision, Trouble

if TYPE_CHECKING:
    from anabranch.runtime.simulation.scene import Scene

Crashes = Literal["some", "all", "none"]

SHARE = 0.4
"""Of the seeds, in so many processes die."""
DEATHS = {"small": 8, "large": 40}
CONGESTED = 0.3
"""Of those in which one keyed operator follows another."""
LONG_S = 20.0
STOPPED_S = 30.0


def with_deaths(scene: Scene, *, always: bool = False) -> Scene:
    """The same scene, or one in which processes die."""
    rng = random.Random(f"deaths {scene.size} {scene.seed}")
    if rng.random() >= SHARE and not always:
        return scene
    latency_s = scene.net.latency_s
    rows = _keyed_rows(scene)
    if rows and rng.random() < CONGESTED:
        scene = _congested(rng, scene, *rng.choice(rows))
    deaths = [_death(rng, scene, at_s) for at_s in _times(rng, scene)]
    troubles = sorted((*scene.troubles, *deaths), key=lambda trouble: trouble.at_s)
    return replace(
        scene,
        troubles=tuple(troubles),
        knobs=replace(scene.knobs, commit_s=latency_s * rng.choice((0.0, 0.5, 3.0, 20.0))),
    )


def _keyed_rows(scene: Scene) -> list[tuple[str, str]]:
    keyed = {m.name for m in scene.models if m.keyed is not None}
    return [(a, b) for a, b in scene.edges if a in keyed and b in keyed]


def _congested(rng: random.Random, scene: Scene, above: str, below: str) -> Scene:
    """Key groups of one operator move all the time, while the next has long queues: what it has
    heard of the moves is far ahead of what it has worked off."""
    latency_s = scene.net.latency_s
    cost_s = latency_s * rng.choice((3.0, 10.0, 30.0))
    n = max(8, len(scene.decisions))
    times = sorted(rng.uniform(0, scene.safety_s) for _ in range(n))
    moves = [
        Decision(at_s=at_s, operator=above, action="move", n=8, whom=rng.random(), fit=True)
        for at_s in times
    ]
    return replace(
        scene,
        models=tuple(replace(m, cost_s=cost_s) if m.name == below else m for m in scene.models),
        counts={**scene.counts, above: 2, below: 1},
        limits=replace(scene.limits, credit_tuples=4096, batch_tuples_max=rng.choice((1, 3))),
        knobs=replace(scene.knobs, first_window_tuples=4096),
        decisions=tuple(moves),
    )


def _times(rng: random.Random, scene: Scene) -> list[float]:
    """Scattered, or soon after a decision, when its round is under way; or at the end of the
    input."""
    latency_s, n = scene.net.latency_s, rng.randint(1, DEATHS[scene.size])
    around = [d.at_s for d in scene.decisions]
    if scene.ends:
        around += [max(a[-1][0] for a in scene.arrivals.values())] * 3
    if not around or rng.random() < 0.4:
        return [rng.uniform(0, scene.safety_s) for _ in range(n)]
    return [
        min(scene.safety_s, rng.choice(around) + latency_s * rng.uniform(0, 10)) for _ in range(n)
    ]


def _death(rng: random.Random, scene: Scene, at_s: float) -> Trouble:
    damages: tuple[Damage, ...] = ("crash",) * 10 + ("host", "host", "power", "stop")
    latency_s = scene.net.latency_s
    soon_s, late_s = latency_s * rng.uniform(0, 6), scene.safety_s * rng.uniform(0, 0.5)
    long_s = LONG_S * rng.random()
    return Trouble(
        at_s=at_s,
        damage=rng.choice(damages),
        whom=rng.random(),
        last_s=rng.choice((soon_s, soon_s, soon_s, late_s, late_s, late_s, late_s, long_s)),
        factor=STOPPED_S * rng.choice((0.01, 0.1, 1.0, 1.0)),
        aim=rng.choice(("any", "any", "busy", "ahead")),
    )
