"""The services of a run: started before the instances, closed after them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import msgspec

from anabranch.runtime.ends import Service
from anabranch.runtime.failure import Failure
from anabranch.runtime.graph import Pipeline
from anabranch.runtime.live import messages as msg
from anabranch.runtime.live.boards import Boards
from anabranch.runtime.live.forker import Forker
from anabranch.runtime.live.process import Process
from anabranch.runtime.live.service import services_of
from anabranch.runtime.live.starter import Orders, Starter
from anabranch.runtime.live.tasks import Tasks
from anabranch.runtime.live.watch import describe_end, watch
from anabranch.runtime.status import FinalCount

LINGER_GRACE_S = 1.0
_decode = msgspec.msgpack.Decoder(msg.FromProcess).decode


@dataclass(slots=True)
class Attendant:
    service: Service
    operators: tuple[str, ...]
    index: int
    process: Process | None = None
    failed: msg.Failed | None = None
    address: str = ""
    goodbye: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    ended: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def name(self) -> str:
        return f"service {self.service.name}"


class Attendants:
    """`on_failure` is called when a service ends badly, or before it was closed."""

    def __init__(
        self,
        pipeline: Pipeline,
        boards: Boards,
        starter: Starter,
        forker: Forker,
        tasks: Tasks,
        on_failure: Callable[[Failure], None],
    ) -> None:
        found = enumerate(services_of(pipeline))
        self._all = [Attendant(service, names, i) for i, (service, names) in found]
        self._boards = boards
        self._starter = starter
        self._forker = forker
        self._tasks = tasks
        self._on_failure = on_failure
        self._closing = False

    def address_for(self, operator: str) -> str:
        return next((a.address for a in self._all if operator in a.operators), "")

    async def start(self, orders: Orders) -> None:
        """Return when every service has said its address. Raises `StartError`."""
        for attendant in self._all:
            await self._start(attendant, orders)

    async def close(self) -> None:
        """Tell all services that the instances have ended; return when they have, or lingered."""
        self._closing = True
        running = [a for a in self._all if a.process is not None and not a.ended.done()]
        for attendant in running:
            assert attendant.process is not None
            attendant.process.send(msg.Close())
        if running:
            linger_s = max(a.service.linger_s for a in running) + LINGER_GRACE_S
            await asyncio.wait([a.ended for a in running], timeout=linger_s)

    async def _start(self, attendant: Attendant, orders: Orders) -> None:
        process = await self._starter.take(attendant.name)
        process.name = attendant.name
        attendant.process = process
        ready = self._starter.expect(attendant.name)
        process.on_frame = lambda body: self._receive(attendant, body)
        self._tasks.start(f"watch {attendant.name}", self._watch(attendant, process))
        process.send(
            msg.AssignService(
                index=attendant.index,
                operators=list(attendant.operators),
                pipeline=orders.pipeline,
                run_dir=str(orders.run_dir),
                started_s=orders.started_s,
                token=orders.token,
                limits=asdict(orders.limits),
            )
        )
        attendant.address = await self._starter.wait(attendant.name, process, ready)

    def _receive(self, attendant: Attendant, body: bytes) -> None:
        match _decode(body):
            case msg.Ready(address=address):
                self._starter.note_ready(attendant.name, address)
            case msg.Publish(operator=operator, splits=splits):
                self._boards.publish(operator, splits)
            case msg.Ended(operator=operator):
                self._boards.end_service(operator)
            case msg.Failed() as failed:
                self._failed(attendant, failed)
            case FinalCount():
                attendant.goodbye.set_result(None)
            case other:
                raise ValueError(f"a service cannot say {type(other).__name__}")

    def _failed(self, attendant: Attendant, failed: msg.Failed) -> None:
        attendant.failed = failed
        if attendant.address and attendant.process is not None:
            # At once, not when it exits: instances will complain of its end in a moment.
            self._on_failure(describe_end(attendant.name, attendant.process, failed))

    async def _watch(self, attendant: Attendant, process: Process) -> None:
        await watch(process, attendant.goodbye, self._forker)
        attendant.ended.set_result(None)
        waiting = [o for o in attendant.operators if self._boards.is_served(o)]
        if attendant.goodbye.done() and (self._closing or not waiting):
            return
        failure = describe_end(attendant.name, process, attendant.failed)
        if attendant.goodbye.done():
            failure = Failure(f"{attendant.name} returned before it ended {', '.join(waiting)}")
        self._starter.note_ended(attendant.name, failure.message)
        self._on_failure(failure)
