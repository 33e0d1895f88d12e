"""One end of a stream over a broker, as a transport of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from anabranch.runtime.mqtt.brokered_end import BrokeredEnd
from anabranch.runtime.mqtt.segments import StreamSegment
from anabranch.runtime.ports import clock

HIGH_BYTES, LOW_BYTES = 256 * 2**10, 64 * 2**10
"""Written and not acknowledged: from when on, and until when, nothing more should be written."""
PEER = ("the broker", 0)
CLOSE_S = 20.0
"""For the other end to take what was written before the stream was closed."""


class BrokeredStream(asyncio.Transport):
    """`made`: makes the protocol, once both ends have received from each other: then `opened` is
    done. `publish`: sends a segment. `over`: is called when nothing more is received or sent."""

    def __init__(
        self,
        end: BrokeredEnd,
        made: Callable[[], asyncio.Protocol],
        publish: Callable[[bytes], None],
        over: Callable[[], None],
    ) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self.protocol: asyncio.Protocol | None = None
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.dials = end.dials
        self._end = end
        self._made = made
        self._publish = publish
        self._over = over
        self._is_closing = self._is_over = self._is_held_up = False
        self._is_paused = False
        self._pumping: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        """When it is up; the timers of uvloop do not all say it."""
        self._close_by_s = float("inf")

    def begin(self) -> None:
        self._pump()

    def hear(self, segment: StreamSegment) -> None:
        self._end.hear(segment, clock.monotonic())
        self._pump()

    def reconnected(self) -> None:
        self._end.reconnected(clock.monotonic())
        self._pump()

    # -- asyncio -------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing and data:
            self._end.write(bytes(data))
            self._pump_soon()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            now = clock.monotonic()
            self._close_by_s = now + CLOSE_S
            self._end.close(now)
            self._pump_soon()

    def abort(self) -> None:
        self._is_closing = True
        self._end.reset("given up")
        self._pump_soon()

    def is_closing(self) -> bool:
        return self._is_closing or self._is_over

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._pump_soon()

    def is_reading(self) -> bool:
        return not self._is_paused

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return PEER if name == "peername" else default

    def get_write_buffer_size(self) -> int:
        return 0 if self._is_over else self._end.waiting_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return LOW_BYTES, HIGH_BYTES

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    # -- what has come and what is to go -------------------------------------------------------

    def _pump_soon(self) -> None:
        """Once for all that is written in this turn of the loop."""
        if self._pumping is None and not self._is_over:
            self._pumping = self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        if self._pumping is not None:
            self._pumping.cancel()
            self._pumping = None
        if self._is_over:
            return
        if self._end.is_open and self.protocol is None and not self._is_closing:
            self.protocol = self._made()
            self.protocol.connection_made(self)
            if not self.opened.done():
                self.opened.set_result(None)
        self._hand_over()
        self._end.flush(clock.monotonic())
        said, self._end.out = self._end.out, []
        for segment in said:
            self._publish(segment.encode())
        self._hold_up()
        if self._end.over and (self._end.broken or self._end.has_ended or self._is_closing):
            self._finish()
        else:
            self._wait()

    def _hand_over(self) -> None:
        if self._is_closing:
            self._end.read()  # nothing wants it any more
        elif not self._is_paused and self.protocol is not None and (data := self._end.read()):
            self.protocol.data_received(data)

    def _hold_up(self) -> None:
        waiting, protocol = self._end.waiting_bytes, self.protocol
        if protocol is None:
            return
        if not self._is_held_up and waiting > HIGH_BYTES:
            self._is_held_up = True
            protocol.pause_writing()
        elif self._is_held_up and waiting <= LOW_BYTES:
            self._is_held_up = False
            protocol.resume_writing()

    def _wait(self) -> None:
        due_s = min(self._end.due_s(), self._close_by_s)
        if self._end.over:  # until the rest is read
            return
        at = self._loop.time() + max(0.0, due_s - clock.monotonic())
        if self._timer is None or self._timer_s > at + 1e-3:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._timer_s = self._loop.call_at(at, self._tick), at

    def _tick(self) -> None:
        self._timer = None
        now = clock.monotonic()
        if now >= self._close_by_s:
            self._end.reset("the other end does not take it")
        elif now >= self._end.due_s():
            self._end.tick(now)
        self._pump()

    def _finish(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._over()
        self.ended.set_result(None)
        why = self._end.broken
        if not self.opened.done():
            refused = ConnectionRefusedError(0, why or "it was closed")
            self.opened.set_exception(refused)
            self.opened.exception()  # seen: of a stream that others have dialled, no task waits
        if self.protocol is not None:
            given_up = self._is_closing or not why
            error = None if given_up else ConnectionResetError(0, why)
            self._loop.call_soon(self.protocol.connection_lost, error)
