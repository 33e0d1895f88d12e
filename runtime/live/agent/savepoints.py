"""Savepoints of live runs: the journals of a run that has stopped, as a savepoint, and
what the first instances of a run begin with.

With `Options.until_committed` the end of the input is not the end of the stream (see
`RunContext.stays_open`): every instance processes what came and finishes by the rules E1 to E6, but
no timer fires and no window ends because of it. So the journals of the instances that have finished
have the whole state of the stream, and nothing is on its way.

A run that begins from a savepoint puts the part of each founder beside its journal, as its *base*
(`runtime.live.commit.recovery.read_base`), before any of them starts.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.ownership import founding
from anabranch.protocol.states import Gone
from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.journaling import restore
from anabranch.runtime.keyed.watermarks import Stamper
from anabranch.runtime.live.agent.boards import Boards
from anabranch.runtime.live.agent.clock import RunClock
from anabranch.runtime.live.agent.finals import Finals
from anabranch.runtime.live.agent.pins import check_pin
from anabranch.runtime.live.agent.recorder import Recorder
from anabranch.runtime.live.agent.run_files import RunFiles
from anabranch.runtime.live.agent.run_journal import BoardSnapshot, Pinned, RunRecord
from anabranch.runtime.live.agent.state_dir import JOURNALS
from anabranch.runtime.live.commit.recovery import Past, write_base
from anabranch.runtime.live.instance.keyed_pump import KEYED
from anabranch.runtime.live.instance.pumps import STAMPS
from anabranch.runtime.live.journal.journal import read_journal
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.plan.spec import Span
from anabranch.runtime.ports.disk import store
from anabranch.runtime.savepoint import folder
from anabranch.runtime.savepoint.folder import SAVEPOINT, Columns, Savepoint, SavepointError
from anabranch.runtime.savepoint.inputs import INPUT_ADVICE, Position, is_backfill, rows_of_files
from anabranch.runtime.savepoint.state_rows import (
    KeptState,
    head_of,
    row_of_watermark,
    rows_of_devices,
    rows_of_keys,
    rows_of_source,
)
from anabranch.runtime.savepoint.versions import STATE_FORMAT, version
from anabranch.runtime.sources.covered import Covered
from anabranch.runtime.values.checks import PipelineError

# -- before a run begins -------------------------------------------------------------------------


def check_stop(pipeline: Pipeline, options: Options, *, resumed: bool) -> None:
    """Raise `SavepointError` unless a savepoint can be written at the end."""
    assert options.state is not None
    folder.check_package()
    if store().exists(options.state / SAVEPOINT) and not resumed:
        raise SavepointError(
            f"state folder {str(options.state)!r} holds {SAVEPOINT!r} already: begin from it with "
            "--from and another --state, or move it away"
        )
    if pipeline.delivery == "at-most-once":
        raise SavepointError(
            "a pipeline with delivery='at-most-once' keeps no state of keys, and there is nothing "
            "to save; use 'effectively-once'"
        )
    if options.backfill is not None:  # of which no position is kept
        return
    for operator in pipeline.operators.values():
        source = operator.source
        if source is None:
            continue
        if source.service is not None or not (source.scalable and source.positions):
            raise SavepointError(
                f"source {operator.name!r} cannot be read again from a position, so there is no "
                "savepoint of it; read files, or ab.generate"
            )


# -- at the beginning ----------------------------------------------------------------------------


def restore_sources(
    boards: Boards,
    savepoint: Savepoint,
    positions: Mapping[str, Position],
    log: Callable[[RunRecord], None],
) -> None:
    """The boards go on behind what was read. Raises `InputChanged`, `SplitsError`."""
    for row in savepoint.each("sources"):
        at = positions[row["operator"]]
        snapshot = BoardSnapshot(
            operator=row["operator"],
            pulled=at.pulled,
            digest=at.digest,
            returned=at.returned,
            held=[],
            claims=row["claims"],
            progress=row["progress"],
            ended_early=False,
        )
        boards.restore(snapshot, advice=INPUT_ADVICE)
        log(snapshot)


def restore_pins(
    pipeline: Pipeline,
    savepoint: Savepoint,
    pinned: dict[str, int],
    log: Callable[[RunRecord], None],
    say: Callable[[str, str], None],
) -> None:
    """What a user has set of numbers of instances holds in the next run, too, unless its operators
    cannot have them any more."""
    for operator, n in savepoint.head.pinned.items():
        try:
            check_pin(pipeline.operators, operator, n)
        except PipelineError as error:
            say(operator, f"the savepoint says {n} instances, which does not hold here: {error}")
        else:
            log(Pinned(operator=operator, instances=n))
            pinned[operator] = n


def lay_bases(pipeline: Pipeline, files: RunFiles, savepoint: Savepoint) -> None:
    """What each founder begins with."""
    kept = KeptState(savepoint)
    owners = {str(o.name): _owners(pipeline, o) for o in pipeline.operators.values() if o.edges}
    bases: dict[tuple[str, int], dict[str, list[bytes]]] = {}
    for operator, owner, change in kept.keyed(pipeline.groups, lambda o, group: owners[o][group]):
        bases.setdefault((operator, owner), {}).setdefault(KEYED, []).append(change)
    for operator, of_group in owners.items():
        for owner in {*of_group.values()}:
            base = bases.setdefault((operator, owner), {})
            base.setdefault(KEYED, []).append(kept.time(operator))
    for operator, stamps in kept.stamps().items():
        for number in range(pipeline.operators[OperatorName(operator)].instances_at_start):
            bases.setdefault((operator, number), {})[STAMPS] = [stamps]
    for (operator, number), base in bases.items():
        write_base(files.journal_of(operator, number), base)


def _owners(pipeline: Pipeline, operator: Operator) -> dict[int, int]:
    """By group: the number of the founder that has it."""
    founders = [InstanceId(operator.name, n) for n in range(operator.instances_at_start)]
    routes = founding(operator.name, founders, pipeline.groups)
    return {route.group: route.owner.number for route in routes}


# -- at the end ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Stopped:
    """What is written of a run that has stopped, by the records of the agent."""

    pipeline: Pipeline
    journals: Path
    boards: list[BoardSnapshot]
    covered: Mapping[str, Covered]
    ledger: Columns
    passed_s: float
    span: Span | None
    pinned: Mapping[str, int]


def stopped(
    pipeline: Pipeline,
    files: RunFiles,
    boards: Boards,
    recorder: Recorder,
    clock: RunClock,
    span: Span | None,
    pinned: Mapping[str, int],
) -> Stopped:
    """To be called in the thread of the agent."""
    passed_s, journals = clock.earlier_s + clock.now_s, files.path / JOURNALS
    ledger = _ledger(map(str, pipeline.operators), recorder.finals)
    snapshots = [*boards.snapshots()]
    covered = {board.operator: boards.covered(board.operator) for board in snapshots}
    return Stopped(pipeline, journals, snapshots, covered, ledger, passed_s, span, dict(pinned))


def write(run: Stopped, path: Path) -> None:
    """Raises `SavepointError`, `JournalError`, `OSError`."""
    passed_s = 0.0 if is_backfill(run.span) else run.passed_s
    head = head_of(run.pipeline, STATE_FORMAT, version(), passed_s, run.span, run.pinned)
    folder.write(path, head, _rows(run))


def _rows(run: Stopped) -> Iterator[tuple[str, Columns]]:
    for board in run.boards:
        if is_backfill(run.span):
            yield from rows_of_source(board.operator, [], pulled=0, digest=0)
            continue
        yield from rows_of_source(
            board.operator,
            [*board.unread, *board.returned],
            pulled=board.pulled,
            digest=board.digest,
            claims=board.claims,
            progress=board.progress,
        )
        source = run.pipeline.operators[OperatorName(board.operator)].source
        yield from rows_of_files(board.operator, source, run.covered[board.operator])
    yield "ledger", run.ledger
    for place, operator in enumerate(run.pipeline.operators.values()):
        if operator.edges or operator.timing is not None:
            yield from _of_operator(run, place, operator)


def _of_operator(run: Stopped, place: int, operator: Operator) -> Iterator[tuple[str, Columns]]:
    """Of all its instances that have finished; others have left, and given away what they had."""
    name = str(operator.name)
    for journal in _journals(run.journals, place):
        number = int(journal.name.split(".")[1])
        instance = f"{name}.{number}"
        past = _past_of(run, journal, operator)
        if past is None:
            continue
        if operator.edges:
            held = Holdings(name, run.pipeline.groups)
            restore(held, past.added.get(KEYED, []))
            yield from rows_of_keys(name, held)
            yield row_of_watermark(name, instance, held.watermark, reads_time=False)
        if operator.timing is not None:
            stamper = Stamper(operator.timing)
            watermark = stamper.watermark(stamper.restore(past.added.get(STAMPS, [])))
            yield row_of_watermark(name, instance, watermark, reads_time=True)
            yield from rows_of_devices(name, stamper.latest)


def _journals(folder: Path, place: int) -> list[Path]:
    """Of the operator at this place, one for each instance."""
    numbered = fnmatch.filter(store().names(folder), f"{place}.*.journal.[0-9]*")
    names = {name.rpartition(".")[0] for name in numbered}
    return [folder / name for name in sorted(names)]


def _past_of(run: Stopped, journal: Path, operator: Operator) -> Past | None:
    """None of an instance that has left."""
    power = run.pipeline.durable_of(str(operator.name)) == "power"
    past = Past()
    for record in read_journal(journal, power=power):
        past.take(record)
    core = past.parts.get("core")
    finished = core is not None and isinstance(core[0], Gone) and core[0].reason == "finished"
    return past if finished else None


def _ledger(operators: Iterable[str], finals_of: Finals) -> Columns:
    names = [*operators]
    rows = [finals_of.rows(name) for name in names]
    return {
        "operator": names,
        "tuples_in": [sum(f.tuples_in for f in finals) for finals in rows],
        "processed": [sum(f.processed for f in finals) for finals in rows],
        "tuples_out": [sum(f.tuples_out for f in finals) for finals in rows],
        "dead": [sum(f.dead + f.dead_upstream for f in finals) for finals in rows],
        "late": [sum(sum(f.late.values()) for f in finals) for finals in rows],
    }
