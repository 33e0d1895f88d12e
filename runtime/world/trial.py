"""One world, and its verdict.

valid     the run came to its end; while it went on all invariants held; the oracle finds every
          result, once, and in its order; the ledger balances
invalid   something of that is not so, or the world does not end, or its code has raised
unknown   the run gave up for a reason that it may have, such as too many deaths in a row; or it
          took a tuple for the reason of such deaths; or nothing was delivered
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

from anabranch.runtime.live.instance.poison_guard import ENDED_ITS_PROCESS
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.policies.script import Script, parse_script
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.world.disk_faults import ByChance, DiskFaults
from anabranch.runtime.world.drawing import SIZES
from anabranch.runtime.world.drawn_trial import EXACTLY, Saving, Trial
from anabranch.runtime.world.graph_oracle import differences
from anabranch.runtime.world.load import FOLDER
from anabranch.runtime.world.observer import Observer, StoryRow
from anabranch.runtime.world.scenes import Sinks
from anabranch.runtime.world.surroundings import WorldError
from anabranch.runtime.world.timeline import Deadlock, TooLong
from anabranch.runtime.world.world import SavepointStop, World

LETTERS = FOLDER / "dead.jsonl"
ENDED = ("was killed by SIGKILL", "was stopped", "hung for")
"""What the troubles of a world do to a process, in the words of a run that fails."""
LATE = "was not ready within"
"""Of a founder that hangs before the run has begun: the run is refused, for it may be that its
functions never open."""
HANG_S = 2.0


class WorldVerdict(Enum):
    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOutcome:
    """What a world came to. `happened`: how often what, such as joins and deaths. `trace`: a
    checksum of all that any process received, and when: equal for equal worlds."""

    seed: int
    scene: str
    verdict: WorldVerdict
    reason: str
    virtual_s: float
    events: int
    tuples: int
    trace: int
    cpu_s: float
    happened: Counter[str] = field(default_factory=Counter)

    @property
    def plain(self) -> dict[str, Any]:
        """As values that JSON can carry."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**plain, "verdict": self.verdict.value, "happened": dict(self.happened)}

    @property
    def text(self) -> str:
        happened = ", ".join(f"{n} {what}" for what, n in sorted(self.happened.items()) if n)
        reason = f": {self.reason}" if self.reason else ""
        return (
            f"{self.seed} {self.scene} {self.verdict.value}{reason} "
            f"({self.virtual_s:.2f} s, {self.tuples} tuples delivered, {happened})"
        )


def judged(trial: Trial) -> WorldOutcome:
    return told(trial, written=False)[0]


def told(trial: Trial, *, written: bool = True) -> tuple[WorldOutcome, list[StoryRow]]:
    """Let a world happen, and, if it is to be `written`, its exchange too."""
    began_s, world = clock.process_s(), world_of(trial, written=written)
    observer = world.observer
    assert observer is not None
    verdict, reason, report = WorldVerdict.INVALID, "", None
    try:
        report = world.run(SIZES[trial.size].bound_s, SIZES[trial.size].turns_max)
    except (Deadlock, TooLong, WorldError) as error:
        reason = f"{type(error).__name__}: {error}"
    except Exception as error:  # whatever crashes the agent is a finding too
        reason = f"crash: {error!r}"
    else:
        verdict, reason = _verdict(trial, world, report)
    if observer.faults:
        verdict, reason = WorldVerdict.INVALID, observer.faults[0]
    outcome = WorldOutcome(
        seed=trial.seed,
        scene=trial.scene.name,
        verdict=verdict,
        reason=reason,
        virtual_s=world.timeline.now,
        events=observer.events,
        tuples=sum(one.ledger.tuples_out for one in world.reports),
        trace=world.network.trace,
        cpu_s=clock.process_s() - began_s,
        happened=_happened(world),
    )
    return outcome, observer.rows


