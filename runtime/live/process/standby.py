"""Keeps a standby of the template process: a copy that it has forked of itself, idle, with a
control socket of its own, and ready to take its place.

The agent could only start another parent that reads the user's file again, which takes longer, may
not be what it was, or may not be wanted. A standby costs a fork and no memory of its own to speak
of, since nothing in it changes. There is always one, apart from the moment in which it is made; the
standby that takes over makes the next.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress

from anabranch.runtime.live.link import control as msg
from anabranch.runtime.live.link.inherited_fds import own
from anabranch.runtime.live.process.template_process import (
    TemplateProcess,
    can_have_standbys,
    standby_of,
)

log = logging.getLogger("anabranch.standbys")

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 5.0
SOUND_S = 0.2
"""A standby that lived for so long was killed from outside, and did not die for lack of memory or
the like."""

Send = Callable[[msg.ToParent, list[int]], None]
"""To the present parent, with open files. Raises `OSError`."""


class Standbys:
    """`first_order`: the message that every standby gets at once, encoded."""

    def __init__(self, send: Send) -> None:
        self.first_order = b""
        self._send = send
        self._standby: TemplateProcess | None = None
        self._promised: tuple[socket.socket, socket.socket] | None = None
        """Both ends of the control socket of one that is being made."""
        self._retry: asyncio.TimerHandle | None = None
        self._pause_s = RETRY_FIRST_S
        self._tried_s = 0.0

    @property
    def pid(self) -> int | None:
        return None if self._standby is None else self._standby.pid

    def keep(self) -> None:
        """Have one made whenever there is none, and none is being made: now, and later on."""
        if not can_have_standbys() or self._standby is not None or self._promised is not None:
            return
        self._tried_s = asyncio.get_running_loop().time()
        try:
            ours, theirs = self._promised = socket.socketpair()
            self._send(msg.MakeStandby(), [theirs.fileno()])
        except OSError as error:
            self.note_failed(str(error))
        else:
            own(ours).setblocking(False)

    def note_made(self, parent: TemplateProcess, pid: int) -> None:
        assert self._promised is not None
        ours, theirs = self._promised
        # Kept open until now: macOS may drop a file in flight that its sender has closed.
        theirs.close()
        self._promised = None
        self._standby = standby_of(parent, pid, ours)
        if self._standby is None:
            ours.close()
            self._make_later()
            return
        with suppress(OSError):  # it has ended already, which is reported in a moment
            ours.send(self.first_order)

    def note_failed(self, reason: str) -> None:
        log.info("no standby of the template process could be made: %s; tried again", reason)
        self._break_promise()
        self._make_later()

    def note_exited(self, pid: int) -> None:
        """A child of the parent has ended, perhaps the standby."""
        if self._standby is not None and self._standby.pid == pid:
            self._drop()
            self._make_later()

    def take(self) -> TemplateProcess | None:
        """The standby, if there is one; it is the parent now, and `keep` makes another."""
        self._break_promise()
        self._stop_retrying()
        if self._standby is not None and self._standby.ended():
            self._drop()  # the parent could not reach it any more
        standby, self._standby = self._standby, None
        return standby

    def close(self) -> None:
        """End what is there; to be called when the parent has ended."""
        self._break_promise()
        self._stop_retrying()
        if self._standby is not None:
            self._standby.kill()
            self._drop()

    def _make_later(self) -> None:
        """At once, or the parent might be killed before. But each one that fails, or dies at once,
        doubles the pause, so as not to burden a host without memory."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._tried_s > SOUND_S:
            self._pause_s = RETRY_FIRST_S
        self._retry = loop.call_later(self._pause_s, self.keep)
        self._pause_s = min(2 * self._pause_s, RETRY_MAX_S)

    def _stop_retrying(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _break_promise(self) -> None:
        """Close both ends of its control socket: a standby that is made nevertheless finds it
        closed, and ends."""
        for end in self._promised or ():
            end.close()
        self._promised = None

    def _drop(self) -> None:
        assert self._standby is not None
        self._standby.let_go()
        self._standby = None
