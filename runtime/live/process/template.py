"""The template process: has the runtime and the user's pipeline in memory, and forks.

It has one thread and no event loop, so that a fork copies no lock in a bad moment. It answers
the agent's commands, reports the exits of its children, and ends with all of them when the agent
orders it or is gone. One of its children is its **standby**, an idle copy with a control socket of
its own, which outlives it: if the parent is killed, the agent goes on with the standby.

`python -m anabranch.runtime.live.process.template` starts a parent as a program of its own;
`serve_forks` turns the present process into one.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import socket
import traceback
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, assert_never

import msgspec

from anabranch.runtime.live.link import control as msg
from anabranch.runtime.live.link.link import FrameBuffer, send_blocking
from anabranch.runtime.live.process import orphans
from anabranch.runtime.live.process.run_dir import remove_unless_used
from anabranch.runtime.live.process.warm import Inheritance, Preload, become_warm
from anabranch.runtime.ports import clock
from anabranch.runtime.values.texts import original

NAME = "ab:template"
FDS_PER_FORK = 2
FILES_WANTED = 65_536
REAP_TIMEOUT_S = 2.0
_READ_BYTES = 65536
_decode = msgspec.msgpack.Decoder(msg.ToParent).decode


def serve_forks(control: socket.socket, lifeline: int, preload: Preload) -> NoReturn:
    """Be the template process until the end of the run. Ends the process."""
    code = 1
    try:
        send_blocking(control, msg.Loaded())
        Template(control, lifeline, preload).serve()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


class Template:
    """Children are killed only here, where a pid cannot have been given to another process yet."""

    def __init__(self, control: socket.socket, lifeline: int, preload: Preload) -> None:
        self._control = control
        self._lifeline = lifeline
        self._preload = preload
        self._pid = os.getpid()
        self._children: set[int] = set()
        self._received_fds: deque[int] = deque()
        self._frames = FrameBuffer()
        self._wake_read, self._wake_write = _signal_pipe()
        self._running = True
        self._is_orphaned = False
        """Whether the agent has gone without a word."""
        self._guarded: Path | None = None

    def serve(self) -> None:
        """Return when ordered to stop or when the agent is gone; no child is left then."""
        # What exists now is never collected: collecting would copy the pages shared with children.
        gc.disable()
        gc.freeze()
        orphans.wake_when_parent_ends()
        self._obey_all()

    def inherit(self) -> None:
        """The same as `serve`, in a fork of a parent: its death is not the end of this process."""
        orphans.set_process_name("ab:standby")
        self._obey_all()

    def _obey_all(self) -> None:
        orphans.adopt_orphans()
        poll = select.poll()
        for readable in (self._control.fileno(), self._lifeline, self._wake_read):
            poll.register(readable, select.POLLIN)
        try:
            while self._running:
                self._step({fd for fd, _ in poll.poll()})
        except (BrokenPipeError, ConnectionResetError):
            # While something was sent to it.
            self._outlive_the_agent()
        finally:
            self._end_children()
            if self._is_orphaned and self._guarded is not None:
                # Now, or the standby, which does the same, could be ended in the middle of it.
                remove_unless_used(self._guarded)

    def _step(self, ready: set[int]) -> None:
        if self._lifeline in ready:
            self._outlive_the_agent()
            return
        if self._wake_read in ready:
            os.read(self._wake_read, _READ_BYTES)
            self._reap()
        if self._control.fileno() in ready:
            self._receive()

    def _receive(self) -> None:
        data, fds, flags, _ = socket.recv_fds(self._control, _READ_BYTES, 64)
        self._received_fds.extend(fds)
        if not data:
            self._outlive_the_agent()
            return
        if flags & socket.MSG_CTRUNC:
            raise OSError("this process has too many open files")
        for body in self._frames.feed(data):
            self._obey(_decode(body))

    def _obey(self, command: msg.ToParent) -> None:
        match command:
            case msg.Guard(folder=folder):
                self._guarded = Path(original(folder))
            case msg.Fork(key=key):
                self._fork(key)
            case msg.MakeStandby():
                self._make_standby()
            case msg.TakeOver():
                orphans.set_process_name(NAME)
            case msg.Kill(pid=pid):
                if pid in self._children:
                    os.kill(pid, signal.SIGKILL)
            case msg.Stop():
                self._running = False
            case msg.LoadPipeline():
                raise AssertionError("loaded already")
            case _:
                assert_never(command)

    def _fork(self, key: int) -> None:
        link_fd, stderr = (self._received_fds.popleft() for _ in range(FDS_PER_FORK))
        link = socket.socket(fileno=link_fd)
        try:
            pid = fork_quietly()
        except OSError as error:
            send_blocking(self._control, msg.ForkFailed(key=key, reason=str(error)))
        else:
            if pid == 0:
                become_warm(self._inheritance(link, stderr), self._preload)
            self._children.add(pid)
            send_blocking(self._control, msg.Forked(key=key, pid=pid))
        link.close()
        os.close(stderr)

    def _make_standby(self) -> None:
        control = socket.socket(fileno=self._received_fds.popleft())
        try:
            pid = fork_quietly()
        except OSError as error:
            send_blocking(self._control, msg.StandbyFailed(reason=str(error)))
        else:
            if pid == 0:
                self._become_standby(control)
            self._children.add(pid)
            send_blocking(self._control, msg.StandbyMade(pid=pid))
        control.close()

    def _become_standby(self, control: socket.socket) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for fd in self._private_fds():
                os.close(fd)
            Template(control, self._lifeline, self._preload).inherit()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _private_fds(self) -> tuple[int, ...]:
        """What no child may keep open."""
        control = self._control.fileno()
        return (control, self._wake_read, self._wake_write, *self._received_fds)

    def _inheritance(self, link: socket.socket, stderr: int) -> Inheritance:
        return Inheritance(link, stderr, self._lifeline, self._pid, self._private_fds())

    def _reap(self) -> None:
        for pid, status in _ended_children():
            if pid in self._children:
                self._children.discard(pid)
                code = os.waitstatus_to_exitcode(status)
                send_blocking(self._control, msg.Exited(pid=pid, code=code))

    def _outlive_the_agent(self) -> None:
        """The agent is gone; only this process can still tidy up."""
        self._running = False
        self._is_orphaned = True

    def _end_children(self) -> None:
        """Kill and reap all, and what they had started: it becomes ours when they end."""
        deadline = clock.monotonic() + REAP_TIMEOUT_S
        left = self._children | set(orphans.children_of_this_process())
        while left and clock.monotonic() < deadline:
            for pid in left:
                with suppress(PermissionError):  # a program of another user's, such as sudo
                    os.kill(pid, signal.SIGKILL)
            select.select([self._wake_read], [], [], 0.01)
            self._children -= {pid for pid, _ in _ended_children()}
            left = self._children | set(orphans.children_of_this_process())


def _ended_children() -> Iterator[tuple[int, int]]:
    """Pid and wait status of every child that has ended, ours and adopted ones; reaps them."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def fork_quietly() -> int:
    """`os.fork` without the warning about threads: those of numerical libraries are no danger."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def become_template() -> None:
    """Signals and name of a fresh template process, forked or started with SIGINT blocked."""
    # Ctrl-C reaches the whole foreground group, SIGTERM all processes of a service; ending the run
    # is the agent's business. Handled, not ignored: what is ignored stays ignored in the programs
    # that functions start, and these could not be interrupted.
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave_to_the_agent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    orphans.set_process_name(NAME)
    _allow_files()


def _leave_to_the_agent(_signal: int, _frame: FrameType | None) -> None:
    return


def _allow_files() -> None:
    """An instance has a file for every neighbour, and what it may open by default is little."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _signal_pipe() -> tuple[int, int]:
    """A pipe that gets a byte whenever a child ends."""
    read, write = os.pipe()
    for fd in (read, write):
        os.set_blocking(fd, False)

    def noted_by_the_wakeup_fd(_signal: int, _frame: FrameType | None) -> None:
        """Python writes to the wake-up file only for signals that have a handler."""

    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, noted_by_the_wakeup_fd)
    return read, write


def main(arguments: list[str] | None = None) -> NoReturn:
    """Started by the agent where forking it would be unsafe; not for use by hand."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m anabranch.runtime.live.process.template")
    for name in ("--control", "--lifeline", "--agent-pid"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--held", type=int, help="an open file that all processes are to have")
    parser.add_argument("pipeline", metavar="FILE:NAME", help="shown in the list of processes")
    options = parser.parse_args(arguments)
    become_template()
    # It reads nothing while it runs the user's file, so until then it is simply killed.
    orphans.die_with_parent(options.agent_pid)
    control = socket.socket(fileno=options.control)
    if options.held is not None:
        os.set_inheritable(options.held, False)
    preload = _load(control)
    serve_forks(control, options.lifeline, preload)


def _load(control: socket.socket) -> Preload:
    from anabranch.runtime.live.link.link import receive_blocking
    from anabranch.runtime.live.process.origin import LoadError, load_preload

    body = receive_blocking(control)
    if body is None:
        os._exit(orphans.ORPHAN_EXIT_CODE)
    command: Any = _decode(body)
    try:
        return load_preload(command)
    except LoadError as error:
        send_blocking(control, msg.LoadFailed(message=str(error)))
        os._exit(1)


if __name__ == "__main__":
    main()
