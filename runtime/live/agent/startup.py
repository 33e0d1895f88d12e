"""The beginning of a run, or of its next part: what instances get, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from anabranch.runtime.live.agent.bootstrap import bootstrap_of, waves
from anabranch.runtime.live.agent.death_register import DeathRegister
from anabranch.runtime.live.agent.host_sites import HostSites
from anabranch.runtime.live.agent.incarnations import Incarnations
from anabranch.runtime.live.agent.roster import Member, Roster
from anabranch.runtime.live.agent.run_events import RunEvents
from anabranch.runtime.live.agent.run_files import RunFiles
from anabranch.runtime.live.agent.starter import PAUSE_FIRST_S, StartError
from anabranch.runtime.live.agent.supervisor import Supervisor
from anabranch.runtime.live.channel.ended import ended_dir, mark_all
from anabranch.runtime.live.journal.journal import segments
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.values.kinds import EventKind

FOUNDER_TRIES_MAX = 5
"""Until a founder is ready; what dies later is counted in `supervisor`."""


class Founders:
    """The instances with which a new run begins."""

    def __init__(
        self,
        pipeline: Pipeline,
        roster: Roster,
        incarnations: Incarnations,
        deaths: DeathRegister,
        files: RunFiles,
        sites: HostSites,
        run_events: RunEvents,
    ) -> None:
        self._pipeline = pipeline
        self._roster = roster
        self._incarnations = incarnations
        self._deaths = deaths
        self._files = files
        self._sites = sites
        self._run_events = run_events

    async def start(self) -> None:
        """From the sinks up: an instance that starts finds its successors listening.

        Raises `StartError`.
        """
        founders: dict[str, list[Member]] = {
            o.name: self._roster.found(o) for o in self._pipeline.operators.values()
        }
        for wave in waves(self._pipeline):
            members = [m for operator in wave for m in founders[operator.name]]
            try:
                async with asyncio.TaskGroup() as group:
                    for member in members:
                        group.create_task(self._start_one(member, founders), name=member.text)
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None

    async def _start_one(self, member: Member, founders: Mapping[str, list[Member]]) -> None:
        """It may die before it is ready, unless it reports why. Raises `StartError`."""
        member.bootstrap = bootstrap_of(member, self._pipeline, founders)
        journal = self._files.journal_of(member.id.operator, member.id.number)
        deaths = 0
        while True:
            try:
                await self._incarnations.begin(member)
                break
            except StartError:
                deaths += 1
                if not self._deaths.died_early(member) or deaths >= FOUNDER_TRIES_MAX:
                    raise
            await asyncio.sleep(PAUSE_FIRST_S)  # by then the dead one has no task any more
            member.process = None
            if segments(journal) or self._sites.elsewhere(member.host):
                member.incarnation += 1  # otherwise it died before it was an instance
        self._roster.activate(member)
        if deaths:
            self._run_events.of(member, EventKind.RESUMED, f"incarnation {member.incarnation}")


async def resume(
    roster: Roster,
    supervisor: Supervisor,
    ends: Path,
    run_events: RunEvents,
    gone: Mapping[str, str],
    say: Callable[[str, str], None],
) -> None:
    """All that lived go on at once: they have their neighbours, and wait for them. `gone`: by
    source, why what it has read cannot be read again."""
    for operator, below in roster.next_number.items():  # marks are not synced, accounts are
        numbers = [member.id.number for member in roster.living(operator)]
        mark_all(ended_dir(ends), operator, below, numbers)
    living = roster.living()
    told = f"all processes were gone; instances that go on: {len(living)}"
    run_events.note("agent", EventKind.RUN_RESUMED, told)
    for name, why in gone.items():
        say(name, f"source {name!r}: {why}")
        run_events.note(name, EventKind.INPUT_GONE, why)
    await supervisor.resume(living)
