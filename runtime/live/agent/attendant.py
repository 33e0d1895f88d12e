"""Leads one service of a run through all its incarnations.

    process ends ── goodbye said ──▶ over          in time, if its sources have ended or the run is
                 ── said why ──▶ the run fails
                 ── otherwise ──▶ died, resumed    the same service and address; incarnation + 1

The process of a service may die at any time, as that of an instance (see `supervisor`); only what a
service keeps by itself is no business of ours. A later incarnation gets where the earlier ones
have listened, and may publish again what was published before: splits are numbered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

import msgspec

from anabranch.runtime.live.agent.boards import Boards
from anabranch.runtime.live.agent.deaths import Deaths
from anabranch.runtime.live.agent.host_sites import HOME, HostSite
from anabranch.runtime.live.agent.outcome import Course
from anabranch.runtime.live.agent.process_exit import describe_end, how_ended, watch_process
from anabranch.runtime.live.agent.run_events import RunEvents
from anabranch.runtime.live.agent.starter import Starter, StartError, StartOrders, Tries
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.live.process.process import Process
from anabranch.runtime.plan.ends import Service, Split
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.failure import Failure
from anabranch.runtime.reporting.status import FinalCount
from anabranch.runtime.values.kinds import Cause, Ending, EventKind
from anabranch.runtime.values.texts import carried

_decode = msgspec.msgpack.Decoder(msg.FromProcess).decode


def _future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True)
class Incarnation:
    """One process of a service, from its assignment to its end. `operator`: the first of those that
    it serves; `text`: its name."""

    operator: str
    text: str
    process: Process
    begun_s: float
    is_ready: bool = False
    goodbye: asyncio.Future[None] = field(default_factory=_future)
    ended: asyncio.Future[None] = field(default_factory=_future)
    failed: msg.Failed | None = None
    heard_s: float = 0.0
    """When it last sent something."""
    doubt: Ending | None = None
    """Why the agent itself has ended it."""
    host: str = HOME

    @property
    def end(self) -> Ending:
        """How it has ended, or would if that was now."""
        return self.doubt or how_ended(self.process)


class Publications:
    """Splits that a service publishes, each once: later incarnations may send them again."""

    def __init__(self, boards: Boards, operators: tuple[str, ...]) -> None:
        self._boards = boards
        self._operators = operators
        self._last: dict[str, int] = {}
        """By operator, the highest number of a split that was published."""
        self.count = 0

    @property
    def waiting(self) -> list[str]:
        """Operators for which something may still be published."""
        return [o for o in self._operators if self._boards.is_served(o)]

    def publish(self, operator: str, splits: Iterable[Split], *, is_first: bool) -> None:
        """`is_first`: by the first incarnation."""
        new = self._new_ones(operator, splits)
        if is_first or self._boards.is_served(operator):
            self._boards.publish(operator, new)

    def end(self, operator: str) -> None:
        self._boards.end_service(operator)

    def _new_ones(self, operator: str, splits: Iterable[Split]) -> list[Split]:
        last = self._last.get(operator, -1)
        new = [s for s in splits if s.get("number", last + 1) > last]
        self._last[operator] = max([last, *(s["number"] for s in new if "number" in s)])
        self.count += len(new)
        return new


class Attendant:
    """`index`: of `service` among those of the pipeline."""

    def __init__(
        self,
        service: Service,
        operators: tuple[str, ...],
        index: int,
        *,
        starter: Starter,
        site: HostSite,
        tasks: Tasks,
        boards: Boards,
        run_events: RunEvents,
        course: Course,
    ) -> None:
        self.service = service
        self.operators = operators
        self.name = f"service {service.name}"
        self._key = f"{self.name} {index}"
        """Several services may have one name."""
        self.address = ""
        self.ready = _future()
        """Done when the first incarnation to get so far has reported its address."""
        self.over = _future()
        """No process of it runs, and none is to come."""
        self._starter = starter
        self._site = site
        self._tasks = tasks
        self._run_events = run_events
        self._course = course
        self._index = index
        self._number = 0
        """How many incarnations it has had, the present one included."""
        self._incarnation: Incarnation | None = None
        """None: there is no process yet."""
        self._deaths = Deaths()
        self._publications = Publications(boards, operators)
        self._closing = False
        self._given_up = False

    def start(self, orders: StartOrders) -> None:
        self._tasks.start(f"incarnations of {self.name}", self._lead(orders))

    @property
    def present(self) -> Incarnation | None:
        """The process that is ready and has not ended; None if there is none."""
        one = self._incarnation
        return one if one is not None and one.is_ready and not one.ended.done() else None

    def close(self) -> None:
        """The instances have ended: it may, too."""
        self._closing = True
        if self._incarnation is not None:
            self._incarnation.process.send(msg.Close())

    def give_up(self) -> None:
        """What dies from now on stays dead."""
        self._given_up = True

    # -- incarnations -----------------------------------------------------------------------------

    async def _lead(self, orders: StartOrders) -> None:
        failure = None
        tries = Tries()
        while failure is None and not self._said_goodbye and not self._given_up:
            try:
                incarnation = await self._begin_incarnation(orders, tries)
            except StartError as error:
                tries.note(error)
                failure = await self._why_not_again(str(error), tries)
                await tries.pause()
            else:
                await incarnation.ended
                failure = self._why_hopeless(incarnation)
                tries = Tries()
        self._conclude(failure)

    @property
    def _said_goodbye(self) -> bool:
        return self._incarnation is not None and self._incarnation.goodbye.done()

    async def _begin_incarnation(self, orders: StartOrders, tries: Tries) -> Incarnation:
        """Return when it is ready. Raises `StartError`."""
        self._incarnation = None
        process = await self._starter.take(self.name, self._site)
        process.name = self.name
        self._number += 1
        incarnation = self._incarnation = Incarnation(
            self.operators[0], self.name, process, clock.monotonic()
        )
        ready = self._starter.expect(self._key)
        process.on_frame = lambda body: self._receive(incarnation, body)
        self._tasks.start(f"watch {self.name}", self._watch(incarnation))
        process.send(self._assignment(orders))
        if self._closing:
            process.send(msg.Close())
        self.address = await self._starter.wait(self._key, process, ready, self._site)
        if self._number > 1:
            told = f"incarnation {self._number} after {1000 * tries.passed_s:.0f} ms"
            self._write(EventKind.RESUMED, told)
        if not self.ready.done():
            self.ready.set_result(None)
        return incarnation

    def _assignment(self, orders: StartOrders) -> msg.AssignService:
        return msg.AssignService(
            index=self._index,
            operators=list(self.operators),
            pipeline=orders.pipeline,
            run_dir=carried(orders.run_dir),
            started_s=orders.started_s,
            token=orders.token,
            limits=asdict(orders.limits),
            former_address=self.address,
        )

    async def _watch(self, incarnation: Incarnation) -> None:
        """One incarnation to its end. What it printed last is still shown, but not waited for."""
        process = incarnation.process
        await watch_process(process, incarnation.goodbye, self._site.processes)
        process.link.close()
        if not (incarnation.goodbye.done() or incarnation.failed or self._given_up):
            self._note_death(incarnation)
        if self._is_hopeless(incarnation):
            await process.last_words()  # they may be the reason why the run fails
        told = str(describe_end(self.name, process, incarnation.failed))
        self._starter.note_ended(self._key, told)
        incarnation.ended.set_result(None)
        await process.last_words()
        process.close()

    def _note_death(self, incarnation: Incarnation) -> None:
        end = incarnation.end
        self._write(EventKind.DIED, end.how, end.cause)
        lived_s = clock.monotonic() - incarnation.begun_s
        self._deaths.note(end, self._publications.count, lived_s, busy=not incarnation.is_ready)
        if (often := self._deaths.often) is not None:
            self._write(EventKind.DIES_OFTEN, often, end.cause)

    def _is_hopeless(self, incarnation: Incarnation) -> bool:
        """Whether its next incarnation would end as this one has."""
        return incarnation.failed is not None or self._deaths.too_many

    def _why_hopeless(self, incarnation: Incarnation) -> Failure | None:
        """Why it is not resumed once more; None if it is."""
        failure = describe_end(self.name, incarnation.process, incarnation.failed)
        if incarnation.failed is not None:
            return failure
        if self._deaths.too_many:
            return Failure(self._deaths.told(self.name), failure.detail)
        return None

    async def _why_not_again(self, why: str, tries: Tries) -> Failure | None:
        """What did not get ready: why that is the end of it; None if it is tried again."""
        incarnation, may_again = self._incarnation, self.ready.done()
        if incarnation is None:
            died = False
        else:
            # Otherwise it was too slow, and is killed.
            died = incarnation.process.exit_code is not None
            await incarnation.ended
            if self._is_hopeless(incarnation):
                return self._why_hopeless(incarnation)
            if incarnation.goodbye.done():
                early = Failure(f"{self.name} returned before it said where it listens")
                return None if may_again else early
        if may_again and not died:
            self._write(EventKind.START_FAILED, why)
        may_again = may_again or died
        return None if may_again and not tries.are_enough else Failure(why)

    def _conclude(self, failure: Failure | None) -> None:
        self.over.set_result(None)
        waiting = self._publications.waiting
        if failure is None and waiting and not self._closing:
            failure = Failure(f"{self.name} returned before it ended {', '.join(waiting)}")
        if failure is None or self._given_up:
            return
        if self.ready.done():
            self._course.fail(failure)
        else:
            self.ready.set_exception(StartError(str(failure)))

    # -- what it sends ----------------------------------------------------------------------

    def _receive(self, incarnation: Incarnation, body: bytes) -> None:
        incarnation.heard_s = clock.monotonic()
        match _decode(body):
            case msg.Ready(address=address):
                incarnation.is_ready = True
                self._starter.note_ready(self._key, address)
            case msg.Waits():
                pass  # it only shows that the service lives
            case msg.Delayed():
                self._starter.note_delayed(self._key)
            case msg.Publish(operator=operator, splits=splits):
                self._publications.publish(operator, splits, is_first=self._number == 1)
            case msg.Ended(operator=operator):
                self._publications.end(operator)
            case msg.Failed() as failed:
                incarnation.failed = failed
                if self.ready.done():
                    # At once, not when it exits: instances will complain of its end in a moment.
                    self._course.fail(describe_end(self.name, incarnation.process, failed))
            case FinalCount():
                incarnation.goodbye.set_result(None)
            case other:
                raise ValueError(f"a service cannot say {type(other).__name__}")

    def _write(self, kind: EventKind, detail: str, cause: Cause | None = None) -> None:
        """An event of the report."""
        self._run_events.note(self.operators[0], kind, detail, instance=self.name, cause=cause)
