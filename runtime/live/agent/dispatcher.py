"""Messages of instances over their links, and which part of the agent handles each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import assert_never

import msgspec

from anabranch.runtime.live.agent.boards import Boards, SplitsError
from anabranch.runtime.live.agent.member_reports import MemberReports
from anabranch.runtime.live.agent.messenger import Messenger
from anabranch.runtime.live.agent.outcome import Course
from anabranch.runtime.live.agent.roster import Member, Roster
from anabranch.runtime.live.agent.spawner import Spawner
from anabranch.runtime.live.agent.starter import Starter
from anabranch.runtime.live.agent.watchdog import Watchdog
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.failure import Failure
from anabranch.runtime.reporting.status import FinalCount, Status, id_from_wire

_decode = msgspec.msgpack.Decoder(msg.FromProcess).decode


class SplitDesk:
    """Hands the splits of sources out, and takes them back.

    None before all founders are ready: until then a run that loses all its processes is begun
    anew, and what a source has confirmed to a sender outside would be lost.
    """

    def __init__(self, boards: Boards, messenger: Messenger, course: Course) -> None:
        self._boards = boards
        self._messenger = messenger
        self._course = course

    def serve(self, member: Member, message: msg.Claim | msg.Release | msg.Progress) -> None:
        match message:
            case msg.Claim() if self._course.started.done():
                self._claim(member)
            case msg.Claim():
                later = partial(self._claim_later, member, member.incarnation)
                self._course.started.add_done_callback(later)
            case msg.Release(remainder=remainder, progress=progress, number=number):
                self._boards.release(member.id, remainder, progress, number)
            case msg.Progress(number=number, progress=progress):
                self._boards.advance(member.id, progress, number)

    def _claim(self, member: Member) -> None:
        try:
            answer = self._boards.claim(member.id)
        except SplitsError as error:
            self._course.fail(Failure(str(error)))
        else:
            self._messenger.send(member.id, answer)

    def _claim_later(self, member: Member, incarnation: int, started: asyncio.Future[None]) -> None:
        if not started.cancelled() and member.incarnation == incarnation:
            self._claim(member)


class Dispatcher:
    """One for all instances of a run."""

    def __init__(
        self,
        starter: Starter,
        spawner: Spawner,
        roster: Roster,
        messenger: Messenger,
        splits: SplitDesk,
        reports: MemberReports,
        watchdog: Watchdog,
    ) -> None:
        self._starter = starter
        self._spawner = spawner
        self._roster = roster
        self._messenger = messenger
        self._splits = splits
        self._reports = reports
        self._watchdog = watchdog
        self.on_copy: Callable[[Member, msg.CopyComplete], None] = lambda member, told: None
        """Gets that a copy of the member's journal is complete."""

    def receive(self, member: Member, body: bytes) -> None:
        """One frame. What it raises is an error of the instance and closes its link."""
        member.heard_s = clock.monotonic()
        message = _decode(body)
        match message:
            case msg.CopyComplete():
                self.on_copy(member, message)
            case msg.Ready(address=address):
                self._starter.note_ready(member.text, address)
            case msg.Spawn():
                self._spawner.begin(member, message)
            case msg.Discard(children=children):
                for child in children:
                    self._spawner.discard(id_from_wire(child))
            case msg.MayLeave():
                self._messenger.send(member.id, self._roster.may_leave(member))
            case msg.StaysAfterAll():
                self._roster.relocate(member, False)
            case msg.Delayed():
                self._starter.note_delayed(member.text)
            case msg.Waits():
                pass  # it only shows that the instance lives
            case msg.Claim() | msg.Release() | msg.Progress():
                self._splits.serve(member, message)
            case msg.EventNote():
                self._reports.note(member, message)
            case Status():
                self._reports.status(member, message)
            case FinalCount():
                self._reports.end(member, message)
            case msg.Suspect(peer=peer):
                self._watchdog.hear(id_from_wire(peer))
            case msg.Resumed(children=children, leaving=leaving, goes=goes, lessons=lessons):
                member.deaths.note_lessons(lessons)
                self._spawner.keep_only(member, frozenset(map(id_from_wire, children)))
                member.relocates = member.relocates and goes
                self._roster.let_go(member, leaving)
            case msg.Failed():
                self._reports.fail(member, message)
            case msg.Publish() | msg.Ended():
                raise ValueError("only a service publishes splits")
            case _:
                assert_never(message)
