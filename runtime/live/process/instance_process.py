"""The lifetime of a process from its assignment to its exit: build the instance, run it, report."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import math
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from anabranch.protocol import events
from anabranch.protocol.copies import FencedError
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.limits import Limits
from anabranch.protocol.states import Idle
from anabranch.runtime.live.copies.client import JournalCopies
from anabranch.runtime.live.instance.agent_client import AgentClient
from anabranch.runtime.live.instance.beginning import begin_patiently
from anabranch.runtime.live.instance.instance import Instance
from anabranch.runtime.live.instance.profile import profile_of
from anabranch.runtime.live.journal.journal import JournalError
from anabranch.runtime.live.link.last_words import detail_of, reason_of
from anabranch.runtime.live.link.link import Link
from anabranch.runtime.live.link.messages import (
    Assign,
    CopyComplete,
    Decide,
    Delayed,
    Failed,
    HasMoved,
    Order,
    Pin,
    Ready,
    Spawned,
)
from anabranch.runtime.live.process.listening import address_on, take_broker
from anabranch.runtime.live.process.orphans import ORPHAN_EXIT_CODE
from anabranch.runtime.live.process.processes import OwnProcess
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.spans import within
from anabranch.runtime.plan.ends import RunContext, passing
from anabranch.runtime.plan.spec import Span
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.sockets import take, transport
from anabranch.runtime.processing.plain_calls import forget_loops, note_copy
from anabranch.runtime.reporting.failure import LifeOver
from anabranch.runtime.reporting.status import id_from_wire
from anabranch.runtime.storage.forks import keep_files_from_children
from anabranch.runtime.storage.patience import Patience
from anabranch.runtime.storage.shared_file import SharedFileError
from anabranch.runtime.storage.sidecar import SidecarError
from anabranch.runtime.values.kinds import Cause, EventKind
from anabranch.runtime.values.texts import original
from anabranch.runtime.values.working_folder import working_folder

GC_THRESHOLD = 50_000
"""Tuples come and go by the thousand; looking for cycles after every 700 of them costs much."""


FILES_TO_BEGIN = 16
"""For the loop, the journal, the address, the first neighbours."""
FILES_PERIOD_S = 0.1
FETCH_S = 20.0
"""After so long in vain the agent chooses another holder."""
COPIES_S = 2.0
"""So long may it take to compare the journal with its copies before the agent hears of it."""
SETTLE_S = 3.0
"""For the last words to neighbours, where this process has to see to it that they come."""

log = logging.getLogger("anabranch.waits")

_OURS = str(Path(__file__).parents[2]) + os.sep
_LOOPS = (str(Path(asyncio.__file__).parent) + os.sep, "uvloop")


def run_instance(
    link_socket: socket.socket, assign: dict[str, Any], pipeline: Pipeline
) -> NoReturn:
    """Be the assigned instance until it has left or finished. Ends the process."""
    gc.set_threshold(GC_THRESHOLD)
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s", stream=sys.stderr)
    os.register_at_fork(after_in_child=_be_a_child)
    keep_files_from_children()
    task = msgspec.convert(assign, Assign)
    clock.tell_time_of(task.ahead_s)
    if task.incarnation > 1:  # the first one may be refused
        wait_for_files(str(id_from_wire(task.id)))
    sys.exit(_run(live(link_socket, task, pipeline, OwnProcess())))


def wait_for_files(me: str) -> None:
    """A next incarnation that can open none would die before it has begun, in vain, again and
    again. The agent tries another process if it takes too long."""
    told = False
    while (error := _missing_files()) is not None:
        if not told:
            why = f"{error.strerror}; raise the limit (ulimit -n), or close some"
            log.warning("%s cannot begin and waits: %s", me, why)
            told = True
        clock.pause(FILES_PERIOD_S)


def _missing_files() -> OSError | None:
    with contextlib.ExitStack() as opened:
        try:
            for _ in range(FILES_TO_BEGIN):
                opened.enter_context(open(os.devnull, "rb"))
        except OSError as error:
            if not passing(error):
                raise
            return error
    return None


def _run(main: Any) -> int:
    loop_factory = None
    try:
        import uvloop

        loop_factory = uvloop.new_event_loop
    except ImportError:  # no wheel for this system: slower, otherwise the same
        pass
    forget_loops()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        try:
            return int(runner.run(main))
        except Exception:
            raise
        except BaseException:
            # An interrupt, out of a function of the user's. To close the loop would be to wait for
            # tasks that go on half, or never.
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)


def _be_a_child() -> None:
    """In processes that functions fork, such as those of a `multiprocessing.Pool`: it ends them
    with SIGTERM and waits, for ever if they take it as we do."""
    note_copy()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


async def live(
    link_socket: socket.socket, task: Assign, pipeline: Pipeline, process: OwnProcess
) -> int:
    """From the assignment to the last word; returns the exit code."""
    agent_client = AgentClient()
    link = await Link.attach(link_socket, agent_client.receive)
    agent_client.attach(link)
    me = id_from_wire(task.id)
    if task.span is not None:
        pipeline.operators.update(within(pipeline.operators, Span(*task.span)))
    try:
        take_broker()
        if task.tls:
            _secure(Path(original(task.tls)))
        instance = await _instance(task, me, pipeline, agent_client, process.boot)
        process.has(instance)
        _wire(agent_client, instance)
        asyncio.get_running_loop().set_exception_handler(_ending(instance))
        # A SIGTERM to a single process asks the instance to leave; a keeper stays.
        leave = functools.partial(instance.orders.decide, "leave", 1)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave)
        is_new = instance.is_new
        process.in_children(instance.neighbourhood.close_copies)
        listen = functools.partial(instance.neighbourhood.listen, _address(task, pipeline))
        address = await instance.patience.outlast(listen)
        instance.resume()
        begin = functools.partial(_begin, instance, agent_client, address, task)
        was_unknown = not task.was_ready and task.order  # no other host may have anything of it
        if was_unknown or (is_new and instance.profile.context.durable == "power"):
            instance.lifetime.spawn(_begin_when_kept(instance, begin), "begin")
        else:
            begin()
        await _until_over(instance, link, process)
    except LifeOver as error:
        agent_client.send(Failed(reason=str(error), again=error.cause))
        code = 1
    except MemoryError:  # not of a function of the user's
        told = Failed(reason="has run out of memory", again=Cause.OUT_OF_MEMORY)
        agent_client.send(told)
        code = 1
    except Exception as error:
        again = Cause.SYSTEM if _may_pass(error) else None
        damaged = isinstance(error, JournalError | SharedFileError | SidecarError)
        said = Failed(
            reason=reason_of(error), detail=detail_of(error), again=again, damaged=damaged
        )
        agent_client.send(said)
        code = 1
    else:
        agent_client.send(instance.final_count())
        code = 0
    await transport().settle(SETTLE_S)
    await link.finish()
    return code


def _secure(folder: Path) -> None:
    """From now on streams to instances of other hosts, and from them, have the certificate in this
    folder. Raises `LifeOver`."""
    from anabranch.runtime.live.channel.secured import SecuredTransport
    from anabranch.runtime.live.hosts.tls import TlsError

    try:
        take(SecuredTransport(transport(), folder))
    except TlsError as error:  # others may be put there just now
        raise LifeOver(str(error)) from None


async def _instance(
    task: Assign, me: InstanceId, pipeline: Pipeline, agent_client: AgentClient, boot: str
) -> Instance:
    journal = Path(original(task.journal)) if task.journal else None
    context = _context(task, me, pipeline, agent_client)
    profile = profile_of(
        me,
        pipeline,
        context,
        task.in_vain,
        journaled=journal is not None,
        was_ready=task.was_ready,
    )

    def delayed() -> None:
        agent_client.send(Delayed())

    patience = Patience(str(me), agent_client.note, delayed)
    copies = None
    if journal is not None and task.order:
        copies = await patience.outlast(
            functools.partial(_copies, task, me, pipeline, journal, agent_client, boot)
        )
    instance = Instance(
        profile,
        await begin_patiently(profile, journal, patience, copies),
        agent_client=agent_client,
        patience=patience,
        seed=task.seed,
        scaling=task.scaling,
        heritage=task.heritage,
    )
    instance.scaling.dry_run = task.dry_run
    for moved in task.moved:
        _move(instance, moved)
    return instance


async def _copies(
    task: Assign,
    me: InstanceId,
    pipeline: Pipeline,
    journal: Path,
    agent_client: AgentClient,
    boot: str,
) -> JournalCopies:
    """Once the journal is here, and lacks nothing that a copy has. That may take as long as hosts
    are away, and the agent is told. Raises `LifeOver` if another holder may have the journal."""
    waits_since_s = math.inf

    def note(told: str) -> None:
        nonlocal waits_since_s
        waits_since_s = clock.monotonic() if told else math.inf
        agent_client.note(EventKind.WAITS if told else EventKind.GOES_ON, told)

    copies = JournalCopies(
        me,
        task.incarnation,
        task.token,
        order=task.order,
        holders=dict(task.copies),
        complete=task.complete,
        boot=boot,
        shows_life=pipeline.give_up_after_s is not None,
        completed=lambda order, host: agent_client.send(CopyComplete(order=order, host=host)),
        note=note,
    )
    agent_client.on_holders = lambda told: copies.set_holders(told.order, dict(told.holders))
    if task.fetch:
        work = copies.fetch(journal, task.fetch)
    else:
        # Without a complete copy there is only the journal itself.
        work = copies.prepare(journal, was_ready=task.was_ready and bool(task.complete))
    prepared = asyncio.ensure_future(work)
    while not (await asyncio.wait([prepared], timeout=COPIES_S))[0]:
        agent_client.send(Delayed())
        if task.fetch and clock.monotonic() - waits_since_s > FETCH_S:
            prepared.cancel()
            raise LifeOver(f"cannot get its journal from {task.fetch}")
    try:
        prepared.result()
    except FencedError as error:
        raise LifeOver(str(error)) from None
    return copies


def _move(instance: Instance, moved: HasMoved) -> None:
    instance.neighbourhood.move(id_from_wire(moved.id), moved.incarnation, moved.address)


def _begin(instance: Instance, agent_client: AgentClient, address: str, task: Assign) -> None:
    """An earlier incarnation may have kept what it was, and died before it got the rest."""
    agent_client.begin()
    agent_client.send(Ready(address=address))
    if task.bootstrap is not None and isinstance(instance.membership.state, Idle):
        _found(instance, task)


async def _begin_when_kept(instance: Instance, begin: Callable[[], None]) -> None:
    """An instance that has been ready is resumed from its journal. So that has to be there after a
    loss of power, too, or on another host, or it would count as lost."""
    if instance.commits is not None:
        await instance.commits.committed(at_once=True)
    begin()


def _may_pass(error: Exception) -> bool:
    """Whether a next incarnation may fare better. Python has no kind of error for a thread that
    cannot be made, for which it takes memory and a place among the processes of the user: it is
    known by where it comes from."""
    if isinstance(error, RuntimeError):
        frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
        return any(frame.f_code is threading.Thread.start.__code__ for frame in frames)
    return isinstance(error, OSError) and passing(error)


def _ending(instance: Instance) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """What a callback of ours raises is the end of this incarnation: what it was about is left half
    done, and would be recorded like that. Callbacks of others, such as a library's, are
    reported."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "handle" in context and isinstance(error, Exception) and _is_of_ours(error):
            instance.lifetime.fail(error)
        else:
            loop.default_exception_handler(context)

    return handle


