"""What the agent writes down so that another one can go on with the run; nothing without a state
folder, because then nothing of the run outlives the agent.

While the disk has no room the agent is silent: what it would say is held back until all that led
to it is written. Instances go on meanwhile with what they have.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from anabranch.runtime.live.agent.recovery import rebuild, snapshot
from anabranch.runtime.live.agent.run_journal import (
    Founded,
    Happened,
    Passed,
    Record,
    RunJournal,
    Sampled,
    read_records,
)
from anabranch.runtime.live.agent.state_dir import (
    ENDS,
    FORMAT,
    JOURNAL,
    JOURNALS,
    RunFile,
    StateDir,
    durability,
    gone_inputs,
    operators_in_words,
    outlives_power,
    version,
)
from anabranch.runtime.live.journal.journal import remove_journal
from anabranch.runtime.plan.ends import passing
from anabranch.runtime.reporting.failure import Failure
from anabranch.runtime.storage.patience import Patience
from anabranch.runtime.storage.record_log import CannotSync
from anabranch.runtime.values.kinds import EventKind
from anabranch.runtime.values.texts import carried, original

if TYPE_CHECKING:
    from anabranch.runtime.live.agent.agent import Agent
    from anabranch.runtime.live.agent.roster import Member
    from anabranch.runtime.live.agent.starter import Orders

TIME_PERIOD_S = 1.0
BEHIND_MAX = 1_000
"""So many records may wait for room, and then only those that others depend on."""


class CannotWrite(Exception):
    """The record was not written, so whatever it stands for must not happen."""


class RunJournalWriter:
    """Silent until `begin` or `go_on`. `path`: where journals of instances and ends lie, too."""

    def __init__(self, agent: Agent, state: StateDir | None) -> None:
        self._agent = agent
        self._state = state
        self._journal: RunJournal | None = None
        self.path: Path = agent.run_dir.path / "state" if state is None else state.path
        self.resumed: RunFile | None = None if state is None else state.resumed
        self._behind: deque[Record] = deque()
        """What could not be written yet."""
        self._caught_up = asyncio.Event()
        self._caught_up.set()
        self._is_to_shorten = False
        self._lacks_news = False
        """Whether something for the report was left out while the disk had no room."""
        self._patience = Patience("the agent", self._note)
        self._founded = self.resumed is not None
        """Whether the folder holds a run that is worth keeping."""

    @property
    def ends(self) -> Path:
        """For sources and sinks."""
        return self.path / ENDS

    @property
    def is_there(self) -> bool:
        """Whether nobody has removed the folders."""
        return all((self.path / name).is_dir() for name in (JOURNALS, ENDS))

    def journal_of(self, operator: str, number: int) -> Path:
        """By the operator's place: its name may be too long for a file together with the rest."""
        place = list(map(str, self._agent.pipeline.operators)).index(operator)
        return self.path / JOURNALS / f"{place}.{number}.journal"

    async def forget(self, member: Member) -> None:
        """Remove the files of an instance that has ended, once that itself is written."""
        await self.caught_up()
        self._remove_files(member)

    def _remove_files(self, member: Member) -> None:
        kind, _, place = member.address.partition(":")
        with suppress(OSError):  # they go with the folders
            if not (self._agent.options.until_committed and member.finished):
                remove_journal(self.journal_of(member.id.operator, member.id.number))
            if kind == "unix":  # one that has ended by itself has removed it
                Path(original(place)).unlink(missing_ok=True)

    def begin(self, orders: Orders) -> None:
        """A new run."""
        if self._state is None:
            for folder in (self.path, self.path / JOURNALS, self.path / ENDS):
                folder.mkdir(mode=0o700)
            return
        self._state.begin(
            RunFile(
                format=FORMAT,
                version=version(),
                pipeline=self._agent.pipeline.name,
                operators=operators_in_words(self._agent.pipeline),
                groups=self._agent.pipeline.groups,
                delivery=orders.delivery,
                durable=durability(self._agent.pipeline),
                token=orders.token,
                limits=asdict(orders.limits),
                seed=orders.seed,
                started_at=self._agent.started_at.isoformat(),
                run_dir=carried(orders.run_dir),
                transport=orders.transport,
                host=orders.host,
                gone=gone_inputs(self._agent.pipeline),
                until_committed=self._agent.options.until_committed,
                begun_from=self._agent.begun_from,
                earlier_s=self._agent.earlier_s,
            )
        )
        self._open()

    def read(self) -> float:
        """Put the agent where the last one was, and return how long the run had lasted.

        Raises `InputChanged`, `SplitsError`.
        """
        power = outlives_power(self._agent.pipeline)
        passed_s = rebuild(self._agent, read_records(self.path / JOURNAL, power=power))
        self._note_that_it_stops()
        return passed_s

    def _note_that_it_stops(self) -> None:
        """A run that was begun without `until_committed` ends with a savepoint all the same, if the
        end of an input has not had effects yet."""
        run, state = self.resumed, self._state
        if run is None or state is None or run.until_committed:
            return
        if self._agent.options.until_committed:
            self._agent.boards.refuse_if_ended()
            self.resumed = msgspec.structs.replace(run, until_committed=True)
            state.rewrite(self.resumed)

    def go_on(self) -> None:
        """With the run that was read."""
        self._open()
        self._shorten()

    def founded(self) -> None:
        """From here on the run can be resumed."""
        self._founded = True
        self.log(Founded())

    def log(self, record: Record) -> None:
        """Write it, or as soon as there is room. Raises `CannotWrite`, and the run fails, if that
        is not what is lacking."""
        if self._journal is None:
            return
        if self.is_behind:
            self._postpone(record)
            return
        try:
            self._write(record)
        except (OSError, CannotSync) as error:
            if not isinstance(error, OSError) or not passing(error):
                self._fail(error)
                raise CannotWrite from error
            self._behind.append(record)
            self._caught_up.clear()
            self._agent.tasks.start("journal_writer", self._catch_up(error))

    def _postpone(self, record: Record) -> None:
        """What only the report needs may be too much: then the next snapshot has it."""
        if isinstance(record, Happened | Sampled) and len(self._behind) >= BEHIND_MAX:
            self._lacks_news = True
        elif not isinstance(record, Passed):
            self._behind.append(record)

    @property
    def is_behind(self) -> bool:
        """Whether something is not written that should be. Nobody may act upon it."""
        return not self._caught_up.is_set()

    async def caught_up(self) -> None:
        """Return when everything so far is written."""
        await self._caught_up.wait()

    def _write(self, record: Record) -> None:
        assert self._journal is not None
        try:
            self._journal.append(record)
        except OSError as error:
            what = f"cannot write the state of the run: {error.strerror}"
            raise OSError(error.errno, what, str(self.path / JOURNAL)) from error
        too_long = self._journal.is_long or (self._lacks_news and not self._behind)
        if too_long and self._founded and not self._is_to_shorten:
            # What a record stands for may happen only behind it, and a snapshot must show it.
            self._is_to_shorten = True
            asyncio.get_running_loop().call_soon(self._shorten_now)

    async def _catch_up(self, error: OSError) -> None:
        async def write_all() -> None:
            while self._behind:
                self._write(self._behind[0])
                self._behind.popleft()

        try:
            await self._patience.outlast(write_all, error)
        except (OSError, CannotSync) as met:
            self._fail(met)
        else:
            self._caught_up.set()
            self._agent.say_held_back()

    def _fail(self, error: Exception) -> None:
        where, why = str(self.path / JOURNAL), error.__cause__ or error
        self._agent.fail(Failure(f"the state of the run cannot be kept in {where!r}: {why}"))

    def _note(self, kind: EventKind, detail: str) -> None:
        self._agent.news.note("agent", kind, detail)

    async def keep_time(self) -> None:
        """For as long as the run lasts."""
        while self._journal is not None:
            self.log(Passed(seconds=self._passed_s()))
            await asyncio.sleep(TIME_PERIOD_S)

    def close(self, *, completed: bool) -> None:
        """Remove everything if nothing is left to be resumed."""
        self._journal = None
        if self._state is not None:
            if completed or not self._founded:
                self._state.clear()
            self._state.close()

    def _open(self) -> None:
        assert self._state is not None
        self._journal = self._state.journal(power=outlives_power(self._agent.pipeline))

    def _shorten_now(self) -> None:
        self._is_to_shorten = False
        if self._journal is None or self.is_behind:
            return
        try:
            self._shorten()
        except (OSError, CannotSync) as error:
            self._fail(error)

    def _shorten(self) -> None:
        assert self._journal is not None
        self._journal.replace(snapshot(self._agent, self._passed_s()))
        self._lacks_news = False

    def _passed_s(self) -> float:
        return self._agent.now_s
