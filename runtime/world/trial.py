"""One world drawn from a seed, and its verdict.

valid     the run came to its end; the oracle finds every result, once, and in its order; the
          ledger balances
invalid   something of that is not so, or the world does not end, or its code has raised
unknown   the run gave up for a reason that it may have, such as too many deaths in a row
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, get_args

from anabranch.runtime.pipeline.definition import Delivery
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.policies.script import Script, parse_script
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.sinks.jsonl import jsonl
from anabranch.runtime.world.disk_faults import ByChance
from anabranch.runtime.world.scenes import SCENES, Scene, source
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.timeline import Deadlock, TooLong
from anabranch.runtime.world.troubles import Troubles
from anabranch.runtime.world.world import FOLDER, End, World, WorldError

RESULTS = FOLDER / "results.jsonl"
LETTERS = FOLDER / "dead.jsonl"
GROUPS = 8
EXACTLY: Delivery = "effectively-once"
DELIVERIES: tuple[Delivery, ...] = get_args(Delivery)
ENDS_SHARE = 0.3
"""Of the worlds in which processes may die: in these all of them do at once."""
BOUND_S = 120.0
KILLED = "was killed by SIGKILL"
TURNS_MAX = 60_000
"""Most worlds are over after a tenth of that."""


@dataclass(frozen=True)
class Trial:
    """`span_s`: within which the `count` numbers come in. `killed`, `full`: how probable it is that
    a call to the disk kills its process, and that there is no room. `sync_s`: how long a sync
    takes. `ends`: of all processes at once; another agent goes on."""

    seed: int
    scene: Scene
    count: int
    span_s: float
    decisions: tuple[str, ...]
    conditions: Conditions
    troubles: Troubles
    killed: float
    full: float
    delivery: Delivery = EXACTLY
    ends: tuple[End, ...] = ()
    sync_s: float = 0.0

    @property
    def outlives_power(self) -> bool:
        return any(end.power for end in self.ends)


class Word(Enum):
    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


@dataclass
class Found:
    """What a world came to. `happened`: how often what, such as joins and deaths. `trace`: a
    checksum of all that any process was told, and when."""

    trial: Trial
    word: Word
    why: str
    virtual_s: float
    trace: int
    cpu_s: float
    happened: Counter[str] = field(default_factory=Counter)

    @property
    def text(self) -> str:
        happened = ", ".join(f"{n} {what}" for what, n in sorted(self.happened.items()) if n)
        why = f": {self.why}" if self.why else ""
        return (
            f"{self.trial.seed} {self.trial.scene.name} {self.word.value}{why} "
            f"({self.trial.count} numbers, {self.virtual_s:.2f} s, {happened})"
        )


def drawn(seed: int, scene: str = "", *, deaths: bool = True) -> Trial:
    """The world of a seed. `scene`: this one and no other. `deaths`: whether processes may die."""
    rng = random.Random(f"{seed} trial")
    chosen = SCENES[scene or rng.choice([*SCENES])]
    count, span_s = rng.choice((60, 150, 300)), rng.choice((0.05, 0.2, 0.6))
    until_s = span_s + 0.3
    deadly = deaths and not chosen.crashes and rng.random() < 0.6
    rough = rng.random() < 0.5
    trial = Trial(
        seed,
        chosen,
        count,
        span_s,
        decisions=tuple(_decisions(rng, chosen, until_s)),
        conditions=Conditions(
            latency_s=rng.choice((20e-6, 200e-6, 0.005)),
            jitter_s=rng.choice((50e-6, 0.001, 0.02)),
            stalls=rng.choice((0.0, 0.0, 0.02)),
            cuts=rng.choice((0.0, 0.3)),
            wire_bytes=rng.choice((2_000, 128_000)),
        ),
        troubles=Troubles(
            until_s=until_s,
            kills=rng.choice((1.0, 4.0, 10.0)) if deadly else 0.0,
            cuts=rng.choice((0.0, 5.0, 20.0)) if rough else 0.0,
            half_open_s=rng.choice((0.0, 0.3)),
            clogs=rng.choice((0.0, 5.0)) if rough else 0.0,
            stops=rng.choice((0.0, 3.0)) if rough else 0.0,
        ),
        killed=rng.choice((0.0, 0.0, 0.002)) if deadly else 0.0,
        full=rng.choice((0.0, 0.0, 0.0, 0.01)),
        delivery=rng.choice((EXACTLY, *DELIVERIES)) if chosen.wanted else EXACTLY,
    )
    return ending(trial) if deaths and rng.random() < ENDS_SHARE else trial


def ending(trial: Trial) -> Trial:
    """The same, but all processes end at once, one to three times; half of the trials lose their
    power then."""
    rng = random.Random(f"{trial.seed} ends")
    power, count = rng.random() < 0.5, rng.choice((1, 2, 3))
    times = sorted(rng.uniform(0.0, trial.span_s + 0.3) for _ in range(count))
    sync_s = rng.choice((0.0, 0.0005, 0.005)) if power else 0.0
    return replace(trial, ends=tuple(End(at_s, power) for at_s in times), sync_s=sync_s)


def _decisions(rng: random.Random, scene: Scene, until_s: float) -> list[str]:
    found = []
    for _ in range(rng.choice((0, 3, 8, 16))):
        operator = rng.choice(scene.scaled)
        moves = ["move", "move"] if operator in scene.keyed else []
        action = rng.choice(["duplicate", "duplicate", "duplicate", "leave", "hand_over", *moves])
        found.append(f"{rng.uniform(0.0, until_s):.4f} {operator} {action}")
    return found


def judged(trial: Trial) -> Found:
    began_s, world = clock.process_s(), world_of(trial)
    word, why, report = Word.INVALID, "", None
    try:
        report = world.run(BOUND_S, TURNS_MAX)
    except (Deadlock, TooLong, WorldError) as error:
        why = f"{type(error).__name__}: {error}"
    else:
        word, why = _word(trial, world, report)
    return Found(
        trial,
        word,
        why,
        virtual_s=world.timeline.now,
        trace=world.network.trace,
        cpu_s=clock.process_s() - began_s,
        happened=_happened(world, report),
    )


def world_of(trial: Trial) -> World:
    pipeline = Pipeline(
        "world",
        groups=GROUPS,
        dead_letters=str(LETTERS),
        delivery=trial.delivery,
        durable="power" if trial.outlives_power else "process",
    )
    results = trial.scene.build(source(pipeline, trial.count, trial.span_s))
    results.sink("out", jsonl(RESULTS))
    return World(
        pipeline,
        trial.seed,
        options=Options(script=_script(trial), on_output=_unheard, warm=1),
        conditions=trial.conditions,
        troubles=trial.troubles,
        disk_faults=ByChance(
            random.Random(f"{trial.seed} disk"),
            full=trial.full,
            killed=trial.killed,
            sync_s=trial.sync_s,
        ),
        ends=trial.ends,
    )


def _script(trial: Trial) -> Script | None:
    return parse_script("; ".join(trial.decisions)) if trial.decisions else None


def _unheard(_name: str, _line: str) -> None:
    """What instances would tell a user."""


def _word(trial: Trial, world: World, report: Report) -> tuple[Word, str]:
    if report.failure is not None:
        by_deaths = trial.troubles.kills > 0 and KILLED in report.failure
        return Word.UNKNOWN if by_deaths else Word.INVALID, report.failure
    rows = [json.loads(line) for line in world.written(RESULTS).splitlines()]
    if fault := _fault(trial, rows) or _fault_of_letters(trial, world, report):
        return Word.INVALID, fault
    if not report.ok:
        return Word.INVALID, "; ".join(report.ledger.faults) or f"the run ended as {report.ended}"
    return Word.VALID, ""


def _fault(trial: Trial, rows: list[Any]) -> str:
    """What is wrong with the results."""
    if trial.delivery == EXACTLY or trial.scene.wanted is None:
        return trial.scene.fault(rows, trial.count)
    found, wanted = Counter(rows), trial.scene.wanted(trial.count)
    if trial.delivery == "at-most-once" and (extra := found - wanted):
        return f"{extra.total()} too many, such as {[*extra][:5]}"
    if trial.delivery == "at-least-once" and (missing := wanted - found):
        return f"{missing.total()} missing, such as {[*missing][:5]}"
    if strange := found.keys() - wanted.keys():
        return f"results of nothing: {[*strange][:5]}"
    return ""


def _fault_of_letters(trial: Trial, world: World, report: Report) -> str:
    dead = trial.scene.dead(trial.count)
    counted, written = report.ledger.dead_letters, len(world.written(LETTERS).splitlines())
    least = 0 if trial.delivery == "at-most-once" else dead
    most = math.inf if trial.delivery == "at-least-once" else dead
    if least <= counted <= most and least <= written <= most:
        return ""
    return f"{counted} dead letters are counted and {written} written, of {dead} bad tuples"


def _happened(world: World, report: Report | None) -> Counter[str]:
    found = Counter(world.troubles.done)
    faults = world.disk_faults
    if isinstance(faults, ByChance):
        found.update({f"disk {kind}": n for kind, n in faults.met.items()})
    if report is not None:
        for operator in report.operators:
            found["joins"] += operator.joins
            found["leaves"] += operator.leaves
            found["deaths"] += operator.deaths
    return found
