"""One end of a stream over a broker: the rules, without a clock and without a broker.

Messages may be lost, repeated, late, or come in another order, and a broker may forget all that it
had. The bytes come in order, each once, or the stream breaks; it never goes on without some of
them. Both ends draw a number for each stream, so messages of an earlier one mean nothing to it.

What is not acknowledged in time is sent again: at first one segment alone, and more with each
acknowledgement. So an end that reads slowly, or has gone, makes the broker keep no more than a
window and a few repeats.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from anabranch.runtime.mqtt.segments import DATA_BYTES_MAX, WINDOW_BYTES, Kind, StreamSegment

SEGMENTS_MAX = 64
"""Under way at a time, and kept by the other end while one before them is missing."""
WAIT_FIRST_S, WAIT_MIN_S, WAIT_MAX_S = 1.0, 0.5, 5.0
"""For an acknowledgement."""
ACK_AFTER_S = 0.005
OPEN_S = 10.0
"""For the other end to answer at the beginning."""
ASK_AFTER_S = 5.0
"""Without a word of the other end."""
SILENT_S = 30.0
"""Then the stream is broken: longer than it takes to start a broker again."""
PROBE_S = 1.0
"""Between questions whether there is room again."""


@dataclass(slots=True)
class _Sent:
    segment: StreamSegment
    at_s: float
    times: int = 1


class Sending:
    """What one end has sent and what it has still to send. `more_s`: how long it waits for an
    acknowledgement."""

    def __init__(self) -> None:
        self.acked = 0
        self.offset = 0
        """Of what is sent next for the first time."""
        self.unsent = bytearray()
        self.closes = self.end_sent = False
        self._limit = 0
        self._under_way: deque[_Sent] = deque()
        self._smooth_s: float | None = None
        self._varies_s = 0.0
        self._backoff = 1
        self._recover_to = self._repeated_to = 0
        """Before the first offset, what is under way is taken for lost; before the second, it has
        been repeated since."""
        self._burst = 1
        self._waits_from_s = 0.0

    @property
    def is_over(self) -> bool:
        """Whether all has come, and the end."""
        return self.end_sent and not self._under_way

    @property
    def waiting_bytes(self) -> int:
        return len(self.unsent) + self.offset - self.acked

    @property
    def is_held_up(self) -> bool:
        """Whether it would send more, and the other end has no room."""
        return bool(self.unsent) and not self._under_way and self.offset >= self._limit

    @property
    def wait_s(self) -> float:
        usual_s = WAIT_FIRST_S
        if self._smooth_s is not None:
            usual_s = max(WAIT_MIN_S, self._smooth_s + 4 * self._varies_s)
        return min(WAIT_MAX_S, usual_s * self._backoff)

    @property
    def due_s(self) -> float | None:
        """When something is to be repeated."""
        return self._waits_from_s + self.wait_s if self._under_way else None

    def acknowledge(self, acked: int, window: int, now: float) -> list[StreamSegment]:
        """What is to be repeated. Raises `ValueError` for what was not sent."""
        if acked > self.offset:
            raise ValueError(acked)
        self._limit = max(self._limit, acked + window)
        if acked <= self.acked:
            return []
        self.acked = acked
        while self._under_way and self._under_way[0].segment.offset < acked:
            sent = self._under_way.popleft()
            if sent.times == 1:
                self._measure(now - sent.at_s)
        self._backoff, self._waits_from_s = 1, now
        if acked >= self._recover_to:
            return []
        self._burst = min(2 * self._burst, SEGMENTS_MAX)
        return self._repeat(now, self._burst)

    def lost(self, now: float, *, patient: bool = True) -> list[StreamSegment]:
        """No acknowledgement has come in time, or, if not `patient`, messages may have been lost:
        what is to be repeated now."""
        if not self._under_way:
            return []
        self._backoff = min(2 * self._backoff, 64) if patient else 1
        self._recover_to, self._repeated_to = self.offset, self.acked
        self._burst = 1
        return self._repeat(now, 1)

    def fresh(self, now: float) -> list[tuple[Kind, int, bytes]]:
        """What may be sent for the first time. It has to be given to `under_way`."""
        pieces: list[tuple[Kind, int, bytes]] = []
        while self.unsent and len(self._under_way) + len(pieces) < SEGMENTS_MAX:
            size = min(DATA_BYTES_MAX, self._limit - self.offset, len(self.unsent))
            if size <= 0:
                break
            pieces.append((Kind.DATA, self.offset, bytes(self.unsent[:size])))
            del self.unsent[:size]
            self.offset += size
        if self.closes and not self.unsent and not self.end_sent:
            self.end_sent = True
            pieces.append((Kind.END, self.offset, b""))
            self.offset += 1
        return pieces

    def under_way(self, segment: StreamSegment, now: float) -> None:
        if not self._under_way:
            self._waits_from_s = now
        self._under_way.append(_Sent(segment, now))

    def _repeat(self, now: float, count: int) -> list[StreamSegment]:
        repeated: list[StreamSegment] = []
        for sent in self._under_way:
            if len(repeated) >= count or sent.segment.offset >= self._recover_to:
                break
            if sent.segment.offset < self._repeated_to:
                continue
            sent.times += 1
            self._repeated_to = sent.segment.offset + sent.segment.length
            repeated.append(sent.segment)
        if repeated:
            self._waits_from_s = now
        return repeated

    def _measure(self, took_s: float) -> None:
        if self._smooth_s is None:
            self._smooth_s, self._varies_s = took_s, took_s / 2
            return
        self._varies_s += (abs(took_s - self._smooth_s) - self._varies_s) / 4
        self._smooth_s += (took_s - self._smooth_s) / 8


class Receiving:
    """What has come. `ended`: nothing follows."""

    def __init__(self) -> None:
        self.expected = 0
        self.ended = False
        self._ready: list[bytes] = []
        self._ready_bytes = 0
        self._ahead: dict[int, StreamSegment] = {}

    @property
    def window(self) -> int:
        return max(0, WINDOW_BYTES - self._ready_bytes)

    @property
    def has_ready(self) -> bool:
        return self._ready_bytes > 0

    def take(self, segment: StreamSegment) -> bool:
        """Whether it was the next one. What does not fit is not kept: it comes again."""
        if self.ended or segment.offset < self.expected:
            return False
        if segment.offset + len(segment.data) > self.expected + self.window:
            return False
        if segment.offset > self.expected:
            if len(self._ahead) < SEGMENTS_MAX:
                self._ahead.setdefault(segment.offset, segment)
            return False
        self._accept(segment)
        while (following := self._ahead.pop(self.expected, None)) is not None:
            self._accept(following)
        if self.ended or len(self._ahead) >= SEGMENTS_MAX:
            self._ahead.clear()
        return True

    def read(self) -> bytes:
        data = b"".join(self._ready)
        self._ready, self._ready_bytes = [], 0
        return data

    def _accept(self, segment: StreamSegment) -> None:
        if self.ended:
            return
        self.expected = segment.offset + segment.length
        if segment.kind is Kind.END:
            self.ended = True
        else:
            self._ready.append(segment.data)
            self._ready_bytes += len(segment.data)


class BrokeredEnd:
    """`mine`: the number of this end; `theirs`: that of the other end, 0 if it is dialled. After
    each call, the caller sends the segments in `out` and empties it."""

    def __init__(self, mine: int, now: float, theirs: int = 0) -> None:
        self.mine, self.theirs = mine, theirs
        self.dials = not theirs
        self.is_open = False
        """Whether both ends have received from each other."""
        self.over = False
        self.broken = ""
        """Why, if it is over before its time."""
        self.out: list[StreamSegment] = []
        self._sending, self._receiving = Sending(), Receiving()
        self._heard_s = self._asked_s = now
        self._ack_by_s: float | None = None
        self._told_to = WINDOW_BYTES
        """Up to which offset the other end may send, as far as that has come."""
        self._open_by_s, self._open_wait_s = now, WAIT_MIN_S
        self.tick(now)

    # -- the user of the stream ----------------------------------------------------------------

    @property
    def waiting_bytes(self) -> int:
        """Written, and not acknowledged by the other end."""
        return self._sending.waiting_bytes

    @property
    def has_ended(self) -> bool:
        """Whether the other end has closed it, and all is read that came before."""
        return self._receiving.ended and not self._receiving.has_ready

    def write(self, data: bytes) -> None:
        if not self.over and not self._sending.closes:
            self._sending.unsent += data

    def flush(self, now: float) -> None:
        """Send what may be sent."""
        if not self.is_open or self.over:
            return
        for kind, offset, data in self._sending.fresh(now):
            segment = self._segment(kind, offset, data)
            self._sending.under_way(segment, now)
            self._say(segment)

    def read(self) -> bytes:
        """All that has come, in order."""
        data = self._receiving.read()
        if self._room_to - self._told_to >= WINDOW_BYTES // 4 and self.is_open and not self.over:
            self._acknowledge()
        return data

    def close(self, now: float) -> None:
        """All that was written still goes out."""
        self._sending.closes = True
        if not self.is_open:
            self.reset("closed before it was open")
        self.flush(now)

    def reset(self, why: str) -> None:
        """Now."""
        if not self.over:
            self.out.append(self._segment(Kind.RESET))
            self._break(why)

    # -- what happens --------------------------------------------------------------------------

    def hear(self, segment: StreamSegment, now: float) -> None:
        """A segment for this end."""
        if self.over or (segment.to != self.mine and segment.kind is not Kind.OPEN):
            return
        if not self.theirs and segment.kind is Kind.OPENED:
            self.theirs = segment.by
        if segment.by != self.theirs or not self.theirs:
            if segment.kind is Kind.RESET and not self.theirs:
                self._break("refused")
            elif segment.kind is Kind.OPENED:  # another one has answered before
                self.out.append(StreamSegment(Kind.RESET, segment.by, self.mine))
            return
        if segment.kind is Kind.OPEN:
            self.out.append(self._segment(Kind.OPENED))
            return
        if segment.kind is Kind.RESET:
            self._break("the other end has broken it off")
            return
        self.is_open, self._heard_s = True, now
        if segment.kind is Kind.OPENED:
            self._acknowledge()
        self._take(segment, now)

    def tick(self, now: float) -> None:
        """The time that `due_s` has returned has come."""
        if self.over:
            return
        if now - self._heard_s >= SILENT_S:
            self.reset(f"the other end has said nothing for {SILENT_S:.0f} s")
        elif not self.is_open:
            if now - self._heard_s >= OPEN_S:
                self._break("the other end does not answer")
            elif now >= self._open_by_s:
                self.out.append(self._segment(Kind.OPEN if self.dials else Kind.OPENED))
                self._open_by_s = now + self._open_wait_s
                self._open_wait_s = min(2 * self._open_wait_s, WAIT_MAX_S)
        else:
            self._tick_open(now)

    def reconnected(self, now: float) -> None:
        """There is a broker again, which may have lost anything."""
        self._open_by_s = now
        if self.is_open and not self.over:
            for segment in self._sending.lost(now, patient=False):
                self._say(self._anew(segment))
            self.out.append(self._segment(Kind.ASK))
        self.tick(now)

    def due_s(self) -> float:
        """When to call `tick`."""
        if not self.is_open:
            return min(self._open_by_s, self._heard_s + OPEN_S)
        dues = [self._heard_s + SILENT_S, self._ask_due_s()]
        if (repeats_s := self._sending.due_s) is not None:
            dues.append(repeats_s)
        if self._ack_by_s is not None:
            dues.append(self._ack_by_s)
        return min(dues)

    # -- rules -----------------------------------------------------------------------------------

    def _take(self, segment: StreamSegment, now: float) -> None:
        try:
            repeated = self._sending.acknowledge(segment.acked, segment.window, now)
        except ValueError:
            self.reset("the other end has acknowledged what was not sent")
            return
        for again in repeated:
            self._say(self._anew(again))
        if segment.kind is Kind.ASK:
            self._acknowledge()
        elif segment.kind in (Kind.DATA, Kind.END):
            if not self._receiving.take(segment) or self._receiving.ended:
                self._acknowledge()  # at once: it is a repeat, one is missing, or it is the end
            elif self._ack_by_s is None:
                self._ack_by_s = now + ACK_AFTER_S
        if self._receiving.ended or self._sending.is_over:
            self.over = True  # what this end has not sent is not read any more
        self.flush(now)

    def _tick_open(self, now: float) -> None:
        if (repeats_s := self._sending.due_s) is not None and now >= repeats_s:
            for segment in self._sending.lost(now):
                self._say(self._anew(segment))
        if self._ack_by_s is not None and now >= self._ack_by_s:
            self._acknowledge()
        if now >= self._ask_due_s():
            self._asked_s = now
            self.out.append(self._segment(Kind.ASK))
        self.flush(now)

    def _ask_due_s(self) -> float:
        if self._sending.is_held_up:
            return self._asked_s + PROBE_S
        return max(self._heard_s, self._asked_s) + ASK_AFTER_S

    def _acknowledge(self) -> None:
        self.out.append(self._segment(Kind.ACK))
        self._note_told()

    def _say(self, segment: StreamSegment) -> None:
        self.out.append(segment)
        self._note_told()

    def _note_told(self) -> None:
        self._ack_by_s, self._told_to = None, self._room_to

    @property
    def _room_to(self) -> int:
        return self._receiving.expected + self._receiving.window

    def _segment(self, kind: Kind, offset: int = 0, data: bytes = b"") -> StreamSegment:
        come = self._receiving.expected, self._receiving.window
        return StreamSegment(kind, self.theirs, self.mine, offset, *come, data)

    def _anew(self, segment: StreamSegment) -> StreamSegment:
        """With what has come since."""
        return self._segment(segment.kind, segment.offset, segment.data)

    def _break(self, why: str) -> None:
        self.over = True
        # A stream that both ends have ended is no broken one: the last word may be lost.
        self.broken = "" if self._sending.end_sent and not self._sending.unsent else why
