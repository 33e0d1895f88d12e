"""Restores the agent of a resumed run from the journal of the agent before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, assert_never

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.live.agent import run_journal as log
from anabranch.runtime.live.agent.boards import Boards
from anabranch.runtime.live.agent.recorder import Recorder
from anabranch.runtime.live.agent.roster import Member, Phase, Roster
from anabranch.runtime.reporting.status import FinalCount, WireId, id_from_wire, id_to_wire


@dataclass(frozen=True, slots=True)
class Recorded:
    """All that the journal of the agent speaks of. `left`: see `Controllers`; `pinned`: see
    `Pins`; `given_up`: see `GiveUps`."""

    roster: Roster
    recorder: Recorder
    boards: Boards
    left: dict[str, dict[str, float]]
    pinned: dict[str, int]
    given_up: dict[str, str] = field(default_factory=dict)


def rebuild(run: Recorded, records: Iterable[Any]) -> float:
    """Returns how long the run had lasted. Raises `InputChanged`, `SplitsError`."""
    passed_s = 0.0
    for record in records:
        match record:
            case log.Passed(seconds=seconds):
                passed_s = seconds
            case log.Happened() | log.Sampled() | log.Reported():
                _to_recorder(run.recorder, record)
            case log.Claimed() | log.Released() | log.EndedEarly() | log.BoardSnapshot():
                _to_boards(run.boards, record)
            case log.Final(count=count):
                run.recorder.note_final(count)
                _end(run.roster, count)
            case log.FinalSum(summed=summed):
                run.recorder.restore(summed)
            case log.Counters():
                _counters(run, record)
            case log.PlanNoted(controller=controller, left=left):
                run.left[controller] = left
            case log.Pinned(operator=operator, instances=None):
                run.pinned.pop(operator, None)
            case log.Pinned(operator=operator, instances=int(instances)):
                run.pinned[operator] = instances
            case log.GivenUp(host=host, is_back=True):
                run.given_up.pop(host, None)
            case log.GivenUp(host=host, by=by):
                run.given_up[host] = by
            case log.Founded() | log.AllRead():
                pass
            case _:
                _to_roster(run, record)
    for member in run.roster.living():
        if member.phase is Phase.STARTING:  # no instance has it in its view
            run.roster.end(member, Phase.DISCARDED)
    return max(passed_s, run.recorder.last_s)


def _to_recorder(recorder: Recorder, record: log.Happened | log.Sampled | log.Reported) -> None:
    match record:
        case log.Happened(event=event):
            recorder.note(event)
        case log.Sampled(t=t, rows=rows):
            recorder.restore_sample(t, rows)
        case log.Reported():
            recorder.resumed = record.resumed
            recorder.events_dropped = record.events_dropped
            recorder.period_s = record.sample_period_s
        case _:
            assert_never(record)


def _end(roster: Roster, count: FinalCount) -> None:
    """A member whose final count is recorded has ended, even if its end is not recorded."""
    for member in roster.living(count.operator):
        if member.text == count.id:
            roster.end(member, Phase.GONE)
            break


def snapshot(run: Recorded, passed_s: float) -> Iterator[log.RunRecord]:
    """Records with the content of all so far."""
    yield log.Founded()
    yield log.Passed(seconds=passed_s)
    for summed in run.recorder.finals.summed.values():
        yield log.FinalSum(summed=summed)
    for count in run.recorder.finals.latest:
        yield log.Final(count=count)
    for member in run.roster.living():
        yield from told_of(member)
    roster, recorder = run.roster, run.recorder
    for operator in roster.next_number:
        yield log.Counters(
            operator=operator,
            next_number=roster.next_number[operator],
            peak=roster.peaks[operator],
            ever=roster.ever[operator],
            joins=recorder.joins[operator],
            deaths=recorder.deaths[operator],
        )
    for controller, left in run.left.items():
        yield log.PlanNoted(controller=controller, left=left)
    for name, instances in run.pinned.items():
        yield log.Pinned(operator=name, instances=instances)
    for host, by in sorted(run.given_up.items()):
        yield log.GivenUp(host=host, by=by)
    yield from run.boards.snapshots()
    yield from _of_report(run.recorder)


def _of_report(recorder: Recorder) -> Iterator[log.RunRecord]:
    """`Reported` has the number of resumptions, so it comes behind the events of resumptions, which
    count up."""
    for event in recorder.events:
        yield log.Happened(event=event)
    yield log.Reported(
        resumed=recorder.resumed,
        events_dropped=recorder.events_dropped,
        sample_period_s=recorder.period_s,
    )
    for t, rows in recorder.ticks:
        yield log.Sampled(t=t, rows=rows)


def told_of(member: Member) -> Iterator[log.RunRecord]:
    """All that counts of what has happened to it."""
    wire = id_to_wire(member.id)
    yield log.Made(id=wire, founder=member.founder, heritage=member.heritage)
    yield log.Begun(
        id=wire, incarnation=member.incarnation, bootstrap=member.bootstrap, host=member.host
    )
    if member.address:
        yield log.Listens(
            id=wire, address=member.address, host=member.listens_on, moved=member.moved
        )
    if member.copies is not None:
        yield log.copied(member.id, member.copies)
    if member.phase is Phase.LISTENING:
        yield log.Told(id=wire)
    if member.phase is Phase.ACTIVE:
        yield log.Active(id=wire)
    yield log.Keeper(id=wire, keeper=member.keeper)
    if member.leaving:
        yield log.LetGo(id=wire, leaving=True)


def _to_boards(
    boards: Boards, record: log.Claimed | log.Released | log.EndedEarly | log.BoardSnapshot
) -> None:
    match record:
        case log.Claimed(id=holder, split=split, number=number):
            boards.claim_again(id_from_wire(holder), split, number)
        case log.Released(id=holder, remainder=remainder, progress=progress, number=number):
            boards.release(id_from_wire(holder), remainder, progress, number)
        case log.EndedEarly(operator=operator, by=by):
            boards.end_input(operator, by)
        case log.BoardSnapshot():
            boards.restore(record)
        case _:
            assert_never(record)


def _to_roster(run: Recorded, record: Any) -> None:
    wire: WireId = record.id
    if isinstance(record, log.Made):
        made = run.roster.restore(id_from_wire(wire), record.founder)
        made.heritage = record.heritage
        return
    instance = id_from_wire(wire)
    if run.roster.has_ended(instance):
        return
    member = run.roster.get(instance)
    assert member is not None, f"{wire} was never made"
    match record:
        case log.Begun(incarnation=incarnation, bootstrap=bootstrap, host=host):
            member.incarnation, member.bootstrap, member.host = incarnation, bootstrap, host
        case log.Listens(address=address, host=host, moved=moved):
            member.address, member.listens_on, member.moved = address, host, moved
        case log.CopiesKnown(copies=copies):
            member.copies = copies
        case log.Told():
            run.roster.listen(member)
        case log.Active():
            if run.roster.activate(member) and not member.founder:
                run.recorder.joins[member.id.operator] += 1
        case log.Over(discarded=discarded):
            run.roster.end(member, Phase.DISCARDED if discarded else Phase.GONE)
        case log.Keeper(keeper=keeper):
            member.keeper = keeper
        case log.LetGo(leaving=leaving):
            member.leaving = leaving
        case log.MemberDied():
            run.recorder.deaths[member.id.operator] += 1
        case other:
            raise AssertionError(f"unknown record {other}")


def _counters(run: Recorded, record: log.Counters) -> None:
    operator = OperatorName(record.operator)
    roster, recorder = run.roster, run.recorder
    roster.next_number[operator] = record.next_number
    roster.peaks[operator] = record.peak
    roster.ever[operator] = record.ever
    recorder.joins[operator] = record.joins
    recorder.deaths[operator] = record.deaths
