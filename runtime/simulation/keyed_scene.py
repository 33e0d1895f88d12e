"""Key groups for a drawn world: some operators become keyed, tuples get an event time, and some
decisions move groups. Drawn apart, so that worlds without keys stay what they are."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.runtime.simulation.happenings import Action, Decision
from anabranch.runtime.simulation.models import Keys, Model, Timing

if TYPE_CHECKING:
    from anabranch.runtime.simulation.scene import Scene

SHARE = 0.5
"""Of the seeds, so many have keys."""
RESTLESS = 0.3
"""Of those in which keyed operators can follow each other."""
GROUPS = {"small": (2, 3, 4, 8), "large": (8, 32, 64)}
TUPLES_MAX = 3_000
"""Tuples of worlds with keys are numbered, large worlds too."""


def with_keys(scene: Scene) -> Scene:
    """The same scene, or one with keyed operators."""
    rng = random.Random(f"keyed {scene.size} {scene.seed}")
    if rng.random() >= SHARE:
        return scene
    rows = [(a, b) for a, b in scene.edges if a not in scene.sources]
    if rows and rng.random() < RESTLESS:
        return _restless(rng, scene, rng.choice(rows))
    able = [m.name for m in scene.models if m.name not in scene.sources]
    among = [n for n in able if rng.random() < 0.6] or [rng.choice(able)]
    keyed = _keyed(rng, scene, among)
    return replace(keyed, decisions=tuple(_decision(rng, d, among) for d in scene.decisions))


def _restless(rng: random.Random, scene: Scene, row: tuple[str, str]) -> Scene:
    """Groups of two keyed operators in a row move all the time, while paths straggle, work takes
    longer than messages, and there is little credit."""
    keyed = _keyed(rng, scene, [*row])
    latency_s = scene.net.latency_s
    return replace(
        keyed,
        models=tuple(
            replace(m, cost_s=latency_s * rng.choice((0.0, 2.0, 15.0))) if m.name in row else m
            for m in keyed.models
        ),
        counts={**keyed.counts, **dict.fromkeys(row, rng.choice((2, 3)))},
        net=replace(scene.net, straggling=rng.choice((0.0, 0.15)), jitter=2.0),
        limits=replace(scene.limits, credit_tuples=rng.choice((1, 4, 4096))),
        knobs=replace(keyed.knobs, first_window_tuples=rng.choice((1, 4, 4096))),
        decisions=(*scene.decisions[:2], *_moves(rng, scene, row)),
    )


def _moves(rng: random.Random, scene: Scene, row: tuple[str, str]) -> list[Decision]:
    actions: tuple[Action, ...] = ("move", "move", "duplicate")
    n = max(8, len(scene.decisions))
    first_s, over_s = scene.safety_s * rng.uniform(0, 0.5), scene.safety_s * rng.uniform(0.1, 0.5)
    return [
        Decision(
            at_s=first_s + over_s * rng.random(),
            operator=rng.choice(row),
            action=action,
            n=rng.choice((1, 8)) if action == "move" else 1,
            whom=rng.random(),
            fit=True,
        )
        for action in rng.choices(actions, k=n)
    ]


def _keyed(rng: random.Random, scene: Scene, among: list[str]) -> Scene:
    """`among`: the operators which become keyed."""
    arrivals = _fewer(scene.arrivals)
    tuples = max(arrived[-1][1] for arrived in arrivals.values())
    step_s = scene.safety_s / max(1, tuples * len(scene.sources))
    ends = {m.name for m in scene.models} - {a for a, _ in scene.edges}
    salt = rng.randrange(1000)
    models = tuple(
        _keyed_model(rng, m, scene.size, salt, 0.0 if m.name in ends else step_s)
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
        timing=_timing(scene.seed, step_s, step_s * rng.choice((0.0, 1.5, 10.0))),
    )


def _timing(seed: int, step_s: float, disorder_s: float) -> Timing:
    """In a third of the worlds tuples are more disordered than is allowed. Drawn apart, too."""
    allowed_s = disorder_s * random.Random(f"marks {seed}").choice((1.0, 1.0, 0.6))
    return Timing(step_s=step_s, disorder_s=disorder_s, allowed_s=allowed_s)


def _keyed_model(rng: random.Random, model: Model, size: str, salt: int, step_s: float) -> Model:
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
