"""A process that runs a service of the pipeline, from its assignment to its end."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import uvloop

from anabranch.protocol.ids import OperatorName
from anabranch.protocol.limits import Limits
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.live.link.last_words import detail_of, reason_of
from anabranch.runtime.live.link.link import Link
from anabranch.runtime.live.process.orphans import ORPHAN_EXIT_CODE
from anabranch.runtime.live.process.processes import OwnProcess
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Service, ServiceContext, Split
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.status import FinalCount
from anabranch.runtime.values.texts import original

TICK_S = 1.0
"""How often a service shows the agent that it lives."""


def services_of(pipeline: Pipeline) -> list[tuple[Service, tuple[str, ...]]]:
    """Each distinct service with the operators that name it, in the order of the operators."""
    found: dict[int, tuple[Service, tuple[str, ...]]] = {}
    for operator in pipeline.operators.values():
        end = operator.source or operator.sink
        service = end.service if end is not None else None
        if service is not None:
            _, names = found.get(id(service), (service, ()))
            found[id(service)] = (service, (*names, operator.name))
    return list(found.values())


def run_service(link_socket: socket.socket, assign: dict[str, Any], pipeline: Pipeline) -> NoReturn:
    """Serve until the service returns. Exits with 0, or with 1 after saying what failed."""
    order = msgspec.convert(assign, msg.AssignService)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(serve(link_socket, order, pipeline, OwnProcess())))


async def serve(
    link_socket: socket.socket, order: msg.AssignService, pipeline: Pipeline, process: OwnProcess
) -> int:
    """From the assignment to the last word; returns the exit code."""
    service, _ = services_of(pipeline)[order.index]
    context = _Context(order, pipeline, process)
    await context.attach(link_socket)
    alive = asyncio.get_running_loop().create_task(
        context.show_that_it_lives(), name="alive", context=clock.periodic()
    )
    try:
        await service.serve(context)
    except Exception as error:
        context.link.send(msg.Failed(reason=reason_of(error), detail=detail_of(error)))
        return 1
    else:
        context.link.send(FinalCount(id=service.name, operator=service.name))
        return 0
    finally:
        alive.cancel()
        await context.part()


class _Context(ServiceContext):
    def __init__(self, order: msg.AssignService, pipeline: Pipeline, process: OwnProcess) -> None:
        self.pipeline = order.pipeline
        self.operators = tuple(order.operators)
        operators = ((n, pipeline.operators[OperatorName(n)]) for n in self.operators)
        self.ends = {n: end for n, o in operators if (end := o.source or o.sink) is not None}
        self.run_dir = Path(original(order.run_dir))
        self.started_s = order.started_s
        self.limits = Limits(**order.limits)
        self.token = order.token
        self.former_address = order.former_address
        self.link: Link
        self._process = process
        self._closing = asyncio.Event()

    async def attach(self, link_socket: socket.socket) -> None:
        self.link = await Link.attach(link_socket, self._receive)
        self.link.closed.add_done_callback(self._exit_without_agent)

    async def part(self) -> None:
        """Close the link after the other end has received everything."""
        self.link.closed.remove_done_callback(self._exit_without_agent)
        await self.link.finish()

    async def show_that_it_lives(self) -> None:
        while True:
            self.link.send(msg.Waits())
            await asyncio.sleep(TICK_S)

    def address(self, text: str) -> None:
        self.link.send(msg.Ready(address=text))

    def delayed(self) -> None:
        self.link.send(msg.Delayed())

    async def publish(self, operator: str, splits: list[Split]) -> None:
        self.link.send(msg.Publish(operator=self._checked(operator), splits=splits))
        await self.link.drained()

    async def ended(self, operator: str) -> None:
        self.link.send(msg.Ended(operator=self._checked(operator)))
        await self.link.drained()

    @property
    def closing(self) -> bool:
        return self._closing.is_set()

    async def closed(self) -> None:
        await self._closing.wait()

    def _exit_without_agent(self, _closed: object) -> None:
        self._process.exit_now(ORPHAN_EXIT_CODE)

    def _checked(self, operator: str) -> str:
        if operator not in self.operators:
            raise ValueError(f"{operator!r} does not name this service; known: {self.operators}")
        return operator

    def _receive(self, body: bytes) -> None:
        message = msgspec.msgpack.decode(body, type=msg.Close)
        assert isinstance(message, msg.Close)
        self._closing.set()
