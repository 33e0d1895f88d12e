"""Puts the agent of a resumed run where the last one was, by what that one has recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, assert_never

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.live.agent import run_journal as log
from anabranch.runtime.live.agent.recorder import Recorder
from anabranch.runtime.live.agent.roster import Member, Phase
from anabranch.runtime.reporting.status import FinalCount, WireId, id_from_wire, id_to_wire

if TYPE_CHECKING:
    from anabranch.runtime.live.agent.agent import Agent


def rebuild(agent: Agent, records: Iterable[Any]) -> float:
    """Returns how long the run had lasted. Raises `InputChanged`, `SplitsError`."""
    passed_s = 0.0
    for record in records:
        match record:
            case log.Passed(seconds=seconds):
                passed_s = seconds
            case log.Happened() | log.Sampled() | log.Reported():
                _to_recorder(agent.recorder, record)
            case log.Claimed() | log.Released() | log.EndedEarly() | log.BoardSnapshot():
                _to_boards(agent, record)
            case log.Final(count=count):
                agent.recorder.note_final(count)
                _end(agent, count)
            case log.FinalSum(summed=summed):
                agent.recorder.restore(summed)
            case log.Counters():
                _counters(agent, record)
            case log.Planned(controller=controller, left=left):
                agent.controllers.left[controller] = left
            case log.Founded():
                pass
            case _:
                _to_roster(agent, record)
    for member in agent.roster.living():
        if member.phase is Phase.STARTING:  # nobody has heard of it
            agent.roster.end(member, Phase.DISCARDED)
    return max(passed_s, agent.recorder.last_s)


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


def _end(agent: Agent, count: FinalCount) -> None:
    """Who has given its account has ended, whether that was written behind it or not."""
    for member in agent.roster.living(count.operator):
        if member.text == count.id:
            agent.roster.end(member, Phase.GONE)
            break


def snapshot(agent: Agent, passed_s: float) -> Iterator[log.Record]:
    """Records that say what all so far have said."""
    yield log.Founded()
    yield log.Passed(seconds=passed_s)
    for summed in agent.recorder.finals.summed.values():
        yield log.FinalSum(summed=summed)
    for count in agent.recorder.finals.latest:
        yield log.Final(count=count)
    for member in agent.roster.living():
        yield from told_of(member)
    for operator in agent.pipeline.operators:
        roster, recorder = agent.roster, agent.recorder
        yield log.Counters(
            operator=operator,
            next_number=roster.next_number[operator],
            peak=roster.peaks[operator],
            ever=roster.ever[operator],
            joins=recorder.joins[operator],
            deaths=recorder.deaths[operator],
        )
    for controller, left in agent.controllers.left.items():
        yield log.Planned(controller=controller, left=left)
    yield from agent.boards.snapshots()
    yield from _of_report(agent.recorder)


def _of_report(recorder: Recorder) -> Iterator[log.Record]:
    """What counts the resumptions comes behind the events that tell of them."""
    for event in recorder.events:
        yield log.Happened(event=event)
    yield log.Reported(
        resumed=recorder.resumed,
        events_dropped=recorder.events_dropped,
        sample_period_s=recorder.period_s,
    )
    for t, rows in recorder.ticks:
        yield log.Sampled(t=t, rows=rows)


def told_of(member: Member) -> Iterator[log.Record]:
    """All that counts of what has happened to it."""
    wire = id_to_wire(member.id)
    yield log.Made(id=wire, founder=member.founder, heritage=member.heritage)
    yield log.Begun(id=wire, incarnation=member.incarnation, bootstrap=member.bootstrap)
    if member.address:
        yield log.Listens(id=wire, address=member.address)
    if member.phase is Phase.LISTENING:
        yield log.Told(id=wire)
    if member.phase is Phase.ACTIVE:
        yield log.Active(id=wire)
    yield log.Keeper(id=wire, keeper=member.keeper)
    if member.leaving:
        yield log.LetGo(id=wire, leaving=True)


def _to_boards(
    agent: Agent, record: log.Claimed | log.Released | log.EndedEarly | log.BoardSnapshot
) -> None:
    match record:
        case log.Claimed(id=holder, split=split, number=number):
            agent.boards.claim_again(id_from_wire(holder), split, number)
        case log.Released(id=holder, remainder=remainder, progress=progress, number=number):
            agent.boards.release(id_from_wire(holder), remainder, progress, number)
        case log.EndedEarly(operator=operator, by=by):
            agent.boards.end_input(operator, by)
        case log.BoardSnapshot():
            agent.boards.restore(record)
        case _:
            assert_never(record)


def _to_roster(agent: Agent, record: Any) -> None:
    wire: WireId = record.id
    if isinstance(record, log.Made):
        made = agent.roster.restore(id_from_wire(wire), record.founder)
        made.heritage = record.heritage
        return
    instance = id_from_wire(wire)
    if agent.roster.has_ended(instance):
        return
    member = agent.roster.get(instance)
    assert member is not None, f"{wire} was never made"
    match record:
        case log.Begun(incarnation=incarnation, bootstrap=bootstrap):
            member.incarnation, member.bootstrap = incarnation, bootstrap
        case log.Listens(address=address):
            member.address = address
        case log.Told():
            agent.roster.listen(member)
        case log.Active():
            if agent.roster.activate(member) and not member.founder:
                agent.recorder.joins[member.id.operator] += 1
        case log.Over(discarded=discarded):
            agent.roster.end(member, Phase.DISCARDED if discarded else Phase.GONE)
        case log.Keeper(keeper=keeper):
            member.keeper = keeper
        case log.LetGo(leaving=leaving):
            member.leaving = leaving
        case log.Died():
            agent.recorder.deaths[member.id.operator] += 1
        case other:
            raise AssertionError(f"unknown record {other}")


def _counters(agent: Agent, record: log.Counters) -> None:
    operator = OperatorName(record.operator)
    roster, recorder = agent.roster, agent.recorder
    roster.next_number[operator] = record.next_number
    roster.peaks[operator] = record.peak
    roster.ever[operator] = record.ever
    recorder.joins[operator] = record.joins
    recorder.deaths[operator] = record.deaths
