"""The worker of a run on one more host: makes processes as the run orders, and takes no decision.

It is begun by the agent of that host (`HostedWorker`), and ends with it, with all that it has made.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.hosts.hosting import RELAYED_BYTES_MAX
from anabranch.runtime.live.agent.run_files import RunFiles
from anabranch.runtime.live.channel.ended import ended_dir, leave_mark
from anabranch.runtime.live.hosts.hosted_worker import IS_DONE, KEEPS, READY, WorkerOrder
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.journal.journal import remove_journal
from anabranch.runtime.live.link.link import receive_blocking
from anabranch.runtime.live.process import orphans
from anabranch.runtime.live.process.forker import Forker
from anabranch.runtime.live.process.hosted import HostWorker
from anabranch.runtime.live.process.origin import DEFAULT_ENTRY, Origin, find_origin
from anabranch.runtime.live.process.process import OnOutput
from anabranch.runtime.live.process.run_dir import RunDir
from anabranch.runtime.live.process.template_process import (
    TemplateProcess,
    choose_way,
    fork_template,
    import_template,
)
from anabranch.runtime.live.process.tunnel import WorkerPlace
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.ports.disk import DiskFile, store
from anabranch.runtime.storage.dead_letters import letters_in
from anabranch.runtime.storage.forks import not_for_children

FDS_AT_ONCE = 16
LETTERS_BYTES = 2**20
"""Of dead letters in a message, or a little more."""


def serve_worker(
    pipeline: Pipeline, control_fd: int, lock_fd: int, entry: str = DEFAULT_ENTRY
) -> int:
    """Be the worker until the run or the agent ends it; the exit code. To be called in the main
    thread, outside of any event loop."""
    control = socket.socket(fileno=control_fd)
    body = receive_blocking(control)
    if body is None:
        os._exit(orphans.ORPHAN_EXIT_CODE)
    order = msgspec.msgpack.decode(body, type=WorkerOrder)
    orphans.die_with_parent(order.agent_pid)
    for fd in (control_fd, lock_fd):  # none of a program that a function starts
        os.set_inheritable(fd, False)
    lock = not_for_children(DiskFile(lock_fd))
    way, origin = choose_way(pipeline, "auto")
    parent = fork_template(pipeline, entry) if way == "fork" else None
    worker = _Worker(pipeline, order, control, lock_fd, parent, origin, entry)
    try:
        return KEEPS if asyncio.run(worker.run()) else IS_DONE
    finally:
        lock.close()


class _Worker:
    """`parent`: forked already, or None if `origin` has to be read by a program of its own."""

    def __init__(
        self,
        pipeline: Pipeline,
        order: WorkerOrder,
        control: socket.socket,
        lock_fd: int,
        parent: TemplateProcess | None,
        origin: Origin | None,
        entry: str,
    ) -> None:
        self._pipeline = pipeline
        self._order = order
        self._control = control
        self._lock_fd = lock_fd
        self._parent = parent
        self._origin = origin
        self._entry = entry
        self._attaching: set[asyncio.Task[None]] = set()

    async def run(self) -> bool:
        """Whether the files are to be kept."""
        run_dir = RunDir()
        files = RunFiles(Path(self._order.state_dir), self._pipeline.operators, keep_finished=False)
        files.make_lasting()
        marks = ended_dir(files.ends)
        store().make_folder(marks, 0o700)

        def remove(operator: str, number: int) -> None:
            with suppress(OSError):  # it goes with the folder
                remove_journal(files.journal_of(operator, number))

        def mark(operator: str, numbers: list[int]) -> None:
            for number in numbers:
                with suppress(OSError):  # it is sent again
                    leave_mark(marks, InstanceId(OperatorName(operator), number))

        place = WorkerPlace(files.path, run_dir.path, self._order.listen, self._order.tls)
        worker = HostWorker(self._processes, place, remove, mark, partial(_letters, self._pipeline))
        loop = asyncio.get_running_loop()
        self._control.setblocking(False)
        loop.add_reader(self._control, lambda: self._take_streams(worker.attach))
        self._control.send(READY)
        try:
            return await worker.run()
        finally:
            loop.remove_reader(self._control)
            run_dir.remove()

    def _processes(
        self,
        on_output: OnOutput,
        on_lost: Callable[[str], None],
        on_taken_over: Callable[[], None],
    ) -> Forker:
        if self._parent is None:
            assert self._origin is not None
            self._parent = import_template(
                self._pipeline, self._origin, self._entry, held=self._lock_fd
            )
        return Forker(self._parent, on_output, on_lost, on_taken_over, self._another)

    def _another(self) -> TemplateProcess | None:
        origin = self._origin or find_origin(self._pipeline)
        if origin is None or (origin.is_program and self._origin is None):
            return None
        return import_template(self._pipeline, origin, self._entry, held=self._lock_fd)

    def _take_streams(self, attach: Callable[[FrameStream], None]) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._control, FDS_AT_ONCE, FDS_AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if not data:  # the agent is gone: all that was made here ends with this process
            os._exit(orphans.ORPHAN_EXIT_CODE)
        for fd in fds:
            task = asyncio.ensure_future(self._attach(socket.socket(fileno=fd), attach))
            self._attaching.add(task)
            task.add_done_callback(self._attaching.discard)

    async def _attach(self, sock: socket.socket, attach: Callable[[FrameStream], None]) -> None:
        sock.setblocking(False)
        stream = FrameStream(RELAYED_BYTES_MAX)
        await asyncio.get_running_loop().create_unix_connection(lambda: stream, sock=sock)
        attach(stream)


def _letters(pipeline: Pipeline) -> Iterator[bytes]:
    """The file of dead letters in pieces of whole lines. Not one at an absolute path: that is where
    the user wants it."""
    path = pipeline.dead_letters_path
    if not path.is_absolute():
        yield from letters_in(path, LETTERS_BYTES)
