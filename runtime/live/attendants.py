"""The services of a run: started before the instances, closed after them, resumed in between.

    process ends ── goodbye said ──▶ over          in time, if its sources have ended or the run is
                 ── said why ──▶ the run fails
                 ── otherwise ──▶ died, resumed    the same service and address; life + 1

The process of a service may die at any time, as that of an instance (see `lives`); only what a
service keeps by itself is no business of ours. A later life is told where the earlier ones have
listened, and may publish again what was published before: splits are numbered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import msgspec

from anabranch.runtime.ends import Service, Split
from anabranch.runtime.failure import Failure
from anabranch.runtime.live import lives
from anabranch.runtime.live import messages as msg
from anabranch.runtime.live.process import Process
from anabranch.runtime.live.roster import Death
from anabranch.runtime.live.service import services_of
from anabranch.runtime.live.starter import Orders, StartError
from anabranch.runtime.live.watch import describe_end, how_ended, watch_life
from anabranch.runtime.report import Event
from anabranch.runtime.status import FinalCount

if TYPE_CHECKING:
    from anabranch.runtime.live.agent import Agent

LINGER_GRACE_S = 1.0
_decode = msgspec.msgpack.Decoder(msg.FromProcess).decode


def _future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True)
class Life:
    """One process of a service, from its assignment to its end."""

    process: Process
    begun_s: float
    goodbye: asyncio.Future[None] = field(default_factory=_future)
    ended: asyncio.Future[None] = field(default_factory=_future)
    failed: msg.Failed | None = None


@dataclass(slots=True)
class Attendant:
    service: Service
    operators: tuple[str, ...]
    index: int
    address: str = ""
    number: int = 0
    """How many lives it has had, the present one included."""
    life: Life | None = None
    deaths: list[Death] = field(default_factory=list)
    """Without anything published in between."""
    last_split: dict[str, int] = field(default_factory=dict)
    """By operator, the highest number of a split that was published."""
    published: int = 0
    ready: asyncio.Future[None] = field(default_factory=_future)
    """Done when the first life to get so far has said its address."""
    over: asyncio.Future[None] = field(default_factory=_future)
    """No process of it runs, and none is to come."""

    @property
    def name(self) -> str:
        return f"service {self.service.name}"

    def news(self, operator: str, splits: Iterable[Split]) -> list[Split]:
        """Those that no earlier life has published."""
        last = self.last_split.get(operator, -1)
        new = [s for s in splits if s.get("number", last + 1) > last]
        self.last_split[operator] = max([last, *(s["number"] for s in new if "number" in s)])
        self.published += len(new)
        return new


class Attendants:
    """One task per service leads it through all its lives."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        found = enumerate(services_of(agent.pipeline))
        self._all = [Attendant(service, names, i) for i, (service, names) in found]
        self._orders: Orders
        self._closing = False
        self._given_up = False

    def address_for(self, operator: str) -> str:
        return next((a.address for a in self._all if operator in a.operators), "")

    async def start(self, orders: Orders) -> None:
        """Return when every service has said its address. Raises `StartError`."""
        self._orders = orders
        for attendant in self._all:
            self._agent.tasks.start(f"lives of {attendant.name}", self._lead(attendant))
            await attendant.ready

    async def close(self) -> None:
        """Tell all services that the instances have ended; return when they have, or lingered."""
        self._closing = True
        running = [a for a in self._all if not a.over.done()]
        for attendant in running:
            if attendant.life is not None:
                attendant.life.process.send(msg.Close())
        if running:
            linger_s = max(a.service.linger_s for a in running) + LINGER_GRACE_S
            await asyncio.wait([a.over for a in running], timeout=linger_s)

    def give_up(self) -> None:
        """The run ends everything now: what dies from now on stays dead."""
        self._given_up = True

    # -- lives -----------------------------------------------------------------------------

    async def _lead(self, attendant: Attendant) -> None:
        failure = None
        began_s = time.monotonic()
        pause_s = lives.PAUSE_FIRST_S
        while failure is None:
            try:
                await self._begin_life(attendant, began_s)
            except StartError as error:
                failure = await self._could_not_start(attendant, str(error), began_s)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, lives.PAUSE_MAX_S)
            else:
                await self._life_of(attendant).ended
                failure = self._why_in_vain(attendant)
                began_s, pause_s = time.monotonic(), lives.PAUSE_FIRST_S
            if attendant.life is not None and attendant.life.goodbye.done():
                break
        self._conclude(attendant, failure)

    async def _begin_life(self, attendant: Attendant, began_s: float) -> None:
        """Return when it is ready. Raises `StartError`."""
        starter = self._agent.starter
        attendant.life = None
        process = await starter.take(attendant.name)
        process.name = attendant.name
        attendant.number += 1
        life = attendant.life = Life(process, time.monotonic())
        ready = starter.expect(attendant.name)
        process.on_frame = lambda body: self._receive(attendant, life, body)
        self._agent.tasks.start(f"watch {attendant.name}", self._watch(attendant, life))
        process.send(self._assignment(attendant))
        if self._closing:
            process.send(msg.Close())
        attendant.address = await starter.wait(attendant.name, process, ready)
        if attendant.number > 1:
            passed_ms = 1000 * (time.monotonic() - began_s)
            self._write(attendant, "resumed", f"life {attendant.number} after {passed_ms:.0f} ms")
        if not attendant.ready.done():
            attendant.ready.set_result(None)

    def _assignment(self, attendant: Attendant) -> msg.AssignService:
        orders = self._orders
        return msg.AssignService(
            index=attendant.index,
            operators=list(attendant.operators),
            pipeline=orders.pipeline,
            run_dir=str(orders.run_dir),
            started_s=orders.started_s,
            token=orders.token,
            limits=asdict(orders.limits),
            former_address=attendant.address,
        )

    async def _watch(self, attendant: Attendant, life: Life) -> None:
        """One life to its end. What it printed last is still shown, but nobody waits for it."""
        process = life.process
        await watch_life(process, life.goodbye, self._agent.forker)
        process.link.close()
        if not (life.goodbye.done() or life.failed or self._given_up):
            self._note_death(attendant, process)
        if self._is_hopeless(attendant):
            await process.last_words()  # they may be the reason why the run fails
        told = str(describe_end(attendant.name, process, life.failed))
        self._agent.starter.note_ended(attendant.name, told)
        life.ended.set_result(None)
        await process.last_words()
        process.close()

    def _note_death(self, attendant: Attendant, process: Process) -> None:
        now, how = time.monotonic(), how_ended(process)
        self._write(attendant, "died", how)
        deaths = attendant.deaths
        if deaths and attendant.published > deaths[-1].done:
            deaths.clear()
        if attendant.address and now - self._life_of(attendant).begun_s >= lives.IDLE_LIFE_S:
            return
        attendant.deaths = lives.recent(deaths, now)
        attendant.deaths.append(Death(now, how, attendant.published))

    def _life_of(self, attendant: Attendant) -> Life:
        assert attendant.life is not None, f"{attendant.name} has no process"
        return attendant.life

    def _is_hopeless(self, attendant: Attendant) -> bool:
        """Whether its next life would end as the present one has."""
        failed = attendant.life is not None and attendant.life.failed is not None
        return failed or len(attendant.deaths) > lives.RESUMES_MAX

    def _why_in_vain(self, attendant: Attendant) -> Failure | None:
        """Why it is not resumed once more; None if it is."""
        life = self._life_of(attendant)
        if not self._is_hopeless(attendant):
            return None
        failure = describe_end(attendant.name, life.process, life.failed)
        if life.failed is None:
            failure = Failure(lives.in_vain(attendant.name, attendant.deaths), failure.detail)
        return failure

    async def _could_not_start(
        self, attendant: Attendant, why: str, began_s: float
    ) -> Failure | None:
        """Why that is the end of it; None if it is to be tried again."""
        life = attendant.life
        died = life is not None and life.process.exit_code is not None
        if life is not None:
            await life.ended  # killed, if it was too slow
        if self._is_hopeless(attendant):
            return self._why_in_vain(attendant)
        if not attendant.ready.done() and life is not None and life.goodbye.done():
            return Failure(f"{attendant.name} returned before it said where it listens")
        if died:
            return None
        if attendant.address:
            self._write(attendant, "start_failed", why)
        tried_s = time.monotonic() - began_s
        if attendant.address and tried_s <= lives.START_TRIES_S:
            return None
        return Failure(why)

    def _conclude(self, attendant: Attendant, failure: Failure | None) -> None:
        attendant.over.set_result(None)
        waiting = [o for o in attendant.operators if self._agent.boards.is_served(o)]
        if failure is None and waiting and not (self._closing or self._given_up):
            failure = Failure(f"{attendant.name} returned before it ended {', '.join(waiting)}")
        if failure is None or self._given_up:
            return
        if attendant.ready.done():
            self._agent.fail(failure)
        else:
            attendant.ready.set_exception(StartError(str(failure)))

    # -- what services say -----------------------------------------------------------------

    def _receive(self, attendant: Attendant, life: Life, body: bytes) -> None:
        match _decode(body):
            case msg.Ready(address=address):
                self._agent.starter.note_ready(attendant.name, address)
            case msg.Publish(operator=operator, splits=splits):
                self._publish(attendant, operator, splits)
            case msg.Ended(operator=operator):
                self._agent.boards.end_service(operator)
            case msg.Failed() as failed:
                life.failed = failed
                if attendant.ready.done():
                    # At once, not when it exits: instances will complain of its end in a moment.
                    self._agent.fail(describe_end(attendant.name, life.process, failed))
            case FinalCount():
                life.goodbye.set_result(None)
            case other:
                raise ValueError(f"a service cannot say {type(other).__name__}")

    def _publish(self, attendant: Attendant, operator: str, splits: list[Split]) -> None:
        boards = self._agent.boards
        new = attendant.news(operator, splits)
        if attendant.number == 1 or boards.is_served(operator):
            boards.publish(operator, new)

    def _write(self, attendant: Attendant, kind: str, detail: str) -> None:
        """An event of the report."""
        operator = attendant.operators[0]
        self._agent.recorder.note(
            Event(
                t=self._agent.now_s,
                operator=operator,
                kind=kind,
                instances=len(self._agent.roster.active(operator)),
                instance=attendant.name,
                detail=detail,
            )
        )
