"""Stays with a run to its end: shows it, and turns Ctrl-C into a clean end.

Ctrl-C ends the input: what was read is finished. A second one stops at once, and so does SIGTERM
where the run is kept: a service that is ended, or a host that is shut down, goes on later. The
first one stops a backfill.

The agent works in a thread of its own, so a terminal that takes no output (Ctrl-S, a paused
pager) holds up the view and not the run.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Protocol

from anabranch.commands.failing import INTERRUPTED
from anabranch.runtime.live.hosts.attendance import STOP
from anabranch.runtime.reporting.report import CTRL_C, Report
from anabranch.runtime.reporting.snapshot import RunSnapshot
from anabranch.views.view import View

TICK_S = 0.25
OUTPUT_LINES_MAX = 1000
"""Printed by operators between two ticks; older ones are dropped, with a word."""
ENDING = "finishing what was read; press Ctrl-C again to stop at once"
ENDING_KEPT = f"{ENDING} and keep the run"
STOPPING = "stopping at once; what is on its way is given up"
KEEPING = "stopping at once; the run is kept"


class RunHandle(Protocol):
    """The part of `anabranch.runtime.live.agent.launch.Run` that is needed here."""

    def wait(self, timeout_s: float | None = None) -> Report:
        """Raises `TimeoutError` while the run goes on, and `RunFailed`."""

    def snapshot(self) -> RunSnapshot: ...

    def cut_short(self, by: str) -> None:
        """End its input; `by` what, for the report."""

    def stop(self) -> Report:
        """Raises `TimeoutError` if the processes do not end, and `RunFailed`."""


@dataclass
class Interrupts:
    """Counts signals. Acting on them is the loop's work: a handler may come anywhere."""

    keeps: bool = False
    """Whether the run can be resumed when it was stopped."""
    at_once: bool = False
    """Whether the first one stops: a backfill of a part of the input would be none."""
    received: int = 0
    handled: int = 0
    first: str = ""
    """The first one, as users call it."""

    def note(self, signum: int, frame: FrameType | None) -> None:
        self.received += 1
        if not self.first:
            self.first = CTRL_C if signum == signal.SIGINT else signal.Signals(signum).name
        if self.at_once or (self.keeps and signum != signal.SIGINT):
            self.received = max(2, self.received)
        if self.received > 2:
            os._exit(INTERRUPTED)  # stopping does not stop: the processes end with this one

    def told(self, what: str) -> None:
        """By the agent of the host, from a thread: END or STOP."""
        self.first = self.first or "stop"
        self.received = max(self.received, 2 if what == STOP else 1)


@contextmanager
def interrupts(*, keeps: bool = False, at_once: bool = False) -> Iterator[Interrupts]:
    """Ctrl-C, SIGTERM and a closed terminal are noted while this is open.

    What the command that starts this one has it ignore stays ignored: a closed terminal under
    `nohup`, Ctrl-C in the background of a script. What it has blocked, as programs do that start
    others from a thread without signals, is noticed.
    """
    noted = Interrupts(keeps, at_once)
    signals = [signal.SIGTERM]
    for optional in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(optional) is not signal.SIG_IGN:
            signals.append(optional)
    before = [(s, signal.signal(s, noted.note)) for s in signals]
    blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    try:
        yield noted
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for signum, handler in before:
            signal.signal(signum, handler)


@dataclass
class Output:
    """Lines that operators print, and events that a user should act on: put in by the agent's
    thread, shown by the loop.

    Each count has one writer: `put_in` the thread, `taken` the loop.
    """

    lines: deque[str] = field(default_factory=lambda: deque(maxlen=OUTPUT_LINES_MAX))
    put_in: int = 0
    taken: int = 0

    def put(self, instance: str, line: str) -> None:
        self.tell(f"{instance}: {line}")

    def tell(self, line: str) -> None:
        self.lines.append(line)
        self.put_in += 1

    def show(self, view: View) -> None:
        """What is put in meanwhile is shown now or the next time."""
        dropped = self.put_in - self.taken - len(self.lines)
        if dropped > 0:
            self.taken += dropped
            view.say(f"({dropped:,} printed lines were dropped)")
        for _ in range(len(self.lines)):
            view.say(self.lines.popleft())
            self.taken += 1


def follow(run: RunHandle, view: View, noted: Interrupts, output: Output) -> Report:
    """The report, once the run has ended. Raises `RunFailed` if it failed."""
    try:
        while True:
            if noted.received > noted.handled:
                noted.handled = noted.received
                if noted.handled > 1:
                    view.say(KEEPING if noted.keeps else STOPPING)
                    return run.stop()
                view.say(ENDING_KEPT if noted.keeps else ENDING)
                run.cut_short(noted.first)
            try:
                return run.wait(TICK_S)
            except TimeoutError:
                output.show(view)
                view.show(run.snapshot())
    finally:
        output.show(view)
