"""A pipeline of a host: its folder, its process, and what has become of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from anabranch.runtime.live.hosts.agent_log import AgentLog
from anabranch.runtime.live.hosts.attendance import RunProcess
from anabranch.runtime.live.hosts.pipeline_folder import PipelineEnd, PipelineFolder, now
from anabranch.runtime.ports.disk import store

STOPPED = 130
"""Exit code of `anabranch run`."""


@dataclass(slots=True)
class Attended:
    """`task`: keeps its process running; None once it has ended."""

    folder: PipelineFolder
    log: AgentLog
    task: asyncio.Task[None] | None = None
    process: RunProcess | None = None
    starts: int = 0
    message: str = ""
    """Why it waits."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """It has begun, or ended."""
    printed: asyncio.Event = field(default_factory=asyncio.Event)
    """There is more in its log, or it has ended."""
    _output_is_lost: bool = False

    @property
    def id(self) -> str:
        return self.folder.record.id

    def note(self, **changes: object) -> None:
        """If the disk takes nothing, it is kept in memory as long as the agent lives."""
        with self._told("cannot write to"):
            self.folder.note(**changes)

    def end(self, state: str, message: str) -> None:
        self.note(end=PipelineEnd(state, message, now()))
        self.printed.set()

    def remove(self) -> None:
        with self._told("cannot remove"):
            self.folder.remove()

    def add_output(self, data: bytes) -> None:
        """Of its process."""
        try:
            self.folder.printed.add(data)
            self._output_is_lost = False
            self.printed.set()
        except OSError as error:
            if not self._output_is_lost:
                text = f"pipeline {self.id}: what it prints is lost: {error.strerror}"
                self.log.say("disk", text, pipeline=self.id)
            self._output_is_lost = True

    def verdict(self, code: int) -> tuple[str, str]:
        """State and message of a run that has ended with this exit code."""
        figures = figures_of(self.folder.report)
        if figures is None and code == 0:
            return "finished", "its report was lost with the agent of then"
        if code == STOPPED:
            return "stopped", "stopped at once; submitting the same version again goes on with it"
        if code == 0:
            return "finished", ""
        told = figures and figures["failure"]
        lines = []
        with self._told("cannot read the log in"):
            lines = [line for line in self.folder.printed.last_lines(50) if line.strip()]
        own = [line for line in lines if line.startswith("anabranch: ")]
        reasons = [line for before, line in pairwise(lines) if ": failed after " in before]
        last = str(told or (own or reasons or lines or [f"exit code {code}"])[-1])
        return "failed", last.strip().removeprefix("anabranch: ")

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """A failure of the disk is written to the agent's log, and ends nothing."""
        try:
            yield
        except OSError as error:
            text = f"pipeline {self.id}: {what} {self.folder.path}: {error.strerror}"
            self.log.say("disk", text, pipeline=self.id)


def figures_of(report: Path) -> dict[str, Any] | None:
    """Of a run that has ended."""
    try:
        found = msgspec.json.decode(store().read(report))
        ledger = found["ledger"]
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        return None
    return {
        "phase": "ended",
        "seconds": found["seconds"],
        "read": ledger["tuples_in"],
        "delivered": ledger["tuples_out"],
        "dead_letters": ledger["dead_letters"],
        "lost": ledger["lost"],
        "duplicated": ledger["duplicated"],
        "ended": found["ended"],
        "ended_by": found["ended_by"],
        "failure": found["failure"],
        "resumed": found["resumed"],
    }
