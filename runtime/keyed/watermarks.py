"""Event time: read from tuples (`Stamper`), and put together from predecessors (`Gate`)."""

from __future__ import annotations

import heapq
import math
import pickle
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import count, islice, takewhile
from typing import Any, NamedTuple

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.plan.spec import EventTime, Span
from anabranch.runtime.values.foreign import describe, is_a
from anabranch.runtime.values.raised import where_raised

SWEEP_ABOVE = 64
_PLAIN_DEVICES = frozenset((type(None), bool, int, str, bytes))

RESTORED = "restored"
"""The token by which a gate that was restored is held, until its other holds are made again."""

GateState = tuple[float, float, list[tuple[InstanceId, float, bool]]]


class Stamped(NamedTuple):
    """Tuples that have an event time, each with its mark, and those that have none. `gone`: the
    places of all that are not among `tuples`."""

    tuples: list[Any]
    marks: list[float]
    letters: list[DeadLetter]
    gone: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls, tuples: list[Any], marks: list[float], gone: Mapping[int, DeadLetter | None]
    ) -> Stamped:
        """`gone`: by their places, tuples that have no time, and None for those left out."""
        if not gone:
            return cls(tuples, marks, [])
        tuples = [one for n, one in enumerate(tuples) if n not in gone]
        letters = [letter for letter in gone.values() if letter is not None]
        return cls(tuples, marks, letters, frozenset(gone))


