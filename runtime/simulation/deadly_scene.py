"""Deaths for a drawn world. Drawn apart, so that worlds without deaths stay what they are."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from anabranch.runtime.simulation.happenings import Damage, Trouble

if TYPE_CHECKING:
    from anabranch.runtime.simulation.scene import Scene

Crashes = Literal["some", "all", "none"]

SHARE = 0.4
"""Of the seeds, in so many processes die."""
DEATHS = {"small": 8, "large": 40}
LONG_S = 20.0
STOPPED_S = 30.0


def with_deaths(scene: Scene, *, always: bool = False) -> Scene:
    """The same scene, or one in which processes die."""
    rng = random.Random(f"deaths {scene.size} {scene.seed}")
    if rng.random() >= SHARE and not always:
        return scene
    latency_s = scene.net.latency_s
    deaths = [_death(rng, scene, at_s) for at_s in _times(rng, scene)]
    troubles = sorted((*scene.troubles, *deaths), key=lambda trouble: trouble.at_s)
    return replace(
        scene,
        troubles=tuple(troubles),
        knobs=replace(scene.knobs, commit_s=latency_s * rng.choice((0.0, 0.5, 3.0, 20.0))),
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
        busy=rng.random() < 0.4,
    )
