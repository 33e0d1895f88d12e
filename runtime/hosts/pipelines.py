"""What commands ask an agent about the pipelines of its host, and what it replies."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from anabranch.runtime.hosts.bundle import BUNDLE_BYTES_MAX
from anabranch.runtime.hosts.requests import AgentMessage
from anabranch.runtime.hosts.roles import OPERATE, SUBMIT, VIEW

FRAME_BYTES_MAX = BUNDLE_BYTES_MAX + 2**16
LOG_LINES_MAX = 10_000


class Submit(AgentMessage, frozen=True, tag="submit"):
    """`version`: the SHA-256 of the bundle."""

    role: ClassVar[str] = SUBMIT
    bundle: bytes
    version: str


class AskStatus(AgentMessage, frozen=True, tag="status"):
    """`pipeline`: an id or a name; empty: all."""

    role: ClassVar[str] = VIEW
    pipeline: str


class AskLogs(AgentMessage, frozen=True, tag="logs"):
    role: ClassVar[str] = VIEW
    pipeline: str
    lines: int


class AwaitLogs(AgentMessage, frozen=True, tag="await_logs"):
    """What the run prints from now on. `after`: a place in its log, as `LogNews` has it; None: the
    last `lines` first."""

    role: ClassVar[str] = VIEW
    pipeline: str
    after: Annotated[int, Meta(ge=0, lt=2**62)] | None
    lines: int


class StopPipeline(AgentMessage, frozen=True, tag="stop"):
    """`at_once`: give up what is on its way. Otherwise what was read is finished."""

    role: ClassVar[str] = SUBMIT
    pipeline: str
    at_once: bool


class ScalePipeline(AgentMessage, frozen=True, tag="scale"):
    """`instances`: how many the operator is to have; None: as its policy decides."""

    role: ClassVar[str] = SUBMIT
    pipeline: str
    operator: str
    instances: int | None


class ScaleOutcome(AgentMessage, frozen=True, tag="scaled"):
    """`instances`: as many as the operator has now. `reached`: these are those that were asked for.
    `why`: they are not, as far as that is known."""

    id: str
    host: str
    operator: str
    wanted: int | None
    instances: int
    reached: bool
    why: str = ""


class GiveUpHost(AgentMessage, frozen=True, tag="give_up"):
    """The pipelines that were submitted here are to go on without that host."""

    role: ClassVar[str] = OPERATE
    host: str


class HostGivenUp(AgentMessage, frozen=True, tag="given_up"):
    """`without`: ids of those that do; `refused`: of the others, and why."""

    home: str
    host: str
    without: list[str]
    refused: dict[str, str]


class PipelineStatus(msgspec.Struct, frozen=True):
    """What the agent has found out by asking the run just now.

    `state`: starting, running, ending (its input has ended), waiting (its process has died and
    begins again soon), silent (its process is there and does not answer), finished, stopped,
    failed, or damaged (what the host has kept of it cannot be read). `run`: figures of the run that
    answered, or of the report of one that has ended; None without either. `message`: why it failed,
    waits, or is damaged. `starts`: processes that it has had. `owner`: whose certificate it was
    submitted with; "" for the user of the agent.
    """

    id: str
    name: str
    version: str
    host: str
    module: str
    state: str
    submitted_at: str
    pid: int | None
    starts: int
    run: dict[str, Any] | None
    message: str
    owner: str = ""


class PipelinesKnown(AgentMessage, frozen=True, tag="pipelines"):
    pipelines: list[PipelineStatus]


class Logs(AgentMessage, frozen=True, tag="log_lines"):
    id: str
    text: str


class LogNews(AgentMessage, frozen=True, tag="log_news"):
    """`at`: the place behind it. `dropped`: bytes before it that the agent has no more. `state`: of
    a run that has ended, once there is nothing more."""

    id: str
    data: bytes
    at: int
    dropped: int
    state: str