def _is_of_ours(error: Exception) -> bool:
    """Whether the loop has called a function of ours that raised it."""
    frames = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))
    begun_in = next((name for name in frames if not name.startswith(_LOOPS)), "")
    return begun_in.startswith(_OURS)


async def _until_over(instance: Instance, link: Link, process: OwnProcess) -> None:
    """Until the protocol lets the instance go. Without the agent the process ends at once: whatever
    is in work would be cancelled half done, and what is left of it be recorded."""
    running = asyncio.ensure_future(instance.run())
    either: list[asyncio.Future[Any]] = [running, link.closed]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        process.exit_now(ORPHAN_EXIT_CODE)
    running.result()


def _wire(agent_client: AgentClient, instance: Instance) -> None:
    def spawned(answer: Spawned) -> None:
        children = {id_from_wire(i): address for i, address in answer.children}
        instance.neighbourhood.learn(children)
        if children:
            instance.orders.children_ready(frozenset(children))
        else:
            instance.membership.feed(events.SpawnFailed(answer.reason))
            agent_client.note(EventKind.SPAWN_FAILED, answer.reason)

    def decide(decision: Decide) -> None:
        instance.orders.decide(decision.action, decision.n, decision.host)

    def order(order: Order) -> None:
        instance.scaling.ordered(order.act, insists=order.insists)

    def pin(pin: Pin) -> None:
        instance.scaling.pinned = pin.holds

    agent_client.on_spawned = spawned
    agent_client.on_leave_answer = instance.orders.departure.answered
    agent_client.on_decide = decide
    agent_client.on_order = order
    agent_client.on_pin = pin
    agent_client.on_end_input = instance.pump.end_input
    agent_client.on_moved = functools.partial(_move, instance)


