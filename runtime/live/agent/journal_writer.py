"""Writes the run's journal, from which the next agent goes on with the run. Without a state folder
it writes nothing, since nothing of such a run outlives the agent.

While the disk has no room, the agent sends nothing to instances: it holds a message back until all
records that led to it are written. Instances go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from anabranch.runtime.live.agent.clock import RunClock
from anabranch.runtime.live.agent.outcome import Course
from anabranch.runtime.live.agent.run_journal import (
    Founded,
    Happened,
    Passed,
    RunJournal,
    RunRecord,
    Sampled,
)
from anabranch.runtime.live.agent.state_dir import StateDir
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.plan.ends import passing
from anabranch.runtime.reporting.failure import Failure
from anabranch.runtime.storage.patience import Note, Patience
from anabranch.runtime.storage.record_log import CannotSync

TIME_PERIOD_S = 1.0
BEHIND_MAX = 1_000
"""If so many records wait for room, those that only the report needs are dropped."""


class CannotWrite(Exception):
    """The record was not written, so whatever it stands for must not happen."""


class RunJournalWriter:
    """Writes nothing before `open`. `note` adds an event to the report. `on_caught_up` is called
    when all records that waited for room are written."""

    def __init__(
        self, state: StateDir | None, clock: RunClock, tasks: Tasks, course: Course, note: Note
    ) -> None:
        self._state = state
        self._clock = clock
        self._tasks = tasks
        self._course = course
        self.on_caught_up: Callable[[], None] = lambda: None
        self._journal: RunJournal | None = None
        self._snapshot: Callable[[], Iterable[RunRecord]] = tuple
        self._behind: deque[RunRecord] = deque()
        """Records that wait for room on the disk."""
        self._caught_up = asyncio.Event()
        self._caught_up.set()
        self._is_to_shorten = False
        self._lacks_news = False
        """Whether something for the report was left out while the disk had no room."""
        self._patience = Patience("the agent", note)
        self._founded = state is not None and state.resumed is not None
        """Whether the folder holds a run that is worth keeping."""

    def open(self, snapshot: Callable[[], Iterable[RunRecord]], *, power: bool) -> None:
        """`snapshot` gives records with the same content as all records so far. `power`: records
        survive a loss of power."""
        assert self._state is not None
        self._snapshot = snapshot
        self._journal = self._state.journal(power=power)
        if self._founded:
            self._shorten()

    def founded(self) -> None:
        """From here on the run can be resumed."""
        self._founded = True
        self.log(Founded())

    def log(self, record: RunRecord) -> None:
        """Write the record now, or as soon as the disk has room. Other errors of the disk fail the
        run, and raise `CannotWrite`."""
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
            self._tasks.start("journal_writer", self._catch_up(error))

    def _postpone(self, record: RunRecord) -> None:
        """Keep the record until there is room. If too many wait, drop those that only the report
        needs; the next snapshot has their content."""
        if isinstance(record, Happened | Sampled) and len(self._behind) >= BEHIND_MAX:
            self._lacks_news = True
        elif not isinstance(record, Passed):
            self._behind.append(record)

    @property
    def is_behind(self) -> bool:
        """Whether records wait for room. What they record must have no effect yet."""
        return not self._caught_up.is_set()

    async def caught_up(self) -> None:
        """Return when everything so far is written."""
        await self._caught_up.wait()

    def _write(self, record: RunRecord) -> None:
        assert self._journal is not None
        try:
            self._journal.append(record)
        except OSError as error:
            what = f"cannot write the state of the run: {error.strerror}"
            raise OSError(error.errno, what, str(self._journal.path)) from error
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
            self.on_caught_up()

    def _fail(self, error: Exception) -> None:
        assert self._journal is not None
        where, why = str(self._journal.path), error.__cause__ or error
        self._course.fail(Failure(f"the state of the run cannot be kept in {where!r}: {why}"))

    async def keep_time(self) -> None:
        """For as long as the run lasts."""
        while self._journal is not None:
            self.log(Passed(seconds=self._clock.now_s))
            await asyncio.sleep(TIME_PERIOD_S)

    def close(self, *, completed: bool) -> None:
        """Remove the run from its folder if no later agent can go on with it."""
        self._journal = None
        if self._state is not None:
            if completed or not self._founded:
                self._state.clear()
            self._state.close()

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
        self._journal.replace(self._snapshot())
        self._lacks_news = False
