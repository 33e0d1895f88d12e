"""Draws the world that a seed stands for: everything before anything happens, so that a failing
seed can be read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import get_args

from anabranch.protocol.limits import DEFAULT_LIMITS, Limits
from anabranch.runtime.live.agent.deaths import RESUMES_MAX
from anabranch.runtime.pipeline.definition import Delivery
from anabranch.runtime.world.drawn_trial import EXACTLY, Crashes, Trial
from anabranch.runtime.world.fleet import FLEET, fleet
from anabranch.runtime.world.graphs import (
    Breadth,
    Graph,
    Supply,
    before_a_slow_one,
    drawn_graph,
    keyed_row,
)
from anabranch.runtime.world.load import InputLoad
from anabranch.runtime.world.pooled import POOL, pooled
from anabranch.runtime.world.scenes import NEAR, SCENES, GraphScene, Scene
from anabranch.runtime.world.stdio_scene import STDIO, StdioScene
from anabranch.runtime.world.variants import (
    PREY_EACH_MAX,
    apart,
    before_a_new_owner,
    drawn_conditions,
    drawn_troubles,
    ending,
    hanging,
    may_save,
    pinned,
    saving,
    spread,
)

DELIVERIES: tuple[Delivery, ...] = get_args(Delivery)
APART = "hosts"
PARQUET = "parquet"
SAVEPOINTS = "savepoints"
NEW_OWNER = "new-owner"
DRAWN = ("graph", "row", "leavers", APART, PARQUET)
NAMES = (*DRAWN, SAVEPOINTS, STDIO, NEW_OWNER, *SCENES, NEAR.name, FLEET, POOL)
"""Of all pipelines that a world may be asked to have."""
SUDDEN = (0.0, 0.0, 0.05, 0.2)
"""Where processes may die: see `Troubles.sudden`."""
AT_ONCE_SHARE = 0.5
"""Of the worlds that come to rest, where it shows what an operation has left behind, such as a
newcomer that no incarnation of its creator has recorded: processes of these die before a step is in
the journal, and not only behind it."""
AT_ONCE = (0.1, 0.3)
"""How probable that is there, after each step."""
GRAPHS_SHARE = 0.65
"""Of the worlds: their pipelines are drawn by chance."""
DEADLY_SHARE = 0.6
FULL = (0.0, 0.0, 0.0, 0.05)
"""How probable it may be that a call to the disk finds no room."""
ENDS_SHARE = 0.3
"""Of the worlds in which processes may die: in these all of them do at once."""
CONGESTED_SHARE = 0.3
"""Of the graphs in which one operator by key follows another: there the key groups of the first
move all the time, while the second has long queues. What it has received of the moves is far ahead
of what it has processed."""
PARQUET_SHARE = 0.1
"""Of the graphs that were not asked for: one of their sinks writes Parquet files, or several do."""
KILLED_AT_FILES = (0.0, 0.01, 0.03)
"""How probable it is there that a call to the disk kills its process."""
SAVING_SHARE = 0.06
"""Of the worlds: their run stops with a savepoint, and another one begins from it."""
STDIO_SHARE = 0.03
"""Of the worlds: they read standard input, and write to standard output."""
ROWS_SHARE = 0.15
"""Of the graphs: they are two operators by key in a row. There, too, the key groups of the first
move all the time, and deaths hit one of the two more often than the others."""
ORDERED_SHARE = 0.3
"""Of those rows: one instance sends to the first of the two."""
NEAR_SHARE = 0.5
"""Of the pipelines with windows: they follow the source at once."""
HOSTS_SHARE = 0.15
APART_SHARE = 0.7
"""Of those worlds in which no process hangs, which only its own host would see."""
RELOCATIONS_SHARE = 0.3
"""Of the worlds with decisions."""
LEAVERS_SHARE = 0.1
"""Of the graphs: there, instances of an operator come and leave all the time, while the one behind
it has a long queue and dies again and again."""
LEAVERS = ("b duplicate", "b duplicate", "b leave", "b leave", "a duplicate", "a leave")
DEATHS_EACH_MAX = RESUMES_MAX
"""Of one instance or service, whatever kills it: after more of them in a row a run is given up,
which proves nothing."""
RESTING_SHARE = 0.4
"""Of the worlds whose source can wait: they come to rest before their input ends."""
REST_S = 8.0
"""After the last trouble a world is at rest by then."""
HANGS_SHARE = 0.15
"""Of the worlds in which processes may die: in these some hang, too."""
SERVICE_HANGS_SHARE = 0.3
"""Of the worlds with a service in which processes may die: that hangs."""
HANGS_REST_S = 40.0
"""More time to come to rest where processes hang: it takes seconds until that is noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How big worlds get. `turns_max`: most worlds are over after a tenth of that."""

    breadth: Breadth
    counts: tuple[int, ...]
    spans_s: tuple[float, ...]
    decisions: tuple[int, ...]
    groups: tuple[int, ...]
    turns_max: int
    bound_s: float


SIZES = {
    "small": Size(
        breadth=Breadth(
            operators=(2, 3, 3, 3, 4, 4, 5, 6), instances=(1, 1, 1, 2, 3), instances_max=5
        ),
        counts=(60, 150, 300),
        spans_s=(0.05, 0.2, 0.6),
        decisions=(0, 3, 8, 16),
        groups=(5, 8, 8, 16),
        turns_max=400_000,
        bound_s=180.0,
    ),
    "large": Size(
        breadth=Breadth(operators=(3, 4, 5, 6), instances=(1, 2, 4), instances_max=12),
        counts=(2_000, 10_000),
        spans_s=(1.0, 3.0),
        decisions=(20, 60),
        groups=(16, 64),
        turns_max=5_000_000,
        bound_s=600.0,
    ),
}


def drawn(
    seed: int, scene: str | Scene = "", *, size: str = "small", crashes: Crashes = "some"
) -> Trial:
    """The world of a seed. `scene`: this one and no other; "graph": one that is drawn; "row": two
    operators by key in a row; "leavers": see `LEAVERS_SHARE`; "hosts": one that is drawn, `apart`;
    "parquet": one with a Parquet sink; "savepoints": any, in two runs, if it can stop with a
    savepoint; "stdio": from standard input to standard output; "new-owner": see
    `before_a_new_owner`, "fleet": see `fleet`, and "pool": see `pooled`; all three for no seed
    without being asked for. `crashes`: whether processes die in it: in some worlds, in all, or in
    none. Raises `KeyError` for an unknown size.
    """
    if scene == NEW_OWNER:
        return before_a_new_owner(seed, size, deadly=crashes != "none")
    if scene == FLEET:
        return fleet(seed, size, deadly=crashes != "none")
    if scene == POOL:
        return pooled(drawn(seed, APART, size=size, crashes=crashes))
    drawing = _TrialDrawing(seed, size, crashes)
    if scene == APART:
        drawing.hangs = False
        return apart(drawing.trial("graph"))
    of_stdio = not scene and random.Random(f"{seed} with stdio").random() < STDIO_SHARE
    if of_stdio or scene == STDIO:
        return pinned(drawing.trial(StdioScene(seed)))
    trial = drawing.trial("" if scene == SAVEPOINTS else scene)
    stops = not scene and random.Random(f"{seed} saving").random() < SAVING_SHARE
    if (stops or scene == SAVEPOINTS) and may_save(trial):
        return pinned(saving(trial))
    chance = random.Random(f"{seed} hosts").random()
    if not trial.scene.scaled or chance >= HOSTS_SHARE:
        return pinned(trial)
    of_apart = random.Random(f"{seed} apart")
    if of_apart.random() < APART_SHARE and not trial.hangs:
        return apart(trial)
    return pinned(spread(trial))


class _TrialDrawing:
    def __init__(self, seed: int, size: str, crashes: Crashes) -> None:
        self.seed = seed
        self.size = size
        self.bounds = SIZES[size]
        self.crashes = crashes
        self.rng = random.Random(f"{seed} {size} trial")
        self.count = self.rng.choice(self.bounds.counts)
        self.span_s = self.rng.choice(self.bounds.spans_s)
        self.restless: tuple[str, ...] = ()
        """What is decided all the time, and nothing else."""
        self.prey = ""
        """An operator whose processes die often."""
        self.of_leavers = random.Random(f"{seed} leavers")
        self.of_rows = random.Random(f"{seed} rows")
        of_hangs = random.Random(f"{seed} hangs")
        self.hangs = crashes != "none" and of_hangs.random() < HANGS_SHARE

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def trial(self, wanted: str | Scene) -> Trial:
        rng = self.rng
        drawn_ = self.chance(GRAPHS_SHARE)
        name = wanted if isinstance(wanted, str) else wanted.name
        name = name or ("graph" if drawn_ else rng.choice([*SCENES]))
        is_row = self.of_rows.random() < ROWS_SHARE
        are_leavers = self.of_leavers.random() < LEAVERS_SHARE
        load, rest_at_s = self._load(may_rest=name in DRAWN)
        scene: Scene
        if name in DRAWN:
            if name == "leavers" or (name == "graph" and are_leavers):
                graph, decides = self._leavers()
            elif name == "row" or is_row:
                graph, decides = self._row()
            else:
                graph, decides = self._graph(load)
            if decides:
                rest_at_s = None  # it is never at rest
            if rest_at_s is not None:  # else its input ends when all numbers have come
                graph = replace(graph, paced=False)
            supplies: list[Supply] = ["bursts", "outside", "items"]
            if rest_at_s is not None:  # it waits for its last tuples
                supplies.remove("items")
            graph = replace(graph, supply=random.Random(f"{self.seed} supply").choice(supplies))
            of_parquet = random.Random(f"{self.seed} parquet")
            if name == PARQUET or (not wanted and of_parquet.random() < PARQUET_SHARE):
                graph = graph.in_parquet(of_parquet)
            scene = GraphScene(graph, load, decides=decides)
        elif name == NEAR.name or (name == "windows" and self._is_near()):
            scene = NEAR
        else:
            scene = SCENES[name] if isinstance(wanted, str) else wanted
        trial = Trial(
            seed=self.seed,
            size=self.size,
            scene=scene,
            load=load,
            decisions=tuple(self._decisions(scene)),
            conditions=drawn_conditions(rng),
            limits=self._limits(),
            full=rng.choice(FULL),
            delivery=self._delivery(scene),
            groups=rng.choice(self.bounds.groups),
            rest_at_s=rest_at_s,
        )
        if self.prey:
            trial = self._with_long_queues(trial)
        troubles = drawn_troubles(rng, trial.until_s, rough=self.chance(0.5))
        trial = replace(trial, troubles=troubles)
        deadly = not scene.crashes and (self.chance(DEADLY_SHARE) or self.crashes == "all")
        ends = self.chance(ENDS_SHARE)
        if self.crashes == "none":
            return trial
        if deadly:
            trial = self._deadly(trial)
        if self._hangs_in(scene):
            trial = hanging(trial)
        return ending(trial) if ends and scene.resumable else trial

    def _hangs_in(self, scene: Scene) -> bool:
        of_services = random.Random(f"{self.seed} hangs of services")
        service_hangs = scene.served and of_services.random() < SERVICE_HANGS_SHARE
        return not scene.crashes and (self.hangs or service_hangs)

    def _is_near(self) -> bool:
        return random.Random(f"{self.seed} near").random() < NEAR_SHARE

    def _load(self, *, may_rest: bool) -> tuple[InputLoad, float | None]:
        rng, count = self.rng, self.count
        bursts = rng.choice((1, 5, 20))
        times = sorted(rng.uniform(0.0, self.span_s) for _ in range(bursts))
        shares = [0, *sorted(rng.randint(0, count) for _ in range(bursts - 1)), count]
        counts = [b - a for a, b in pairwise(shares)]
        rest_at_s = None
        if may_rest and self.chance(RESTING_SHARE):
            rest_at_s = self.span_s + 0.3 + REST_S + HANGS_REST_S * self.hangs
            times, counts = [*times, rest_at_s + 0.5], [*counts, 1]
        load = InputLoad(
            count=sum(counts),
            span_s=self.span_s,
            bursts=tuple(zip(times, counts, strict=True)),
        )
        return load, rest_at_s

    def _row(self) -> tuple[Graph, bool]:
        timed = self.of_rows.random() < 0.5
        self.restless, self.prey = ("c move",), "c" if timed else "d"
        ordered = random.Random(f"{self.seed} ordered").random() < ORDERED_SHARE
        return keyed_row(self.of_rows, timed=timed, ordered=ordered), False

    def _leavers(self) -> tuple[Graph, bool]:
        self.restless, self.prey = LEAVERS, "c"
        return before_a_slow_one(self.of_leavers), False

    def _graph(self, load: InputLoad) -> tuple[Graph, bool]:
        """And whether it scales by its load."""
        decides = self.chance(0.3)
        work_s = 1.5 * self.span_s / load.count
        graph = drawn_graph(self.rng, self.bounds.breadth, decides=decides, work_s=work_s)
        rows = [] if decides else graph.keyed_rows
        if rows and self.chance(CONGESTED_SHARE):
            above, below = self.rng.choice(rows)
            self.restless = (f"{above} move",)
            graph = graph.congested(above, below, self.rng.choice((0.0005, 0.002, 0.005)))
        return graph, decides

    def _delivery(self, scene: Scene) -> Delivery:
        delivery = self.rng.choice((EXACTLY, EXACTLY, *DELIVERIES))
        return delivery if scene.may_lose else EXACTLY

    def _limits(self) -> Limits:
        rng = self.rng
        batch = rng.choice((1, 3, 10, 2048, 2048))
        return replace(
            DEFAULT_LIMITS,
            batch_tuples_max=batch,
            credit_tuples=rng.choice((batch, 8 * batch, 8192)),
            credit_bytes=rng.choice((500, 4 * 2**20, 4 * 2**20)),
            outbox_tuples_max=rng.choice((batch, 8 * batch, 2048)),
            linger_s=rng.choice((0.0, 0.005, 0.02)),
        )

    def _with_long_queues(self, trial: Trial) -> Trial:
        """And with state that goes in many pieces."""
        limits = replace(
            trial.limits,
            credit_tuples=DEFAULT_LIMITS.credit_tuples,
            state_chunk_bytes=self.of_rows.choice((50, 300, 64 * 2**10)),
        )
        return replace(trial, limits=limits)

    def _deadly(self, trial: Trial) -> Trial:
        rng = self.rng
        troubles = replace(
            trial.troubles,
            kills=rng.choice((1.0, 4.0, 10.0)),
            aimed=rng.choice((0.0, 0.5, 0.9)),
            host_kills=rng.choice((0.0, 0.0, 1.0, 3.0)),
            hosts=rng.choice((1, 2, 3)),
            sudden=random.Random(f"{self.seed} of sudden").choice(SUDDEN),
            kills_each_max=DEATHS_EACH_MAX,
        )
        of_rest = random.Random(f"{self.seed} at once")
        if trial.rest_at_s is not None and of_rest.random() < AT_ONCE_SHARE:
            troubles = replace(troubles, sudden=of_rest.choice(AT_ONCE), at_once=0.5)
        if self.prey:
            kills = self.of_rows.choice((3.0, 6.0))
            troubles = replace(
                troubles, kills=kills, aimed=0.9, prey=self.prey, kills_each_max=PREY_EACH_MAX
            )
        if trial.scene.served:
            kills = random.Random(f"{self.seed} of services").choice((0.0, 2.0, 6.0))
            troubles = replace(troubles, service_kills=kills)
        if self.restless is LEAVERS:  # what is repeated comes late from some
            troubles = replace(troubles, clogs=10.0, stops=5.0)
        killed = rng.choice((0.0, 0.0, 0.002))
        if trial.scene.tables or trial.scene.texts:  # whose files are only seen whole or not at all
            killed = random.Random(f"{self.seed} half files").choice(KILLED_AT_FILES)
        return replace(trial, troubles=troubles, killed=killed)

    def _decisions(self, scene: Scene) -> list[str]:
        """Scattered, or so close together that all rounds overlap, at the end of the input too."""
        if scene.decides or not scene.scaled:
            return []
        rng, until_s = self.rng, self.span_s + 0.3
        first_s, last_s = 0.0, until_s
        if self.chance(0.3):
            first_s = rng.choice((rng.uniform(0.0, 0.7 * until_s), self.span_s - 0.02))
            last_s = first_s + 0.04
        among = scene.scaled if self.chance(0.5) else rng.sample(scene.scaled, 1)
        actions = ["duplicate"] * 3 + ["leave", "hand_over"]
        if self.chance(0.3):
            actions = ["duplicate", "leave", "leave", "hand_over", "hand_over"]
        if self.restless:
            times = sorted(rng.uniform(0.0, until_s) for _ in range(max(self.bounds.decisions)))
            return [f"{at_s:.4f} {self.of_leavers.choice(self.restless)}" for at_s in times]
        found = self._relocations(among, first_s, last_s)
        if scene.keyed and self.chance(0.5):  # key groups move all the time
            among, actions = scene.keyed, ["move", "duplicate"]
            found += [f"0.0100 {operator} duplicate" for operator in among]
        for _ in range(rng.choice(self.bounds.decisions)):
            operator = rng.choice(among)
            moves = ["move"] * 3 if operator in scene.keyed else []
            at_s = max(0.0, rng.uniform(first_s, last_s))
            action = rng.choice([*actions, *moves])
            number = " 2" if action == "duplicate" and self.chance(0.2) else ""
            found.append(f"{at_s:.4f} {operator} {action}{number}")
        return found

    def _relocations(self, among: Sequence[str], first_s: float, last_s: float) -> list[str]:
        """In some worlds, in the same moments as the other decisions."""
        rng = random.Random(f"{self.seed} relocations")
        if rng.random() >= RELOCATIONS_SHARE:
            return []
        times = [max(0.0, rng.uniform(first_s, last_s)) for _ in range(rng.choice((1, 3, 8)))]
        return [f"{at_s:.4f} {rng.choice(among)} relocate" for at_s in times]
