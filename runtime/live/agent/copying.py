"""Copies of journals on other hosts, and hosts that are lost for good: the parts of the agent that
deal with them."""

from __future__ import annotations

from anabranch.runtime.live.agent.asked_holders import AskedHolders
from anabranch.runtime.live.agent.copy_desk import CopyDesk
from anabranch.runtime.live.agent.copy_keepers import CopyKeepers
from anabranch.runtime.live.agent.give_ups import GiveUps
from anabranch.runtime.live.agent.holder_hosts import HolderHosts
from anabranch.runtime.live.agent.host_sites import Elsewhere, HostSites
from anabranch.runtime.live.agent.journal_writer import RunJournalWriter
from anabranch.runtime.live.agent.majorities import Majorities
from anabranch.runtime.live.agent.messenger import Messenger
from anabranch.runtime.live.agent.outcome import Course
from anabranch.runtime.live.agent.roster import Roster
from anabranch.runtime.live.agent.run_events import RunEvents
from anabranch.runtime.live.agent.run_files import RunFiles
from anabranch.runtime.live.agent.starter import Starter, StartOrders
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.pipeline.graph import Pipeline


class Copying:
    """`given_up`: hosts, as far as the run remembers."""

    def __init__(
        self,
        pipeline: Pipeline,
        roster: Roster,
        journal: RunJournalWriter,
        messenger: Messenger,
        starter: Starter,
        sites: HostSites,
        elsewhere: Elsewhere,
        files: RunFiles,
        tasks: Tasks,
        run_events: RunEvents,
        course: Course,
        given_up: dict[str, str],
    ) -> None:
        self._has_copies = pipeline.has_copies and elsewhere.processes is not None
        self._tasks = tasks
        self.hosts = HolderHosts(elsewhere, sites, given_up)
        self.keepers = keepers = CopyKeepers(starter, sites, tasks, files, run_events, course)
        asked = AskedHolders(keepers, tasks)
        self.desk = CopyDesk(pipeline, roster, journal, messenger, keepers, self.hosts, asked)
        self.give_ups = GiveUps(
            given_up, roster, sites, keepers, self.desk, journal, run_events, course, tasks
        )
        self._majorities: Majorities | None = None
        if (after_s := pipeline.give_up_after_s) is not None:
            self._majorities = Majorities(after_s, roster, sites, asked, self.give_ups, run_events)

    def begin(self, orders: StartOrders) -> None:
        """The run has a token, and what an earlier agent has recorded is known."""
        if self._has_copies:
            self.desk.begin(orders)
            self.give_ups.resume()
            self._tasks.start("copies", self.desk.keep_enough())
            if self._majorities is not None:
                self._tasks.start("majorities", self._majorities.watch())
