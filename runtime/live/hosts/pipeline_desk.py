"""Requests about the pipelines of a host, each with its reply. All need proof."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from anabranch.runtime.hosts.pipelines import (
    FRAME_BYTES_MAX,
    AskLogs,
    AskStatus,
    AwaitLogs,
    GiveUpHost,
    Logs,
    PipelinesKnown,
    ScalePipeline,
    StopPipeline,
    Submit,
)
from anabranch.runtime.hosts.requests import AgentMessage, RequestFailed
from anabranch.runtime.hosts.roles import Peer
from anabranch.runtime.live.hosts.pipelines import Pipelines
from anabranch.runtime.live.hosts.refused import PipelineRefused
from anabranch.runtime.live.hosts.request_server import Handler, say
from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.hosts.without import without


class PipelineDesk:
    def __init__(self, pipelines: Pipelines) -> None:
        self._pipelines = pipelines
        self.handlers: dict[type[AgentMessage], Handler] = {
            Submit: _replied(self._submit),
            AskStatus: _replied(self._status),
            AskLogs: _replied(self._logs),
            AwaitLogs: _replied(self._more_log),
            StopPipeline: _replied(self._stop),
            ScalePipeline: _replied(self._scale),
            GiveUpHost: _replied(self._give_up),
        }

    async def _submit(self, request: Submit, asker: Peer | None) -> AgentMessage:
        status = await self._pipelines.submit(request.bundle, request.version, asker)
        return PipelinesKnown([status])

    async def _status(self, request: AskStatus, asker: Peer | None) -> AgentMessage:
        return PipelinesKnown(await self._pipelines.statuses(request.pipeline))

    async def _logs(self, request: AskLogs, asker: Peer | None) -> AgentMessage:
        name, lines = self._pipelines.log_lines(request.pipeline, request.lines)
        while sum(map(len, lines)) > FRAME_BYTES_MAX // 8:  # characters have up to four bytes
            lines = lines[len(lines) // 2 + 1 :]
        return Logs(name, "".join(f"{line}\n" for line in lines))

    async def _more_log(self, request: AwaitLogs, asker: Peer | None) -> AgentMessage:
        return await self._pipelines.more_log(request.pipeline, request.after, request.lines)

    async def _stop(self, request: StopPipeline, asker: Peer | None) -> AgentMessage:
        wanted, at_once = request.pipeline, request.at_once
        status = await self._pipelines.stop(wanted, at_once=at_once, asker=asker)
        return PipelinesKnown([status])

    async def _scale(self, request: ScalePipeline, asker: Peer | None) -> AgentMessage:
        wanted, operator, n = request.pipeline, request.operator, request.instances
        return await self._pipelines.scale(wanted, operator, n, asker)

    async def _give_up(self, request: GiveUpHost, asker: Peer | None) -> AgentMessage:
        return await without(self._pipelines.attended, self._pipelines.host, request.host)


def in_words(error: OSError) -> str:
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"


def _replied(work: Callable[[Any, Peer | None], Awaitable[AgentMessage]]) -> Handler:
    async def handle(request: Any, stream: FrameStream) -> None:
        try:
            reply = await work(request, stream.peer)
        except PipelineRefused as refused:
            reply = RequestFailed(str(refused), refused.wrong)
        except OSError as error:
            reply = RequestFailed(f"the agent cannot do it: {in_words(error)}", wrong=False)
        say(stream, reply)
        await stream.drained()

    return handle
