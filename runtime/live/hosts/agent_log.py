"""The log of an agent: a line per event, for people or as JSON."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, TextIO

import msgspec

from anabranch.runtime.ports import clock


class AgentLog:
    """On standard error. Lines for people have no time, which the journal of systemd adds."""

    def __init__(self, host: str, *, as_json: bool, out: TextIO | None = None) -> None:
        self._host = host
        self._as_json = as_json
        self.out = out or sys.stderr

    def say(self, event: str, text: str, **facts: Any) -> None:
        """`event`: a word for programs that read the log."""
        if self._as_json:
            when = clock.wall_utc().isoformat(timespec="milliseconds")
            line = {"time": when, "host": self._host, "event": event, "text": text, **facts}
            text = msgspec.json.encode(line).decode()
        else:
            text = f"{self._host}: {text}"
        with suppress(OSError):  # a reader that is gone, or a full disk, ends no agent
            self.out.write(f"{text}\n")
            self.out.flush()