def world_of(
    trial: Trial, *, written: bool = False, disk_faults: DiskFaults | None = None
) -> World:
    """`disk_faults`: what instances meet in place of what the trial has."""
    pipeline = _built(trial)
    for taken in trial.scene.taken.values():
        taken.clear()
    observer = Observer(
        {str(name): operator for name, operator in pipeline.operators.items()},
        pipeline.topology,
        groups=trial.groups,
        written=written,
    )
    return World(
        pipeline,
        trial.seed,
        options=Options(
            script=_script(trial),
            scaling=trial.scene.decides,
            on_output=_unheard,
            warm=1,
            limits=trial.limits,
            hang_s=HANG_S if trial.hangs else None,
        ),
        conditions=trial.conditions,
        troubles=trial.troubles,
        disk_faults=disk_faults or _disk_faults(trial),
        agent_faults=ByChance(random.Random(f"{trial.seed} agent"), **asdict(trial.agent_disk)),
        agent_power=trial.outlives_power,
        ends=trial.ends,
        observer=observer,
        rest_at_s=trial.rest_at_s,
        guests=trial.scene.guests(),
        hosts=trial.hosts,
        apart=trial.apart,
        pooled=trial.pooled,
        drains=trial.drains,
        pins=trial.pins,
        losses=trial.losses,
        fixed={*pipeline.operators} - {*trial.scene.scaled},
        stop=_stop(trial),
        streams=trial.scene.streams,
    )


def _built(trial: Trial) -> Pipeline:
    pipeline = Pipeline(
        "world",
        groups=trial.groups,
        dead_letters=str(LETTERS),
        delivery=trial.delivery,
        durable="hosts" if trial.copies else "power" if trial.outlives_power else "process",
        copies=trial.copies or 1,
        give_up_after_s=max((loss.agreed_s for loss in trial.losses), default=0.0) or None,
    )
    trial.scene.build(pipeline, trial.load)
    return pipeline


def _stop(trial: Trial) -> SavepointStop | None:
    return (
        None
        if trial.saving is None
        else SavepointStop(trial.saving.at_s, _then(trial, trial.saving))
    )


def _then(trial: Trial, saving: Saving) -> Pipeline:
    """What begins from the savepoint."""
    pipeline = _built(trial)
    operators = {str(name): operator for name, operator in pipeline.operators.items()}
    for name, least in saving.least:
        operator = operators[name]
        assert operator.scale is not None
        scale = replace(operator.scale, min_instances=min(least, operator.scale.max_instances))
        pipeline.operators[operator.name] = replace(operator, scale=scale)
    return pipeline


def _disk_faults(trial: Trial) -> DiskFaults:
    return ByChance(
        random.Random(f"{trial.seed} disk"),
        full=trial.full,
        killed=trial.killed,
        sync_s=trial.sync_s,
    )


def _script(trial: Trial) -> Script | None:
    return parse_script("; ".join(trial.decisions)) if trial.decisions else None


def _unheard(_name: str, _line: str) -> None:
    """What instances would print for a user."""


# -- the verdict ---------------------------------------------------------------------------------


def _verdict(trial: Trial, world: World, report: Report) -> tuple[WorldVerdict, str]:
    if report.failure is not None:
        why = (*ENDED, LATE) if trial.hangs else ENDED
        by_troubles = trial.troubles.kill and any(how in report.failure for how in why)
        verdict = WorldVerdict.UNKNOWN if by_troubles else WorldVerdict.INVALID
        return verdict, report.failure
    try:
        found = results(trial, world)
    except ValueError as error:
        return WorldVerdict.INVALID, str(error)
    fault = next(_faults(trial, found), "") or _fault_of_letters(trial, world)
    blamed = trial.troubles.kill and _blames_a_tuple(world)
    if fault and not blamed:
        return WorldVerdict.INVALID, fault
    for one in world.reports:
        if not one.ok:
            told = "; ".join(one.ledger.faults) or f"the run ended as {one.ended}"
            return WorldVerdict.INVALID, told
    if fault:
        return WorldVerdict.UNKNOWN, f"a tuple counts as the reason of deaths; {fault}"
    if not any(one.ledger.tuples_out for one in world.reports):
        return WorldVerdict.UNKNOWN, "no tuple was delivered"
    return WorldVerdict.VALID, ""


