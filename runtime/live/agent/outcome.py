"""The course of a run: it starts, and ends completed, stopped or failed.

What is reported first of its end counts: later failures may be consequences of it, and failures of
processes that are being ended always are.
"""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import dataclass

from anabranch.runtime.reporting.failure import Failure
from anabranch.runtime.reporting.report import COMPLETED


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the run ended: completed, stopped or failed."""

    ended: str
    failure: Failure | None = None


class Course:
    """To be made inside a running event loop."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.phase = "starting"
        """For views."""
        self.started: asyncio.Future[None] = loop.create_future()
        """Done when every founder is ready; cancelled if the run ends before."""
        self._outcome: asyncio.Future[Outcome] = loop.create_future()
        self._late_failure: Failure | None = None
        self._is_final = False
        self._stopped = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """The outcome of the run is decided: a process that dies from now on is not resumed."""
        return self._outcome.done()

    @property
    def has_completed(self) -> bool:
        return self._is_completed and self._late_failure is None

    @property
    def _is_completed(self) -> bool:
        outcome = self._outcome
        return self.is_over and not outcome.cancelled() and outcome.result().ended == COMPLETED

    @property
    def outcome(self) -> Outcome:
        """To be asked when the run is over."""
        late = self._late_failure
        return self._outcome.result() if late is None else Outcome("failed", late)

    async def over(self) -> Outcome:
        return await self._outcome

    async def stopped(self) -> None:
        """Return when the run is to stop, also if it has completed before."""
        await self._stopped.wait()

    def start(self) -> None:
        self.phase = "running"
        self.started.set_result(None)

    def complete(self) -> None:
        self._end(Outcome(COMPLETED))

    def stop(self) -> None:
        """End everything now; what is on its way is given up."""
        self._stopped.set()
        self._end(Outcome("stopped"))

    def fail(self, failure: Failure) -> None:
        """End everything now because it cannot go on."""
        if self._is_completed and not self._is_final:
            # A service has failed while it is being closed.
            self._late_failure = self._late_failure or failure
        self._end(Outcome("failed", failure))

    def crash(self, name: str, error: BaseException) -> None:
        """An error of the agent itself: shown whole, since only its developers can mend it."""
        detail = "".join(traceback.format_exception(error)).rstrip()
        self.fail(Failure(f"the agent failed in {name!r}: {error!r}", detail))

    def finalize(self) -> None:
        """Everything is being ended: what fails from now on is a consequence of that."""
        self._is_final = True
        self.phase = "ended"
        self.started.cancel()

    def _end(self, outcome: Outcome) -> None:
        if not self._outcome.done():
            self._outcome.set_result(outcome)