class ByTime:
    """Devices by their latest times. An entry may be older than that; it is mended when its turn
    comes, so that a time that goes on costs nothing here."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Any]] = []
        self._number = count()

    def add(self, at: float, device: Any) -> None:
        heapq.heappush(self._heap, (at, next(self._number), device))

    def fill(self, latest: Mapping[Any, float]) -> None:
        self._heap = [(at, next(self._number), device) for device, at in latest.items()]
        heapq.heapify(self._heap)

    def least(self, latest: Mapping[Any, float]) -> float:
        """The time of the slowest; +inf if there is none."""
        if len(self._heap) > 2 * len(latest) + SWEEP_ABOVE:
            self.fill(latest)
        heap = self._heap
        while heap:
            at, number, device = heap[0]
            now_at = latest.get(device)
            if now_at == at:
                return at
            if now_at is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (now_at, number, device))
        return math.inf


def _letter(what: str, error: BaseException, one: Any) -> DeadLetter:
    if is_a(error, KeyboardInterrupt):
        raise error
    return DeadLetter(f"{what}: {describe(error)}", one, where_raised(error))


def check_device(device: Any) -> None:
    """Raise unless a new device is a value that is equal to itself in another process too: as one
    that is not, each tuple would come from a device of its own, which is waited for."""
    if type(device) not in _PLAIN_DEVICES and pickle.loads(pickle.dumps(device, 5)) != device:
        raise ValueError(f"its device is not equal to its own copy: {device!r:.200}")


class Stamper:
    """The watermark of an instance that reads event time from its own results.

    Each device (the whole stream, if devices are not distinguished) has its latest time; the
    slowest device that is not idle counts, less the allowed disorder. What is too far ahead of the
    clock does not count (P38): a device that sends nothing else is as good as silent, for it would
    hold up all others for ever. Tuples out of the span are left out: those in front of it move time
    on all the same, so that a device that still sends them is waited for; those behind it do not.
    `floor`: where it begins; it never goes back.

    `journaled`: `changes` gives what is new, as bytes, and `restore` makes the same of it.
    """

    def __init__(
        self, spec: EventTime, *, floor: float = -math.inf, journaled: bool = False
    ) -> None:
        self.ahead = 0
        """Tuples from too far in the future."""
        self.before = self.behind = 0
        """Tuples that were left out, in front of the span and behind it."""
        self._spec = spec
        span = spec.span or Span()
        self._start, self._end = span.start, span.end
        self._floor = floor
        self._latest: dict[Any, float] = {}
        self._by_time = ByTime()
        self._heard: dict[Any, float] = {}  # the one that was silent for longest comes first
        self._heard_last: float | None = None
        self._notes: set[Any] | None = set() if journaled else None
        """Devices of which there is news."""
        self._told: tuple[Any, ...] = ()

    def note(self, tuples: list[Any], now: float, wall: float) -> Stamped:
        """Look at results. `now`: a clock that only goes on; `wall`: seconds since the epoch.

        Each gets as its mark the watermark after those before it."""
        most = math.inf if self._spec.ahead_s is None else wall + self._spec.ahead_s
        if self._spec.device is None:
            return self._note_stream(tuples, now, most)
        return self._note_devices(self._spec.device, tuples, now, most)

    def _note_stream(self, tuples: list[Any], now: float, most: float) -> Stamped:
        """The same without devices: its latest time is that of the stream."""
        mark, latest = self.watermark(now), self._latest.get(None, -math.inf)
        disorder_s, start = self._spec.disorder_s, self._start
        uncounted, reached, marks = self.ahead - self.before, latest, list[float]()
        gone: dict[int, DeadLetter | None] = {}
        for _, _, at in self._read(tuples, gone):
            if at >= start:
                marks.append(mark)
            if at > most:
                self.ahead += 1
            elif at > reached:
                reached = at
                if at - disorder_s > mark:
                    mark = at - disorder_s
        if len(marks) > self.ahead - self.before - uncounted:
            self._hear(None, now)
        if reached > latest:
            self._latest[None] = reached
            if latest == -math.inf:
                self._by_time.add(reached, None)
        self._floor = mark
        return Stamped.of(tuples, marks, gone)

    def _note_devices(
        self, device_of: Callable[[Any], Any], tuples: list[Any], now: float, most: float
    ) -> Stamped:
        mark, slowest = self.watermark(now), self._slowest()
        latest, heard, notes, marks = self._latest, self._heard, self._notes, list[float]()
        disorder_s, start = self._spec.disorder_s, self._start
        gone: dict[int, DeadLetter | None] = {}
        for number, one, at in self._read(tuples, gone):
            try:
                device = device_of(one)
                before = latest.get(device)
                if before is None:
                    check_device(device)
            except BaseException as error:
                self.before -= at < start  # it leaves for one reason
                gone[number] = _letter("has no device", error, one)
                continue
            if at >= start:
                marks.append(mark)
            if at > most:
                self.ahead += 1
                continue
            if heard.get(device) != now:
                self._hear(device, now)
            if before is None or at > before:
                latest[device] = at
                if notes is not None:
                    notes.add(device)
                if before is None:
                    self._by_time.add(at, device)
                if before is None or before <= slowest:
                    slowest = self._slowest()
                    mark = max(mark, slowest - disorder_s)
        self._floor = mark
        return Stamped.of(tuples, marks, gone)

    def _read(
        self, tuples: list[Any], gone: dict[int, DeadLetter | None]
    ) -> Iterator[tuple[int, Any, float]]:
        """Those that have an event time which moves time on, with their places and times; in `gone`
        those that are not passed on."""
        time_of, isfinite, start, end = self._spec.fn, math.isfinite, self._start, self._end
        for number, one in enumerate(tuples):
            try:
                if not isfinite(at := float(time_of(one))):
                    raise ValueError(f"expected a finite number of seconds, got {at}")
            except BaseException as error:
                gone[number] = _letter("has no event time", error, one)
                continue
            if at < start:
                self.before += 1
                gone[number] = None
            elif at >= end:
                self.behind += 1
                gone[number] = None
                continue
            yield number, one, at

    def _hear(self, device: Any, now: float) -> None:
        self._heard.pop(device, None)
        self._heard[device] = self._heard_last = now
        if self._notes is not None:
            self._notes.add(device)

    def _slowest(self) -> float:
        return self._by_time.least(self._latest)

    def watermark(self, now: float) -> float:
        self._forget_silent(now)
        if self._latest:
            self._floor = max(self._floor, self._slowest() - self._spec.disorder_s)
        return self._floor

    def _forget_silent(self, now: float) -> None:
        """Devices that are idle begin anew, if ever, so that those which come and go do not fill
        the memory."""
        idle_s = self._spec.idle_s
        if idle_s is not None:
            heard = self._heard
            silent = [*takewhile(lambda device: now - heard[device] >= idle_s, heard)]
            for device in silent:
                del self._heard[device]
                self._latest.pop(device, None)
            if self._notes is not None:
                self._notes.update(silent)

    def idle(self, now: float) -> bool:
        """Whether no device has sent anything for long; counted from the first time that this is
        asked, until one has."""
        if self._heard_last is None:
            self._heard_last = now
        idle_s = self._spec.idle_s
        return idle_s is not None and now - self._heard_last >= idle_s

    @property
    def left_out(self) -> dict[str, int]:
        """Tuples out of the span, by reason."""
        span = self._spec.span or Span()
        found = {span.before: self.before} if self.before else {}
        return found | ({span.behind: self.behind} if self.behind else {})

    def changes(self) -> bytes | None:
        """What is new since this was asked last."""
        notes, sums = self._notes, self._sums
        if notes is None or (not notes and sums == self._told):
            return None
        self._notes, self._told = set(), sums
        return self._news(notes)

    def snapshot(self, devices_max: int) -> Iterator[bytes]:
        """All there is now, in pieces of about so many devices. Anything may be called between two
        pieces; what is recorded meanwhile counts too, in its order."""
        devices = iter([*self._heard])
        while some := [*islice(devices, devices_max)]:
            yield self._news([device for device in some if device in self._heard])
        yield self._news([])

    def restore(self, told: Iterable[bytes]) -> float:
        """What former incarnations have recorded, in its order, counts. Returns from where the
        clock `now` must go on: when a device has sent last."""
        latest, heard = self._latest, self._heard
        for change in told:
            sums, devices, times, since, gone = pickle.loads(change)
            self._floor, self.ahead, self._heard_last, self.before, self.behind = sums
            latest.update(zip(devices, times, strict=True))
            heard.update(zip(devices, since, strict=True))
            for device in gone:
                latest.pop(device, None)
                heard.pop(device, None)
        self._heard = dict(sorted(heard.items(), key=lambda one: one[1]))
        self._by_time.fill(latest)
        self._told = self._sums
        return self._heard_last or 0.0

    @property
    def latest(self) -> Mapping[Any, float]:
        """The latest time of each device."""
        return self._latest

    @staticmethod
    def told_of(watermark: float, latest: Mapping[Any, float]) -> bytes:
        """For `restore`: a stamper that has come to `watermark`, and has just received from all."""
        devices, times = [*latest], [*latest.values()]
        sums = watermark, 0, None, 0, 0
        return pickle.dumps((sums, devices, times, [0.0] * len(devices), []), 5)

    @property
    def _sums(self) -> tuple[Any, ...]:
        return self._floor, self.ahead, self._heard_last, self.before, self.behind

    def _news(self, devices: Iterable[Any]) -> bytes:
        latest, heard = self._latest, self._heard
        here = [device for device in devices if device in heard]
        gone = [device for device in devices if device not in heard]
        columns = here, [latest[d] for d in here], [heard[d] for d in here], gone
        return pickle.dumps((self._sums, *columns), 5)


class Gate:
    """What all predecessors have stated: `value`, the least of it, which never goes back; those
    that are idle are not waited for. `output`: what this instance may state itself, which stays
    where it is while it is held; meanwhile it is not idle, for successors would not wait for it."""

    def __init__(self, floor: float = -math.inf) -> None:
        self.value = floor
        self._said: dict[InstanceId, float] = {}
        self._idle: set[InstanceId] = set()
        self._holds: dict[Hashable, float] = {}

    @property
    def output(self) -> float:
        return min((self.value, *self._holds.values()))

    @property
    def idle(self) -> bool:
        return bool(self._said) and not self._holds and self._idle.issuperset(self._said)

    @property
    def held(self) -> bool:
        return bool(self._holds)

    @property
    def has_one_way(self) -> bool:
        """Whether there is one predecessor, and so no other that tuples may come from."""
        return len(self._said) == 1

    def others(self, pred: InstanceId) -> float:
        """How far `value` may rise with what this one states: the least of what others have
        stated."""
        if pred not in self._said:
            return self.value
        return min(
            (at for p, at in self._said.items() if p != pred and p not in self._idle),
            default=math.inf,
        )

    def set_preds(self, preds: Iterable[InstanceId]) -> None:
        """These and no others. A new one begins with what its creator has stated, if that is among
        them, else with what all have stated."""
        before = self._said
        self._said = {p: before.get(p, self._inherited(p)) for p in preds}
        self._idle &= self._said.keys()
        self._look()

    def _inherited(self, new: InstanceId) -> float:
        for pred, said in self._said.items():
            if pred.operator == new.operator and pred.number == new.creator:
                return said
        return self.value

    def would_rise(self, pred: InstanceId, watermark: float, idle: bool = False) -> bool:
        """Whether `value` would rise if this was stated."""
        if pred not in self._said:
            return False
        awake = [said for p, said in self._said.items() if p != pred and p not in self._idle]
        if not idle:
            awake.append(max(self._said[pred], watermark))
        return bool(awake) and min(awake) > self.value

    def heard(self, pred: InstanceId, watermark: float, idle: bool = False) -> None:
        if pred not in self._said:
            return
        self._said[pred] = max(self._said[pred], watermark)
        (self._idle.add if idle else self._idle.discard)(pred)
        self._look()

    def forget(self, pred: InstanceId) -> None:
        self._said.pop(pred, None)
        self._idle.discard(pred)
        self._look()

    def _look(self) -> None:
        awake = [said for pred, said in self._said.items() if pred not in self._idle]
        if awake:
            self.value = max(self.value, min(awake))

    def hold(self, token: Hashable) -> None:
        self._holds.setdefault(token, self.output)

    def release(self, token: Hashable) -> None:
        self._holds.pop(token, None)

    def state(self) -> GateState:
        """For `restore`, a plain value; of the holds only how far they let the output go."""
        said = [(pred, at, pred in self._idle) for pred, at in self._said.items()]
        return self.value, self.output, said

    def restore(self, state: GateState) -> None:
        """If the output was held, it stays where it was until `RESTORED` is released. Work that
        holds it again must have done so by then, and its hold begins there."""
        self.value, output, said = state
        self._said = {pred: at for pred, at, _ in said}
        self._idle = {pred for pred, _, idle in said if idle}
        self._holds = {RESTORED: output} if output < self.value else {}