def results(trial: Trial, world: World) -> Sinks:
    """What the sinks have got. Raises `ValueError` if a file is damaged."""
    found = dict(trial.scene.taken)
    for name in trial.scene.files:
        lines = world.written(FOLDER / f"{name}.jsonl").splitlines()
        try:
            found[name] = [_in_tuples(json.loads(line)) for line in lines]
        except json.JSONDecodeError as error:
            raise ValueError(f"at {name} a line is torn: {error.doc!r}") from None
    for name in trial.scene.texts:
        found[name] = world.written(FOLDER / name).decode().splitlines()
    for name in trial.scene.tables:
        found[name] = [*_rows_in(world, FOLDER / name)]
    return found


def _rows_in(world: World, folder: Path) -> Iterator[tuple[Any, ...]]:
    """Of all Parquet files there. Raises `ValueError` if one is damaged."""
    from pyarrow import ArrowException, BufferReader, parquet

    for name in world.names(folder):
        if name.startswith("."):  # it is not complete
            continue
        try:
            table = parquet.read_table(BufferReader(world.written(folder / name)))
        except (ArrowException, OSError) as error:
            raise ValueError(f"{name} of {folder.name} is damaged: {error}") from None
        yield from zip(*table.to_pydict().values(), strict=True)


def _in_tuples(value: Any) -> Any:
    return tuple(map(_in_tuples, value)) if isinstance(value, list) else value


def _faults(trial: Trial, found: Sinks) -> Iterator[str]:
    """What is wrong with the results."""
    if trial.delivery == EXACTLY:
        yield from trial.scene.faults(found, trial.load)
        return
    counts = trial.scene.counts(found, trial.load)
    assert counts is not None
    lost, repeats = trial.delivery == "at-most-once", trial.delivery == "at-least-once"
    for name, due in counts[1].items():
        got = counts[0][name]
        if fault := differences(got, due, lost=lost, repeats=repeats):
            yield f"at {name} {fault}"


def _fault_of_letters(trial: Trial, world: World) -> str:
    dead = trial.scene.dead(trial.load)
    counted = sum(report.ledger.dead_letters for report in world.reports)
    written = len(world.written(LETTERS).splitlines())
    if trial.losses:  # those that lie on a host are lost with it
        written = counted
    least = 0 if trial.delivery == "at-most-once" else dead
    most = math.inf if trial.delivery == "at-least-once" else dead
    if least <= counted <= most and least <= written <= most:
        return ""
    return f"{counted} dead letters are counted and {written} written, of {dead} bad tuples"


def _blames_a_tuple(world: World) -> bool:
    """Whether one is a dead letter because its process died again and again while it was tried:
    troubles may hit the same tuple twice by chance."""
    letters = world.written(LETTERS).decode()
    return any(f"{ENDED_ITS_PROCESS}{how}" in letters for how in ENDED)


def _happened(world: World) -> Counter[str]:
    assert world.observer is not None
    found = Counter(world.troubles.done)
    if world.pool is not None:
        found.update(world.pool.done)
    found["moves"] = world.observer.done["moved"]
    found["hand-overs"] = world.observer.done["handed_over"]
    found["relocations"] = world.observer.done["relocated"]
    found["vetoes"] = world.observer.done["veto"]
    faults = world.disk_faults
    if isinstance(faults, ByChance):
        found.update({f"disk {kind}": n for kind, n in faults.met.items()})
    if isinstance(world.agent_faults, ByChance):
        found.update({f"agent's disk {kind}": n for kind, n in world.agent_faults.met.items()})
    found["savepoints"] = len(world.reports) - 1 if world.reports else 0
    for report in world.reports:
        for operator in report.operators:
            found["joins"] += operator.joins
            found["leaves"] += operator.leaves
            found["deaths"] += operator.deaths
    return found
