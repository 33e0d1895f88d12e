"""What instances say over their links, and what the agent does about each of it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

import msgspec

from anabranch.runtime.live.agent.boards import SplitsError
from anabranch.runtime.live.agent.roster import KNOWN, LIVING, Member, Phase
from anabranch.runtime.live.agent.run_journal import Final
from anabranch.runtime.live.agent.watch import describe_end
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.reporting.failure import Failure
from anabranch.runtime.reporting.status import IDLE, FinalCount, Status, id_from_wire
from anabranch.runtime.values.kinds import Ending, EventKind

if TYPE_CHECKING:
    from anabranch.runtime.live.agent.agent import Agent

DERIVED = frozenset(
    {
        EventKind.STARTED,
        EventKind.JOINED,
        EventKind.LEFT,
        EventKind.FINISHED,
        EventKind.ENDED,
        EventKind.SPAWN_FAILED,
    }
)
"""Notes of instances that the agent writes down itself, once and with the count it then has."""

_decode = msgspec.msgpack.Decoder(msg.FromProcess).decode


class Dispatcher:
    """One for all instances of a run."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def receive(self, member: Member, body: bytes) -> None:
        """One frame. What it raises is an error of the instance and closes its link."""
        agent = self._agent
        member.heard_s = time.monotonic()
        message = _decode(body)
        match message:
            case msg.Ready(address=address):
                agent.starter.note_ready(member.text, address)
            case msg.Spawn():
                agent.spawner.begin(member, message)
            case msg.Discard(children=children):
                for child in children:
                    agent.spawner.discard(id_from_wire(child))
            case msg.MayLeave():
                agent.send(member.id, agent.roster.may_leave(member))
            case msg.StaysAfterAll():
                agent.roster.let_go(member, False)
            case msg.Claim() | msg.Release() | msg.Progress():
                self._about_splits(member, message)
            case msg.EventNote():
                self._note(member, message)
            case Status():
                self._status(member, message)
            case FinalCount():
                self._gone(member, message)
            case msg.Suspect(peer=peer):
                agent.watchdog.hear(id_from_wire(peer))
            case msg.Resumed(children=children, leaving=leaving):
                agent.spawner.keep_only(member, frozenset(map(id_from_wire, children)))
                agent.roster.let_go(member, leaving)
            case msg.Failed():
                self._failed(member, message)
            case msg.Publish() | msg.Ended():
                raise ValueError("only a service publishes splits")
            case _:
                assert_never(message)

    def _about_splits(
        self, member: Member, message: msg.Claim | msg.Release | msg.Progress
    ) -> None:
        boards = self._agent.boards
        match message:
            case msg.Claim():
                try:
                    answer = boards.claim(member.id)
                except SplitsError as error:
                    self._agent.fail(Failure(str(error)))
                else:
                    self._agent.send(member.id, answer)
            case msg.Release(remainder=remainder, progress=progress, number=number):
                boards.release(member.id, remainder, progress, number)
            case msg.Progress(number=number, progress=progress):
                boards.advance(member.id, progress, number)

    def _note(self, member: Member, note: msg.EventNote) -> None:
        match note.event:
            case EventKind.STARTED:
                self._activate(member, note.t)
            case EventKind.KEEPER:
                if member.keeper:
                    return
                self._agent.roster.set_keeper(member)
            case EventKind.NO_KEEPER:
                if not member.keeper:
                    return
                self._agent.roster.unset_keeper(member)
            case EventKind.VETO | EventKind.REFUSED:
                member.told_to_leave = False
        if note.event not in DERIVED:
            self._agent.news.of(member, note.event, note.detail, label=note.label, t=note.t)

    def _status(self, member: Member, status: Status) -> None:
        if status.state != IDLE:
            self._activate(member, status.t)
        if member.phase in LIVING:
            self._agent.recorder.note_status(status)

    def _activate(self, member: Member, t: float) -> None:
        if self._agent.roster.activate(member) and not member.founder:
            self._agent.recorder.joins[member.id.operator] += 1
            detail = f"by {member.id.operator}.{member.id.creator}"
            self._agent.news.of(member, EventKind.JOINED, detail, t=t)

    def _gone(self, member: Member, final: FinalCount) -> None:
        # One that was ready before it could be seen active has taken part all the same.
        self._activate(member, time.monotonic())
        if member.phase is not Phase.ACTIVE:
            raise ValueError(f"{member.text} says twice that it has ended")
        self._agent.boards.give_back(member.id)
        self._agent.log(Final(count=final))
        member.finished = not final.leaves
        self._agent.roster.end(member, Phase.GONE)
        self._agent.recorder.note_final(final)
        self._agent.news.of(member, EventKind.LEFT if final.leaves else EventKind.ENDED)
        member.goodbye.set_result(None)

    def _failed(self, member: Member, message: msg.Failed) -> None:
        if message.again is not None:
            member.doubt = Ending(message.again, message.reason)
            return
        member.failed = message
        if member.phase in KNOWN and member.process is not None:
            # At once, not when it exits: its neighbours will complain of its end in a moment.
            failure = describe_end(member.who, member.process, message)
            refused = message.damaged and not self._agent.started.done()
            self._agent.fail(replace(failure, refused=refused))
