"""The event loop of one process of a world.

It has what asyncio's classes and the code of live runs ask of a loop; whatever would touch the
system (a socket, a thread, a signal) is done in the world, or not there at all, so that its use
raises `NotImplementedError`.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
from asyncio import events
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakSet

from anabranch.runtime.ports import clock
from anabranch.runtime.world.timeline import Timeline

CLOSES_MAX = 100
"""What waits for something even while it is closed is closed again, so often."""
THREAD_S = 200e-6
"""How long a thread of its executor works."""

Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]
Made = Callable[[], asyncio.BaseProtocol]


class Inherited(Protocol):
    """An end of a connection that is there before its protocol."""

    def begin(self, protocol: asyncio.BaseProtocol) -> None: ...


if TYPE_CHECKING:  # for which what is not there would be abstract
    _Loop = asyncio.BaseEventLoop
else:
    _Loop = asyncio.AbstractEventLoop


class VirtualHandle:
    """What is to be called, at a time or as soon as possible. Like one of asyncio, but cheap: there
    are some for each batch."""

    __slots__ = ("args", "callback", "context", "when_s")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
        when_s: float = 0.0,
    ) -> None:
        self.callback: Callable[..., object] | None = callback
        """None: it is cancelled."""
        self.args = args
        self.context = copy_context() if context is None else context
        self.when_s = when_s

    def cancel(self) -> None:
        self.callback, self.args = None, ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.when_s


class VirtualLoop(_Loop):
    """`name`: of the process. `on_error`: gets what a callback raised, unless the process has a
    handler of its own."""

    def __init__(
        self,
        timeline: Timeline,
        name: str,
        on_error: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self.name = name
        self.timeline: Final = timeline
        self.context: Final = copy_context()
        """In which what comes from outside is called: the process's own."""
        self.due_at: float | None = None
        self.free_at = timeline.now
        self.slowness = 1.0
        self.worked_s = 0.0
        self.dead = False
        """Nothing of it is called any more."""
        self.left: set[asyncio.Task[Any]] = set()
        """Of a dead one: its tasks. They are kept, since whatever they would do in the end, when
        nothing refers to them any more, they must not do in this world."""
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        """A world has hundreds of loops: to search for these among those of all costs more."""
        self._ready: deque[VirtualHandle] = deque()
        self._timers: list[tuple[float, int, VirtualHandle]] = []
        self._order = itertools.count()
        self._on_error = on_error
        self._handler: Handler | None = None
        self._signals: dict[int, Callable[[], object]] = {}
        timeline.add(self)

    # -- turns -----------------------------------------------------------------------------

    def turn(self) -> None:
        timers, ready = self._timers, self._ready
        now = self.timeline.now
        while timers and timers[0][0] <= now:
            ready.append(heapq.heappop(timers)[2])
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle.callback is not None:
                    self._call(handle, handle.callback)
                if self.dead:
                    break
        finally:
            events._set_running_loop(before)

    def _call(self, handle: VirtualHandle, callback: Callable[..., object]) -> None:
        try:
            handle.context.run(callback, *handle.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            told = {"message": f"an error in {callback!r}", "exception": error}
            self.call_exception_handler(told)

    def next_due(self) -> float | None:
        if self.dead:
            return None
        if self._ready:
            return self.timeline.now
        timers = self._timers
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def waiters(self) -> Iterable[str]:
        return sorted(f"{self.name}: {task.get_name()}" for task in self._pending())

    def _pending(self) -> set[asyncio.Task[Any]]:
        return {task for task in self._tasks if not task.done()}

    def rest(self, seconds: float) -> None:
        """It has no turn for so long, or until it `wakes`."""
        self.free_at = max(self.free_at, self.timeline.now) + seconds
        if self.due_at is not None:
            self.due_at = None  # or it would have the turn that is on the timeline
            self.timeline.wake(self, self.free_at)

    def wakes(self) -> None:
        """It rests no more."""
        self.free_at = self.timeline.now
        if (due_s := self.next_due()) is not None:
            self.timeline.wake(self, due_s)

    def kill(self) -> None:
        """As SIGKILL: from now on nothing of it is called."""
        if not self.dead:
            self.dead = True
            self.left = self._pending()
            self._ready.clear()
            self._timers.clear()
            self.timeline.remove(self)

    def forget(self) -> None:
        """The world has ended: clear away what a dead loop has left, so that Python does not do so
        at any time, and complain."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            while self.left:
                task = self.left.pop()
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close(task.get_coro())
        finally:
            events._set_running_loop(before)

    # -- what asyncio asks for -------------------------------------------------------------

    def time(self) -> float:
        return self.timeline.now

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self.dead

    def get_debug(self) -> bool:
        return False

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> VirtualHandle:
        handle = VirtualHandle(callback, args, context)
        if not self.dead:
            self._ready.append(handle)
            if self.due_at is None or self.due_at > self.timeline.now:
                self.timeline.wake(self, self.timeline.now)
        return handle

    def post(self, callback: Callable[..., object], *args: Any, at: float | None = None) -> None:
        """From outside: another process, the network, the leader of the world. It may be ahead of
        this one, which has its turn before that time then."""
        when = self.timeline.now if at is None else at
        self.call_at(when, callback, *args, context=self.context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> VirtualHandle:
        return self.call_at(self.timeline.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> VirtualHandle:
        timer = VirtualHandle(callback, args, context, when)
        if not self.dead and (self.timeline.periodic or not clock.is_periodic()):
            heapq.heappush(self._timers, (when, next(self._order), timer))
            self.timeline.wake(self, when)
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: Any = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.add(task)
        if self.dead:
            self.left.add(task)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Other turns come first, as if a thread did it; or one does."""
        if self.timeline.threads is not None:
            return self.timeline.threads.run(func, args)
        done = self.create_future()
        self.call_later(THREAD_S * self.slowness, _do, done, func, args)
        return done

    # -- connections -----------------------------------------------------------------------

    async def create_unix_connection(  # type: ignore[override]
        self, protocol_factory: Made, *, sock: Inherited
    ) -> tuple[Any, Any]:
        """Only over a connection that is there: others are made by the network."""
        protocol = protocol_factory()
        sock.begin(protocol)
        return sock, protocol

    # -- errors and signals ----------------------------------------------------------------

    def set_exception_handler(self, handler: Handler | None) -> None:
        self._handler = handler

    def get_exception_handler(self) -> Handler | None:
        return self._handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self._on_error(self.name, context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.dead:
            return
        if self._handler is None:
            self.default_exception_handler(context)
        else:
            self._handler(self, context)

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        self._signals[sig] = lambda: callback(*args)

    def remove_signal_handler(self, sig: int) -> bool:
        return self._signals.pop(sig, None) is not None

    def signal(self, sig: int) -> bool:
        """Send it a signal; whether it handles that."""
        if (handler := self._signals.get(sig)) is None:
            return False
        self.post(handler)
        return True


def _do(done: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if done.cancelled():
        return
    try:
        done.set_result(func(*args))
    except Exception as error:
        done.set_exception(error)


def _close(coro: Any) -> None:
    """Have its `finally` clauses done, from the inside out; whatever they raise does not count."""
    for _ in range(CLOSES_MAX):
        inmost = coro
        while inspect.iscoroutine(inner := inmost.cr_await) and inner.cr_frame is not None:
            inmost = inner
        with suppress(BaseException):
            inmost.close()
        if coro.cr_frame is None:
            return
