"""Two ends of a stream and a broker between them that loses, repeats, delays and forgets."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from anabranch.runtime.mqtt.brokered_end import BrokeredEnd
from anabranch.runtime.mqtt.segments import StreamSegment, segment_in


@dataclass(frozen=True)
class Air:
    """How messages fare: chances of each to be lost, or to come twice; `late_s`: by how much at
    most. `restarts`: when the broker begins anew, having forgotten what was under way; `down_s`:
    after how long. `deaf_from_s`: from when on nothing comes through any more."""

    loss: float = 0.0
    repeat: float = 0.0
    late_s: float = 0.0
    restarts: tuple[float, ...] = ()
    down_s: float = 1.0
    deaf_from_s: float = 1e9

    def is_up(self, now: float) -> bool:
        if now >= self.deaf_from_s:
            return False
        return not any(at <= now < at + self.down_s for at in self.restarts)


@dataclass
class Side:
    end: BrokeredEnd
    to_send: list[bytes] = field(default_factory=list)
    got: bytes = b""
    is_slow: bool = False
    closes: bool = False

    def use(self, now: float) -> None:
        while self.to_send and self.end.waiting_bytes < 2**19 and self.end.is_open:
            self.end.write(self.to_send.pop(0))
        self.end.flush(now)
        if self.closes and not self.to_send and self.end.is_open and not self.end.over:
            self.end.close(now)
        if not self.is_slow:
            self.got += self.end.read()


class Pair:
    """A stream, from `dialer` to `listener`, in virtual time."""

    def __init__(self, air: Air, seed: int, make: type[BrokeredEnd] = BrokeredEnd) -> None:
        self.now = 0.0
        self.air = air
        self.most_in_air = 0
        self._make = make
        self._chance = random.Random(seed)
        self._under_way: list[tuple[float, int, str, bytes]] = []
        self._count = 0
        self.dialer = Side(make(7, 0.0))
        self.listener: Side | None = None
        self._was_up = True

    def run(self, until_s: float) -> None:
        """Until both are over, or nothing is left to send, or the time has come."""
        self._step()
        while self.now < until_s and not self._is_done():
            self.now = min(self._next_s(), until_s)
            self._step()

    def _is_done(self) -> bool:
        return self.listener is not None and self.dialer.end.over and self.listener.end.over

    def _sides(self) -> list[tuple[str, Side]]:
        sides = [("listener", self.dialer)]
        return sides if self.listener is None else [*sides, ("dialer", self.listener)]

    def _next_s(self) -> float:
        dues = [side.end.due_s() for _, side in self._sides() if not side.end.over]
        dues += [at for at, *_ in self._under_way]
        dues += [
            at + self.air.down_s for at in self.air.restarts if at + self.air.down_s > self.now
        ]
        dues += [at for at in self.air.restarts if at > self.now]
        return max(self.now + 1e-4, min(dues, default=1e9))

    def _step(self) -> None:
        if (is_up := self.air.is_up(self.now)) != self._was_up:
            self._was_up = is_up
            self._under_way.clear()
            if is_up:
                for _, side in self._sides():
                    side.end.reconnected(self.now)
        self._deliver()
        for to, side in self._sides():
            if not side.end.over:
                side.end.tick(self.now)
            side.use(self.now)
            self._send(to, side.end)

    def _deliver(self) -> None:
        self._under_way.sort()
        while self._under_way and self._under_way[0][0] <= self.now:
            _, _, to, payload = self._under_way.pop(0)
            segment = segment_in(payload)
            assert segment is not None
            if to == "listener" and self.listener is None:
                self.listener = Side(self._make(8, self.now, segment.by))
                self.prepare(self.listener)
            side = self.dialer if to == "dialer" else self.listener
            assert side is not None
            side.end.hear(segment, self.now)
            side.use(self.now)
            self._send("listener" if to == "dialer" else "dialer", side.end)
            if side.end.over and segment.kind.name != "RESET":  # it is not known there any more
                reset = StreamSegment(type(segment.kind).RESET, segment.by, segment.to)
                self._fly("listener" if to == "dialer" else "dialer", reset)

    def prepare(self, listener: Side) -> None:
        """What the end that was dialled does."""

    def _send(self, to: str, end: BrokeredEnd) -> None:
        out, end.out = end.out, []
        for segment in out:
            self._fly(to, segment)
        in_air = sum(len(payload) for _, _, where, payload in self._under_way if where == to)
        self.most_in_air = max(self.most_in_air, in_air)

    def _fly(self, to: str, segment: StreamSegment) -> None:
        if not self.air.is_up(self.now) or self._chance.random() < self.air.loss:
            return
        for _ in range(1 + (self._chance.random() < self.air.repeat)):
            self._count += 1
            at = self.now + 0.001 + self._chance.random() * self.air.late_s
            self._under_way.append((at, self._count, to, segment.encode()))
