"""An idle process, from the moment it was forked until it becomes an instance or anything else.

It holds two open files of the runtime: its link and the lifeline. Everything else that the
template process had open for its own work is closed here, otherwise the end of one process could
not be seen by the agent as the end of its link.
"""

from __future__ import annotations

import gc
import io
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec

from anabranch.runtime.live.link.link import receive_blocking
from anabranch.runtime.live.process import orphans
from anabranch.runtime.live.process.reseeding import reseed
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.reporting.standard_output import STDERR, keep_for_results

CRASHED = 1

InstanceMain = Callable[[socket.socket, dict[str, Any], Pipeline], NoReturn]


@dataclass(frozen=True, slots=True)
class Preload:
    """What every process of a run has in memory when it is forked."""

    pipeline: Pipeline
    instance_main: InstanceMain
    service_main: InstanceMain
    keeper_main: InstanceMain
    generators: tuple[Any, ...]
    """Those of random numbers that instances have copies of."""


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What a child gets from the template process: `link` and `stderr` are its own."""

    link: socket.socket
    stderr: int
    lifeline: int
    parent_pid: int
    close: tuple[int, ...]
    """Files of the parent that this child must not keep open."""


def become_warm(inheritance: Inheritance, preload: Preload) -> NoReturn:
    """Wait for an assignment and live it. Ends the process; never returns to the parent's code."""
    code = CRASHED
    try:
        _settle(inheritance)
        assign = _wait_for_assignment(inheritance)
        code = 0 if assign is None else _live(inheritance, assign, preload)
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def _settle(inheritance: Inheritance) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for fd in inheritance.close:
        os.close(fd)
    orphans.die_with_parent(inheritance.parent_pid)
    orphans.set_process_name("ab:idle")
    os.dup2(inheritance.stderr, STDERR)
    os.close(inheritance.stderr)
    keep_for_results()
    sys.stdout = sys.stderr = io.TextIOWrapper(
        io.FileIO(STDERR, "w", closefd=False),
        encoding="utf-8",
        errors="backslashreplace",
        write_through=True,
    )


def _wait_for_assignment(inheritance: Inheritance) -> dict[str, Any] | None:
    """The first frame of the link; None if there will be none because the run is over."""
    poll = select.poll()
    poll.register(inheritance.link, select.POLLIN)
    poll.register(inheritance.lifeline, select.POLLIN)
    if inheritance.lifeline in {fd for fd, _ in poll.poll()}:
        return None
    body = receive_blocking(inheritance.link)
    return None if body is None else msgspec.msgpack.decode(body, type=dict[str, Any])


def _live(inheritance: Inheritance, assign: dict[str, Any], preload: Preload) -> int:
    orphans.watch_lifeline(inheritance.lifeline)
    name = _name_of(assign)
    orphans.set_process_name(name)
    reseed(f"{name} {assign.get('incarnation', 1)}", preload.generators)
    gc.enable()
    mains = {"service": preload.service_main, "keeper": preload.keeper_main}
    main = mains.get(assign["role"], preload.instance_main)
    try:
        main(inheritance.link, assign, preload.pipeline)
    except SystemExit as done:
        if done.code is None or isinstance(done.code, int):
            return done.code or 0
        print(done.code, file=sys.stderr)
    return CRASHED


def _name_of(assign: dict[str, Any]) -> str:
    if assign["role"] == "service":
        return f"ab:service{assign['index']}"
    if assign["role"] == "keeper":
        return "ab:copies"
    return f"ab:{assign['id'][0]}.{assign['id'][1]}"


def _flush() -> None:
    for stream in _streams():
        try:
            stream.flush()
        except (OSError, ValueError):
            # The agent is gone, or user code closed the stream: it cannot be reported any more.
            continue


def _streams() -> Iterable[Any]:
    # The old streams, too: a handler of the user's may have kept them.
    streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    return (stream for stream in streams if stream is not None)