def _context(
    task: Assign, me: InstanceId, pipeline: Pipeline, agent_client: AgentClient
) -> RunContext:
    durable = pipeline.durable_of(me.operator)
    return RunContext(
        pipeline=task.pipeline,
        operator=me.operator,
        instance=str(me),
        run_dir=Path(original(task.run_dir)),
        started_s=task.started_s,
        limits=Limits(**task.limits),
        service_address=task.service_address,
        token=task.token,
        incarnation=task.incarnation,
        state_dir=Path(original(task.state_dir)) if task.state_dir else None,
        durable=durable,
        folder=working_folder(),
        stays_open=task.stays_open,
        note=agent_client.hear_end,
    )


def _address(task: Assign, pipeline: Pipeline) -> str:
    """The same for all incarnations, since neighbours have it."""
    if task.address:
        return task.address
    if task.transport == "unix":
        # By numbers: names of operators may be too long for the path of a socket.
        operator, number, *_ = task.id
        place = list(pipeline.operators).index(operator)
        return f"unix:{task.run_dir}/{place}.{number}.sock"
    return address_on(task.host)


def _found(instance: Instance, task: Assign) -> None:
    bootstrap = task.bootstrap
    assert bootstrap is not None
    succs = {id_from_wire(i): address for i, address in bootstrap.succs}
    instance.neighbourhood.learn(succs)
    preds = frozenset(map(id_from_wire, bootstrap.preds))
    me = instance.me
    founders = instance.profile.operator.instances_at_start
    siblings = [InstanceId(me.operator, n) for n in range(founders)]
    instance.orders.found(frozenset(succs), preds, siblings, keeper=bootstrap.keeper)
