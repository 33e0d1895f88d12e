"""One process of the run as the agent sees it, from its fork to its end."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

TAIL_LINES_MAX = 30
LINE_CHARS_MAX = 4096
OUTPUT_TIMEOUT_S = 0.5
"""How long the last words of an ended process are awaited: a child of it may hold its pipe."""

OnOutput = Callable[[str, str], None]
"""Called with the name of the process and a line that it printed."""


class Output:
    """What a process prints (standard error, and `print` of user functions), line by line.
    `closed`: nothing more comes."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL_LINES_MAX)
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_line = on_line

    def take(self, line: str) -> None:
        self.tail.append(line[:LINE_CHARS_MAX])
        try:
            self._on_line(line)
        except Exception:
            # It cannot be read any more, such as on a closed terminal. The stream goes on: an
            # error here would close the pipe and hit the user's function that printed.
            self._on_line = _drop

    def end(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


def _drop(_line: str) -> None:
    return


class ProcessLink(Protocol):
    """The agent's end of a link to a process, here or on another host."""

    @property
    def closed(self) -> asyncio.Future[None]:
        """Done when the other end is gone, and every frame was handed over."""
        ...

    @property
    def error(self) -> Exception | None:
        """Why it was closed, if the process has broken its rules."""
        ...

    def send(self, message: Any) -> None:
        """Queue a message; a no-op when the link is closed. Never blocks."""

    def close(self) -> None: ...


class Process:
    """`pid` is 0 until the parent has forked it. `exit_code` as of `Exited`; None while alive."""

    link: ProcessLink
    output: Output

    def __init__(self, key: int, on_output: OnOutput) -> None:
        loop = asyncio.get_running_loop()
        self.key = key
        self.name = f"process {key}"
        self.pid = 0
        self.exit_code: int | None = None
        self.exited: asyncio.Future[int] = loop.create_future()
        self.forked: asyncio.Future[int] = loop.create_future()
        self.on_frame: Callable[[bytes], None] | None = None
        self._on_output = on_output
        self.is_closed = False
        self.orphan_wait = False
        """Its parent was killed, and it with that."""

    def send(self, message: Any) -> None:
        self.link.send(message)

    def note_forked(self, pid: int) -> None:
        self.pid = pid
        if not self.forked.done():
            self.forked.set_result(pid)

    def note_exited(self, code: int) -> None:
        self.exit_code = code
        if not self.exited.done():
            self.exited.set_result(code)

    async def last_words(self) -> None:
        """Wait until everything that the ended process had sent and printed is here; bounded."""
        ends = [self.link.closed, self.output.closed]
        await asyncio.wait(ends, timeout=OUTPUT_TIMEOUT_S)

    def close(self) -> None:
        self.is_closed = True
        self.link.close()

    async def closed(self) -> None:
        """Close, and return when the files are given back."""
        self.close()
        await self.last_words()

    def _print(self, line: str) -> None:
        self._on_output(self.name, line)

    def _hand_over(self, body: bytes) -> None:
        if self.on_frame is None:
            raise RuntimeError(f"{self.name} spoke before it was asked")
        self.on_frame(body)


def describe_ends(hows: Iterable[str]) -> str:
    """Of several processes: `was killed by SIGKILL (2 times); ended with exit code 3`."""
    ways = Counter(hows)
    return "; ".join(how if n == 1 else f"{how} ({n} times)" for how, n in ways.items())


def describe_exit(code: int) -> str:
    """`was killed by SIGKILL`, `ended with exit code 3`."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
