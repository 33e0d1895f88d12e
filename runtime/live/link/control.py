"""What the agent and the template process send to each other, framed as on a link.

With every `Fork` travel two file descriptors: the child's end of its link, and the pipe that
becomes its standard error. With `MakeStandby` travels one, the control socket of the standby.
"""

from __future__ import annotations

from typing import Any

import msgspec


class ControlMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Anything sent on the control socket."""


class LoadPipeline(ControlMessage, frozen=True, kw_only=True, tag="load"):
    """First message to a parent that was started as a program of its own."""

    module: str
    """Imported by name; empty: `file` is run as a module of its own."""
    file: str
    variable: str
    entry: str
    """`module:function` that becomes the instance."""
    sys_path: list[str]
    argv: list[str]
    scales: dict[str, dict[str, Any] | None]
    """Settings by operator, since the caller may have changed them after the file was read."""
    dead_letters: str | None
    inputs: dict[str, list[str]] = {}
    """Files that sources read instead of what they were written with."""


class Guard(ControlMessage, frozen=True, kw_only=True, tag="guard"):
    """A folder to remove if the agent is killed before it can do so."""

    folder: str


class Fork(ControlMessage, frozen=True, kw_only=True, tag="fork"):
    key: int


class MakeStandby(ControlMessage, frozen=True, kw_only=True, tag="make_standby"):
    """Fork a copy of yourself that waits on a control socket of its own."""


class TakeOver(ControlMessage, frozen=True, kw_only=True, tag="take_over"):
    """First command to a standby whose parent has gone: be the template process."""


class Kill(ControlMessage, frozen=True, kw_only=True, tag="kill"):
    pid: int


class Stop(ControlMessage, frozen=True, kw_only=True, tag="stop"):
    """Kill and reap every child, then exit."""


class Loaded(ControlMessage, frozen=True, kw_only=True, tag="loaded"):
    """Ready to fork."""


class LoadFailed(ControlMessage, frozen=True, kw_only=True, tag="load_failed"):
    message: str


class Forked(ControlMessage, frozen=True, kw_only=True, tag="forked"):
    key: int
    pid: int


class ForkFailed(ControlMessage, frozen=True, kw_only=True, tag="fork_failed"):
    key: int
    reason: str


class StandbyMade(ControlMessage, frozen=True, kw_only=True, tag="standby_made"):
    pid: int


class StandbyFailed(ControlMessage, frozen=True, kw_only=True, tag="standby_failed"):
    reason: str


class Exited(ControlMessage, frozen=True, kw_only=True, tag="exited"):
    pid: int
    code: int
    """Exit code; minus the number of the signal that killed it."""


ToParent = LoadPipeline | Guard | Fork | MakeStandby | TakeOver | Kill | Stop
FromParent = Loaded | LoadFailed | Forked | ForkFailed | StandbyMade | StandbyFailed | Exited
