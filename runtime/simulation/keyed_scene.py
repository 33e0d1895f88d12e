"""Key groups for a drawn world: some operators become keyed, tuples get an event time, and some
decisions move groups. Drawn apart, so that worlds without keys stay what they are."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.runtime.simulation.models import Keys, Model, Timing

if TYPE_CHECKING:
    from anabranch.runtime.simulation.scene import Decision, Scene

SHARE = 0.5
"""Of the seeds, so many have keys."""
GROUPS = {"small": (2, 3, 4, 8), "large": (8, 32, 64)}
TUPLES_MAX = 3_000
"""Tuples of worlds with keys are numbered, large worlds too."""


def with_keys(scene: Scene) -> Scene:
    """The same scene, or one with keyed operators."""
    rng = random.Random(f"keyed {scene.size} {scene.seed}")
    if rng.random() >= SHARE:
        return scene
    sources = scene.sources
    able = [m.name for m in scene.models if m.name not in sources]
    among = frozenset(n for n in able if rng.random() < 0.6) or frozenset({rng.choice(able)})
    arrivals = _fewer(scene.arrivals)
    tuples = max(arrived[-1][1] for arrived in arrivals.values())
    step_s = scene.safety_s / max(1, tuples * len(sources))
    ends = {m.name for m in scene.models} - {a for a, _ in scene.edges}
    salt = rng.randrange(1000)
    models = tuple(
        _keyed(rng, m, scene.size, salt, 0.0 if m.name in ends else step_s)
        if m.name in among
        else m
        for m in scene.models
    )
    return replace(
        scene,
        models=models,
        counts={n: max(c, rng.choice((1, 2, 3))) for n, c in scene.counts.items()},
        arrivals=arrivals,
        numbered=True,
        knobs=replace(
            scene.knobs,
            chunk_s=scene.net.latency_s * rng.choice((0.1, 1.0, 5.0)),
            chunk_entries=rng.choice((1, 3, 1000)),
            kept_tuples_max=rng.choice((0, 2, 4096)),
        ),
        timing=Timing(step_s=step_s, disorder_s=step_s * rng.choice((0.0, 1.5, 10.0))),
        decisions=tuple(_decision(rng, d, sorted(among)) for d in scene.decisions),
    )


def _keyed(rng: random.Random, model: Model, size: str, salt: int, step_s: float) -> Model:
    """`salt`: that of other operators, so that they have the same keys. `step_s`: between tuples,
    for windows; 0: it has none."""
    window_s = step_s * rng.choice((1.0, 4.0, 30.0)) if step_s and rng.random() < 0.3 else None
    keys = Keys(
        groups=rng.choice(GROUPS[size]),
        keys=rng.choice((1, 3, 10, 40)),
        skew=rng.choice((1.0, 2.0, 5.0)),
        salt=salt if rng.random() < 0.7 else rng.randrange(1000),
        window_s=window_s,
    )
    return replace(model, keyed=keys)


def _decision(rng: random.Random, decision: Decision, keyed: list[str]) -> Decision:
    """Half of what happens concerns keyed operators; `n`: how many groups move."""
    if rng.random() < 0.5:
        return decision
    operator = rng.choice(keyed)
    if rng.random() < 0.5:
        return replace(decision, operator=operator)
    return replace(decision, operator=operator, action="move", n=rng.choice((1, 1, 2, 5)))


def _fewer(
    arrivals: dict[str, tuple[tuple[float, int], ...]],
) -> dict[str, tuple[tuple[float, int], ...]]:
    most = max(arrived[-1][1] for arrived in arrivals.values())
    share = min(1.0, TUPLES_MAX / max(1, most * len(arrivals)))
    return {s: tuple((t, int(n * share)) for t, n in a) for s, a in arrivals.items()}
