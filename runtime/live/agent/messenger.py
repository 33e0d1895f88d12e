"""What the agent sends to instances: nothing before what led to it is written."""

from __future__ import annotations

from typing import Any

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.agent.journal_writer import RunJournalWriter
from anabranch.runtime.live.agent.roster import Roster
from anabranch.runtime.live.process.process import Process


class Messenger:
    def __init__(self, roster: Roster, journal: RunJournalWriter) -> None:
        self._roster = roster
        self._journal = journal
        self._held_back: list[tuple[Process, Any]] = []
        journal.on_caught_up = self._say_held_back

    def send(self, instance: InstanceId, message: Any) -> None:
        """Ignored if the instance has no process."""
        member = self._roster.get(instance)
        if member is None or member.process is None:
            return
        if self._journal.is_behind:
            self._held_back.append((member.process, message))
        else:
            member.process.send(message)

    def send_by_name(self, instance: str, message: Any) -> None:
        """Ignored if it does not live any more."""
        for member in self._roster.living():
            if member.text == instance:
                self.send(member.id, message)

    def _say_held_back(self) -> None:
        said, self._held_back = self._held_back, []
        for process, message in said:
            process.send(message)
