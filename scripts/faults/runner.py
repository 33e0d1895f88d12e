"""A whole run of chaos: begin, hit, resume, heal, end, and look for what is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from anabranch.runtime.reporting.report import Report, read_report
from faults import processes
from faults.flow import EDGES, KEYED, OPERATORS, SCALED, write_input
from faults.health import Health, LifeNow, watch
from faults.incarnation import Incarnation, begin
from faults.inflicting import Blow, Inflicting
from faults.plan import Fault, Scope
from faults.settings import TELL, Settings
from faults.storm import script_of

SCOPE = Scope(OPERATORS, SCALED, KEYED, EDGES)
SINKS = ("counted", "traced")
START_S = 2.0
"""From the start of the program to the first input."""
RUNNING_S_MAX = 300.0
"""For a host that has no processor to spare; it takes about a second."""
STUCK_S = 120.0
"""Without any tuple, after the last fault: it does not go on any more."""
TELL_S = 0.2
GONE_S_MAX = 120.0
"""Until nothing is left of a run whose agent was killed or has ended."""


class Broken(Exception):
    """The run cannot go on as planned; the message is a fault."""


@dataclass(slots=True)
class Outage:
    """An agent that was killed: when, when nothing of it was left, when another one ran."""

    killed_s: float
    gone_s: float
    begun_s: float
    running_s: float


@dataclass(slots=True)
class Record:
    """All that is known of a run of chaos."""

    settings: Settings
    planned: list[Fault]
    incarnations: list[Incarnation] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    inflicting: Inflicting = field(default_factory=lambda: Inflicting(SCALED))
    health: Health = field(default_factory=Health)
    zero_s: float = 0.0
    """When input and run had begun, on this machine's clock: faults are counted from here."""
    healed_s: float = 0.0
    ended_s: float = 0.0
    report: Report | None = None
    faults: list[str] = field(default_factory=list)

    @property
    def blows(self) -> list[Blow]:
        return self.inflicting.blows


