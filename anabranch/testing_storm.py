"""A run of a pipeline in which much goes wrong, drawn from a seed: the code of live runs, agent and
instances, in one process and on virtual time (`runtime.world`)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from anabranch.runtime.live.instance.poison_guard import DEATHS, TRIES
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.policies.script import Script, parse_script
from anabranch.runtime.reporting.failure import Failure, RunFailed
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.values.kinds import EventKind
from anabranch.runtime.world import drawing, variants
from anabranch.runtime.world.disk_faults import Blow, ByChance
from anabranch.runtime.world.drawing import ENDS_SHARE
from anabranch.runtime.world.load import FOLDER
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.troubles import Troubles
from anabranch.runtime.world.world import End, World
from anabranch.testing_ends import Given, Tested, tested, unheard, unlogged

BEHIND_S = 0.3
"""So long after the last tuple has come in it is still stormy."""


KILLS_EACH_MAX = DEATHS + TRIES - 1
"""Of one instance: with one more, the tuple that is tried then might be buried."""


class _Disk(ByChance):
    """`spares`: whether a process that is to be killed in a call is not, by its name."""

    spares: Callable[[str], bool]

    def blow(self, process: str, call: str, path: Path, size: int) -> Blow | None:
        found = super().blow(process, call, path, size)
        kills = found is not None and not found.error
        return None if kills and self.spares(process) else found


@dataclass(frozen=True)
class Weather:
    """What goes wrong: nothing, unless it is given. `span_s`: within which the tuples come in."""

    span_s: float = 0.1
    conditions: Conditions = field(default_factory=Conditions)
    troubles: Troubles = field(default_factory=Troubles)
    script: Script | None = None
    ends: tuple[End, ...] = ()
    disk: _Disk = field(default_factory=lambda: _Disk(random.Random(0)))


def drawn(pipeline: Pipeline, seed: int) -> Weather:
    """As worlds of the swarm are drawn, but always rough. Power is lost only where all operators
    are to outlive that."""
    rng = random.Random(f"{seed} storm")
    span_s = rng.choice((0.1, 0.3, 0.8))
    until_s, sync_s = span_s + BEHIND_S, 0.0
    ends: tuple[End, ...] = ()
    if rng.random() < ENDS_SHARE:
        power = all(pipeline.durable_of(name) == "power" for name in pipeline.operators)
        ends, sync_s = variants.drawn_ends(rng, until_s, power=power)
    troubles = variants.drawn_troubles(rng, until_s, rough=True)
    kills = rng.choice((0.0, 1.0, 4.0, 10.0))
    return Weather(
        span_s,
        variants.drawn_conditions(rng),
        replace(troubles, kills=kills, kills_each_max=KILLS_EACH_MAX),
        _script(rng, random.Random(f"{seed} relocations"), pipeline, span_s),
        ends,
        _Disk(
            random.Random(f"{seed} disk"),
            full=rng.choice(drawing.FULL),
            killed=rng.choice((0.0, 0.002, 0.005)),
            sync_s=sync_s,
        ),
    )


def _script(
    rng: random.Random, of_relocations: random.Random, pipeline: Pipeline, span_s: float
) -> Script | None:
    """Decisions of operators that may have several instances."""
    scaled = [o for o in pipeline.operators.values() if _may_scale(o)]
    found = []
    for _ in range(of_relocations.choice((0, 0, 2, 4)) if scaled else 0):
        operator, at_s = of_relocations.choice(scaled), of_relocations.uniform(0.0, span_s)
        found.append(f"{at_s:.4f} {operator.name} relocate")
    for _ in range(rng.choice((0, 3, 8, 16)) if scaled else 0):
        operator, at_s, actions = rng.choice(scaled), rng.uniform(0.0, span_s), ["duplicate"]
        if at_s > span_s / 3:  # before that there is hardly anything that could leave
            actions += ["leave", "hand_over", *(["move", "move"] if operator.edges else [])]
        found.append(f"{at_s:.4f} {operator.name} {rng.choice(actions)}")
    return parse_script("; ".join(found)) if found else None


def _may_scale(operator: Operator) -> bool:
    return operator.can_scale and operator.scale is not None and operator.scale.max_instances > 1


def stormy_run(
    pipeline: Pipeline,
    inputs: Mapping[str, Iterable[Any]],
    instances: Mapping[str, int],
    *,
    seed: int | None,
    start: float,
) -> tuple[World, Tested, Counter[str]]:
    """`inputs`: of all sources. Without a `seed` nothing goes wrong. The world is over; what is
    there is on its disk. Raises `RunFailed` if the run does not come to its end, and what
    `World.run` raises."""
    weather = Weather() if seed is None else drawn(pipeline, seed)
    sources = {name: Given([*tuples], weather.span_s) for name, tuples in inputs.items()}
    copy = tested(pipeline, sources, instances, FOLDER, may_join=False)
    world = World(
        copy.pipeline,
        seed or 0,
        options=Options(script=weather.script, scaling=False, on_output=unheard, warm=1),
        conditions=weather.conditions,
        troubles=weather.troubles,
        disk_faults=weather.disk,
        ends=weather.ends,
        began_s=start,
    )
    weather.disk.spares = lambda name: world.troubles.spares(world.processes.of_store(name))
    with unlogged():
        report = world.run()
    if not report.ok:
        why = report.failure or "; ".join(report.ledger.faults) or f"it ended as {report.ended}"
        storm = "without a storm" if seed is None else f"storm {seed}"
        raise RunFailed(Failure(f"{storm}: the run has failed: {why}"), report)
    return world, copy, _happened(world, weather, report)


def _happened(world: World, weather: Weather, report: Report) -> Counter[str]:
    found = Counter(world.troubles.done)
    del found["kills"]  # some of them are not deaths of instances
    for operator in report.operators:
        found["joins"] += operator.joins
        found["leaves"] += operator.leaves
        found["deaths"] += operator.deaths
    found["moves"] = sum(event.kind == EventKind.MOVED for event in report.events)
    found["full disks"] = weather.disk.met.get("full", 0)
    return +found
