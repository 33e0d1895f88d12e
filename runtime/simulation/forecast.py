"""What a pipeline would do under a load: its operators by their cost, everything else as it is.

Counts of tuples instead of tuples; the same cores, meters and policy decide. Load is what comes
to be read, so what a source cannot get rid of is late, not lost.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.protocol.ids import Topology
from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.keyed.groups import group_of
from anabranch.runtime.pipeline.definition import edges
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.processing.flow import FIRST_WINDOW_TUPLES
from anabranch.runtime.simulation.board import Board
from anabranch.runtime.simulation.host import Host
from anabranch.runtime.simulation.instance import Instance
from anabranch.runtime.simulation.models import Keys, Model
from anabranch.runtime.simulation.settings import Births, Knobs, Net
from anabranch.runtime.simulation.world import Taken, World

LOOK_S = (0.005, 0.02)
"""How often a source looks at its input, at least and at most: finer where tuples come one by one,
since lumps would make the load of each instance swing more than it does."""
SAMPLES = 240
"""At most so many looks at the whole, evenly over the time."""
SAMPLE_S_MIN = 0.25
OFFERED_S = 1.0
"""The load that is shown is the mean of so long: tuples are whole, and few in a short while."""
SPREAD = 0.1
"""How much the cost of a slice of work varies, up and down."""
START_S = 0.1
"""From asking for a process to having it: a fork of a warm one that imports nothing any more."""
BOUNDLESS = 1 << 40
"""Tuples that may lie at an instance where there is no backpressure."""
EVENTS_MAX = 200_000_000
KEYS = 10_000
"""Of how many a keyed operator keeps state, unless that is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one operator. `capacity`: tuples per second of one instance that is always busy, infinite
    for what costs nothing. `selectivity`: results per tuple. `keys`: where it is keyed, of how many
    it keeps state. `skew`: the k-th most frequent of them comes 1 / k^skew times as often as the
    first; 0: all as often."""

    capacity: float = math.inf
    selectivity: float = 1.0
    keys: int = KEYS
    skew: float = 0.0


@dataclass(frozen=True, slots=True)
class Outline:
    """A pipeline without its functions; `counts`: instances at the beginning."""

    edges: tuple[tuple[str, str], ...]
    models: tuple[Model, ...]
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Load:
    """What comes to each source: `totals` tuples by each multiple of `look_s`, from 0 on."""

    look_s: float
    totals: Mapping[str, Sequence[int]]


def look_s_for(peak_per_s: float) -> float:
    """How fine a load of so many tuples per second should be given."""
    least, most = LOOK_S
    return min(most, max(least, 2 / peak_per_s if peak_per_s else most))


@dataclass(slots=True)
class Course:
    """One operator over time. `messages`: control messages sent so far, `waiting`: tuples queued
    at it or held for it, of a source those that are due and not read. `rate_in`: tuples per second
    taken in. Latencies are those at sinks since the sample before, None without tuples."""

    instances: list[int] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    rate_in: list[float] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    p50_ms: list[float | None] = field(default_factory=list)
    p99_ms: list[float | None] = field(default_factory=list)


@dataclass(slots=True)
class Forecast:
    """One seed. `t`: when the samples were taken, in seconds. `offered`: tuples per second that
    came to all sources. `joins`, `leaves` by operator, `delivered` tuples by sink."""

    seed: int
    seconds: float
    t: list[float]
    offered: list[float]
    courses: dict[str, Course]
    joins: dict[str, int]
    leaves: dict[str, int]
    delivered: dict[str, int]


def forecast(
    outline: Outline,
    load: Load,
    *,
    seed: int,
    seconds: float,
    cores: float = math.inf,
    start_s: float = START_S,
) -> Forecast:
    """Let a pipeline run for so long in virtual time.

    `cores`: processors that all instances share. `start_s`: from asking for a process to having it.
    """
    world = world_of(outline, load, seed=seed, hosts=[Host(0, cores=cores)], start_s=start_s)
    looks = Looks(world, seed, seconds)
    world.found(outline.counts)
    world.clock.run(until_s=seconds, events_max=EVENTS_MAX)
    return looks.concluded()


def world_of(
    outline: Outline,
    load: Load,
    *,
    seed: int,
    hosts: Sequence[Host],
    start_s: float = START_S,
    backpressure: bool = True,
    since_due: bool = False,
    decides: bool = True,
    taken: Taken | None = None,
) -> World:
    """A world in which a pipeline is to run; the rest as in `Knobs` and `World`."""
    boards = {
        name: Board([i * load.look_s for i in range(len(totals))], totals)
        for name, totals in load.totals.items()
    }
    limits, most = DEFAULT_LIMITS, FIRST_WINDOW_TUPLES
    if not backpressure:
        limits, most = (
            replace(limits, credit_tuples=BOUNDLESS, outbox_tuples_max=BOUNDLESS),
            BOUNDLESS,
        )
    return World(
        rng=random.Random(f"forecast {seed}"),
        topology=Topology.of(outline.edges),
        models=outline.models,
        hosts=hosts,
        net=Net(),
        limits=limits,
        knobs=Knobs(
            read_every_s=load.look_s,
            slice_s=0.01,
            first_window_tuples=most,
            backpressure=backpressure,
            since_due=since_due,
        ),
        births=Births(ready_s=start_s / 1.5),
        boards=boards,
        decides=decides,
        taken=taken,
    )


def outline_of(pipeline: Pipeline, costs: Mapping[str, Cost]) -> Outline:
    operators = pipeline.operators.values()
    models = tuple(
        Model(
            name=o.name,
            cost_s=1 / costs[o.name].capacity,
            selectivity=costs[o.name].selectivity,
            scale=o.scale if o.can_scale else None,
            spread=SPREAD,
            keyed=_keys(pipeline.groups, costs[o.name]) if o.keyed else None,
        )
        for o in operators
    )
    counts = {str(o.name): o.instances_at_start for o in operators}
    return Outline(tuple(edges(operators)), models, counts)


def _keys(groups: int, cost: Cost) -> Keys:
    if not cost.skew:
        return Keys(groups=groups, keys=cost.keys)
    weights = [0.0] * groups
    for key in range(cost.keys):
        weights[group_of(key, groups)] += (key + 1) ** -cost.skew
    return Keys(groups=groups, keys=cost.keys, weights=tuple(weights))


class Looks:
    """Looks at a world at regular times and writes down what there is."""

    def __init__(self, world: World, seed: int, seconds: float) -> None:
        self._world = world
        self._every_s = max(SAMPLE_S_MIN, seconds / SAMPLES)
        self._courses = {str(name): Course() for name in world.models}
        self._found = Forecast(seed, seconds, [], [], self._courses, {}, {}, {})
        self._taken: Counter[str] = Counter()
        world.clock.at(self._every_s, self._look)

    def _look(self, _: None) -> None:
        world, found = self._world, self._found
        now_s = world.clock.now
        over_s = min(now_s, max(self._every_s, OFFERED_S))
        boards = world.boards.values()
        came = sum(board.due(now_s) - board.due(now_s - over_s) for board in boards)
        found.t.append(round(now_s, 3))
        found.offered.append(round(came / over_s, 1))
        for name, course in self._courses.items():
            self._look_at(name, course)
        world.clock.after(self._every_s, self._look)

    def _look_at(self, name: str, course: Course) -> None:
        world = self._world
        own = [i for i in world.instances.values() if i.me.operator == name]
        living = [i for i in own if i.began and not i.ended]
        taken = sum(i.work.tuples_in for i in own)
        course.instances.append(world.active[name])
        course.load.append(round(_mean([i.scaling.load for i in living]), 4))
        course.rate_in.append(round((taken - self._taken[name]) / self._every_s, 1))
        course.waiting.append(sum(i.work.queued for i in living) + self._held_for(name))
        course.messages.append(sum(c.messages_sent for i in own for c in i.neighbours.all))
        latency = world.latency[name]
        course.p50_ms.append(_rounded(latency.percentile(0.5)))
        course.p99_ms.append(_rounded(latency.percentile(0.99)))
        latency.take()
        self._taken[name] = taken

    def _held_for(self, name: str) -> int:
        """What predecessors hold for want of credit, or what a source has not read yet."""
        world = self._world
        if name in world.boards:
            board = world.boards[name]
            return board.due(world.clock.now) - board.read
        branches = (b for i in world.instances.values() for b in i.outbox.branches)
        return sum(b.held for b in branches if b.operator == name)

    def concluded(self) -> Forecast:
        found, instances = self._found, self._world.instances.values()
        for name in self._courses:
            own: list[Instance] = [i for i in instances if i.me.operator == name]
            found.joins[name] = sum(i.joins for i in own)
            found.leaves[name] = sum(i.leaves for i in own)
        downstream, taken = self._world.downstream, self._world.tuples_delivered
        found.delivered = {str(n): taken[n] for n, below in downstream.items() if not below}
        return found


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
