"""Begins the template process: by a fork of this process, or as a program of its own.

A fork is the better way where it is safe, that is while this process has a single thread: memory
is shared with the user's program, and the pipeline may be anything, a lambda in a function
included. Otherwise a fresh interpreter reads the user's file again.
"""

from __future__ import annotations

import asyncio
import io
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from anabranch.runtime.live.link.inherited_fds import close_inherited, own
from anabranch.runtime.live.link.link import encode
from anabranch.runtime.live.process.origin import (
    Origin,
    find_origin,
    load_request,
    preload,
)
from anabranch.runtime.live.process.template import become_template, fork_quietly, serve_forks
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Preloading
from anabranch.runtime.values.checks import PipelineError


@dataclass(slots=True)
class TemplateProcess:
    """The running parent as the agent holds it. `lifeline`: its closing ends every process."""

    pid: int
    control: socket.socket
    lifeline: io.FileIO
    _popen: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _handle: io.FileIO | None = field(default=None, repr=False)
    """Stands for the process if that is no child of ours, so that no other one is taken for it."""
    _ended: bool = False
    exit_code: int | None = None
    """Known of a child of ours that has ended; minus the number of the signal that killed it."""

    def ended(self) -> bool:
        """Whether it has exited; reaps it. Never blocks."""
        if not self._ended:
            self._ended = self._has_ended()
        return self._ended

    def kill(self) -> None:
        if self.ended():
            return
        if self._handle is None:
            os.kill(self.pid, signal.SIGKILL)
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle.fileno(), signal.SIGKILL)

    def _has_ended(self) -> bool:
        if self._popen is not None:
            self.exit_code = self._popen.poll()
            return self.exit_code is not None
        if self._handle is not None:
            poll = select.poll()
            poll.register(self._handle, select.POLLIN)
            return bool(poll.poll(0))
        return self._is_reaped()

    def _is_reaped(self) -> bool:
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            # It was reaped elsewhere, as in a program that ignores SIGCHLD.
            return True
        if pid:
            self.exit_code = os.waitstatus_to_exitcode(status)
        return pid != 0

    def cut_lifeline(self) -> None:
        """Every process of the run ends itself after this, whatever else fails."""
        self.lifeline.close()

    def close(self) -> None:
        self.cut_lifeline()
        self.let_go()

    def let_go(self) -> None:
        """Give back what is open for this one alone. Whether it has ended cannot be found then."""
        self.control.close()
        if self._handle is not None:
            self._handle.close()


def may_fork() -> bool:
    """Whether a fork of this process is safe: one thread, and no event loop running in it."""
    if threading.active_count() > 1:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


def choose_way(pipeline: Pipeline, way: Preloading) -> tuple[Preloading, Origin | None]:
    """Raises `PipelineError` if the pipeline can reach another process in no way."""
    if way == "fork" or (way == "auto" and may_fork()):
        return "fork", None
    origin = find_origin(pipeline)
    if origin is None:
        raise PipelineError(
            f"pipeline {pipeline.name!r}: this program has several threads or a running event "
            "loop, so that the pipeline's file is read again by a process of its own, but the "
            "pipeline is no global variable of a file. Assign it to a global name, or start it "
            "before the first thread, or use `anabranch run FILE.py`."
        )
    return "import", origin


def fork_template(pipeline: Pipeline, entry: str) -> TemplateProcess:
    """Fork this process."""
    in_memory = preload(pipeline, entry)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    with _ties() as (control, theirs, lifeline, lifeline_read), _interrupts_blocked():
        pid = fork_quietly()
        if pid == 0:
            try:
                close_inherited()
                become_template()
                serve_forks(theirs, lifeline_read.fileno(), in_memory)
            finally:
                os._exit(1)
        return TemplateProcess(pid, control, lifeline)


def import_template(
    pipeline: Pipeline, origin: Origin, entry: str, *, held: int | None = None
) -> TemplateProcess:
    """Start a program that reads the user's file again. `held`: an open file that all processes of
    the run have.

    To be called from the thread that lives as long as the run: Linux ends the program with it.
    """
    request = encode(load_request(pipeline, origin, entry))
    with _ties() as (control, theirs, lifeline, lifeline_read):
        fds = {"--control": theirs.fileno(), "--lifeline": lifeline_read.fileno()}
        if held is not None:
            fds["--held"] = held
        command = [sys.executable, "-m", "anabranch.runtime.live.process.template"]
        for option, number in {**fds, "--agent-pid": os.getpid()}.items():
            command += [option, str(number)]
        with _interrupts_blocked():
            popen = subprocess.Popen([*command, str(origin)], pass_fds=tuple(fds.values()))
        theirs.close()
        with suppress(BrokenPipeError, ConnectionResetError):  # killed already: reported later
            control.sendall(request)
        return TemplateProcess(popen.pid, control, lifeline, popen)


def can_have_standbys() -> bool:
    """Whether the system can name a process that is no child of ours, beyond its number."""
    return hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")


def standby_of(parent: TemplateProcess, pid: int, control: socket.socket) -> TemplateProcess | None:
    """A child of `parent` as one that can take its place; None if it has gone already."""
    try:
        handle = own(io.FileIO(os.pidfd_open(pid), "rb"))
    except OSError:
        return None
    return TemplateProcess(pid, control, parent.lifeline, _handle=handle)


@contextmanager
def _ties() -> Iterator[tuple[socket.socket, socket.socket, io.FileIO, io.FileIO]]:
    """The two ends of a control socket, and of a lifeline: ours stay open, unless no process has
    the others."""
    with ExitStack() as ours:
        control, theirs = socket.socketpair()
        ours.enter_context(own(control))
        with theirs:
            read, write = os.pipe()
            lifeline = ours.enter_context(own(io.FileIO(write, "wb")))
            with io.FileIO(read, "rb") as lifeline_read:
                yield control, theirs, lifeline, lifeline_read
        ours.pop_all()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Ctrl-C between a fork and the child's own settings would end the child with a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