class Runner:
    """`say`: tells people what is being done."""

    def __init__(
        self, settings: Settings, planned: list[Fault], say: Callable[[str], None]
    ) -> None:
        self.record = Record(settings, planned)
        self._settings = settings
        self._say = say
        self._now = LifeNow()
        self._followers: list[asyncio.Task[None]] = []

    async def carry_out(self) -> Record:
        """Nothing of the run is left when this returns or raises."""
        record = self.record
        write_input(self._settings)
        self._settings = self._settings.begun_at(time.time() + START_S)
        self._settings.write()
        record.zero_s = time.monotonic() + START_S
        watching = asyncio.ensure_future(
            watch(record.health, self._now, self._settings.state, SINKS)
        )
        try:
            await self._begin(resume=False)
            record.zero_s = max(record.zero_s, time.monotonic())
            await self._inflict_all()
            await record.inflicting.heal()
            self._settings.healed.touch()
            record.healed_s = time.monotonic()
            self._say("healed; now it must come to its end")
            await self._end()
            await self._look_for_remains()
        except Broken as broken:
            record.faults.append(str(broken))
            self._keep_last_words()
        finally:
            watching.cancel()
            await self._end_everything()
        return record

    @property
    def _incarnation(self) -> Incarnation:
        return self.record.incarnations[-1]

    async def _begin(self, *, resume: bool, passed_s: float = 0.0) -> None:
        """`passed_s`: of the run, until its last agent was killed."""
        left_s = self.record.zero_s + self._settings.seconds - time.monotonic()
        number = len(self.record.incarnations)
        script = script_of(self._settings.seed + number, SCOPE, left_s, passed_s)
        incarnation = await begin(number, self._settings, script, left_s, resume=resume)
        self.record.incarnations.append(incarnation)
        self._now.incarnation = incarnation
        self._followers.append(asyncio.ensure_future(incarnation.follow()))
        if not await incarnation.until_running(RUNNING_S_MAX):
            what = "was not resumed" if resume else "did not begin"
            raise Broken(f"the run {what}: {incarnation.failed or self._ended(incarnation)}")

    def _ended(self, incarnation: Incarnation) -> str:
        code = incarnation.process.returncode
        if code is None:
            return f"its instances are not there after {RUNNING_S_MAX:g} s"
        words = self._settings.words.read_text(errors="replace").strip()
        return f"its program ended with {code}: {words[-1500:]}"

    async def _inflict_all(self) -> None:
        for fault in self.record.planned:
            due_s = self.record.zero_s + fault.at_s
            await self._wait(due_s - time.monotonic())
            self._say(fault.text)
            if fault.kind == "agent":
                await self._end_and_resume(fault)
            else:
                await self.record.inflicting.inflict(fault, self._incarnation)
        await self._wait(self.record.zero_s + self._settings.seconds - time.monotonic())

    async def _wait(self, seconds: float) -> None:
        """Raises `Broken` if the run ends meanwhile."""
        follower = self._followers[-1]
        if seconds > 0:
            await asyncio.wait([follower], timeout=seconds)
        if follower.done():
            follower.result()
            raise Broken(
                f"the run ended in the middle of the faults: "
                f"{self._incarnation.failed or self._ended(self._incarnation)}"
            )

    async def _end_and_resume(self, fault: Fault) -> None:
        incarnation = self._incarnation
        os.kill(incarnation.pid, signal.SIGKILL)
        killed_s = time.monotonic()
        self.record.inflicting.blows.append(Blow(killed_s, "agent", "agent", incarnation.pid, True))
        await asyncio.wait([self._followers[-1]], timeout=GONE_S_MAX)
        if left := await self._left_after(GONE_S_MAX):
            raise Broken(f"{GONE_S_MAX:g} s after the agent was killed there are still {left}")
        gone_s = time.monotonic()
        await asyncio.sleep(fault.for_s)
        begun_s = time.monotonic()
        await self._begin(resume=True, passed_s=killed_s - incarnation.began_s)
        self.record.outages.append(Outage(killed_s, gone_s, begun_s, time.monotonic()))

    async def _left_after(self, timeout_s: float) -> str:
        """Names of processes of the run that are still there; empty as soon as none is."""
        deadline = time.monotonic() + timeout_s
        while left := list(processes.marked(self._settings.mark)):
            if time.monotonic() > deadline:
                return ", ".join(f"{one.name} ({one.pid})" for one in left)
            await asyncio.sleep(0.02)
        return ""

    async def _end(self) -> None:
        """Wait for the run, as long as anything goes on."""
        incarnation, follower = self._incarnation, self._followers[-1]
        tuples, since_s = -1, time.monotonic()
        while not follower.done():
            await asyncio.wait([follower], timeout=1.0)
            if incarnation.tuples != tuples:
                tuples, since_s = incarnation.tuples, time.monotonic()
            elif time.monotonic() - since_s > STUCK_S:
                await self._let_all_tell()
                raise Broken(f"nothing goes on any more: {self._waits()}")
        follower.result()
        self.record.ended_s = time.monotonic()
        if self._settings.report.exists():
            self.record.report = read_report(self._settings.report)
            events = self.record.report.events
            incarnation.note([[e.t, e.operator, e.kind, e.instance, e.detail] for e in events])
        if incarnation.process.returncode != 0:
            self.record.faults.append(
                f"the run failed: {incarnation.failed or self._ended(incarnation)}"
            )

    async def _let_all_tell(self) -> None:
        """Among what is printed, one after the other, so that each can be told apart."""
        for one in processes.instances(self._incarnation.parent):
            with open(self._settings.words, "a", encoding="utf-8") as words:  # noqa: ASYNC230
                words.write(f"--- {one.name} ({one.pid}) is here:\n")
            processes.send(one, TELL)
            await asyncio.sleep(TELL_S)

    def _waits(self) -> str:
        """Who waits for whom, as far as they say."""
        told = [
            f"{m.name} is {m.state}"
            + (f", waits for {', '.join(m.waiting_for)}" if m.waiting_for else "")
            + (f", silent for {m.silent_s:.0f} s" if m.silent_s > 2 else "")
            for m in self._incarnation.members()
        ]
        queued = {name: o["queued"] + o["held"] for name, o in self._incarnation.operators.items()}
        return f"{'; '.join(told)}; queued: {json.dumps(queued)}"

    async def _look_for_remains(self) -> None:
        if left := await self._left_after(GONE_S_MAX):
            self.record.faults.append(f"after the end there are still {left}")
        folders = [path.name for path in self._settings.base.iterdir()]
        if folders:
            self.record.faults.append(f"after the end there are still folders: {folders}")

    def _keep_last_words(self) -> None:
        """For a reader of the folder."""
        incarnations: list[dict[str, Any]] = [
            {
                "operators": incarnation.operators,
                "events": [list(e) for e in incarnation.events.values()],
            }
            for incarnation in self.record.incarnations
        ]
        path = self._settings.folder / "incarnations.json"
        path.write_text(json.dumps(incarnations, indent=1), encoding="utf-8")

    async def _end_everything(self) -> None:
        await self.record.inflicting.heal()
        for incarnation in self.record.incarnations:
            if not incarnation.over:
                incarnation.process.kill()
        await asyncio.gather(*self._followers, return_exceptions=True)
        if await self._left_after(2 * GONE_S_MAX):
            for one in processes.marked(self._settings.mark):
                processes.send(one, signal.SIGKILL)
