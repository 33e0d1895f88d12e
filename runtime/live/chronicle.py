"""What the agent writes down so that another one can go on with the run; nothing without a state
folder, because then nothing of the run outlives the agent.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.runtime.failure import Failure
from anabranch.runtime.graph import Pipeline
from anabranch.runtime.live.agent_journal import (
    AgentJournal,
    Founded,
    Passed,
    Record,
    read_records,
)
from anabranch.runtime.live.resumption import picture, rebuild
from anabranch.runtime.live.state_dir import (
    ENDS,
    FORMAT,
    JOURNAL,
    JOURNALS,
    RunFile,
    StateDir,
    gone_inputs,
    operators_in_words,
    version,
)

if TYPE_CHECKING:
    from anabranch.runtime.live.agent import Agent
    from anabranch.runtime.live.starter import Orders

TIME_PERIOD_S = 1.0


class CannotWrite(Exception):
    """The record was not written, so whatever it stands for must not happen."""


class Chronicle:
    """Silent until `begin` or `go_on`. `path`: where journals of instances and ends lie, too."""

    def __init__(self, agent: Agent, state: StateDir | None) -> None:
        self._agent = agent
        self._state = state
        self._journal: AgentJournal | None = None
        self.path: Path = agent.run_dir.path / "state" if state is None else state.path
        self.resumed: RunFile | None = None if state is None else state.resumed
        self._founded = self.resumed is not None
        """Whether the folder holds a run that is worth keeping."""

    @property
    def ends(self) -> Path:
        """For sources and sinks."""
        return self.path / ENDS

    def journal_of(self, operator: str, number: int) -> Path:
        """By the operator's place: its name may be too long for a file together with the rest."""
        place = list(map(str, self._agent.pipeline.operators)).index(operator)
        return self.path / JOURNALS / f"{place}.{number}.journal"

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
                token=orders.token,
                limits=asdict(orders.limits),
                seed=orders.seed,
                started_at=self._agent.started_at.isoformat(),
                run_dir=str(orders.run_dir),
                transport=orders.transport,
                host=orders.host,
                gone=gone_inputs(self._agent.pipeline),
            )
        )
        self._open()

    def read(self) -> float:
        """Put the agent where the last one was, and return how long the run had lasted.

        Raises `InputChanged`.
        """
        return rebuild(self._agent, read_records(self.path / JOURNAL))

    def go_on(self) -> None:
        """With the run that was read."""
        self._open()
        self._shorten()

    def founded(self) -> None:
        """From here on the run can be resumed."""
        self._founded = True
        self.log(Founded())

    def log(self, record: Record) -> None:
        """Raises `CannotWrite`, and the run fails: it can be resumed when there is room again."""
        if self._journal is None:
            return
        try:
            self._journal.append(record)
            if self._journal.is_long and self._founded:
                self._shorten()
        except OSError as error:
            where = str(self.path / JOURNAL)
            self._agent.fail(Failure(f"the state of the run cannot be kept in {where!r}: {error}"))
            raise CannotWrite from error

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

    def _shorten(self) -> None:
        assert self._journal is not None
        self._journal.replace(picture(self._agent, self._passed_s()))

    def _passed_s(self) -> float:
        return self._agent.now_s


def outlives_power(pipeline: Pipeline) -> bool:
    """Whether an operator asks for it; then the agent must remember what that one knows."""
    return any(o.durable == "power" for o in pipeline.operators.values())
