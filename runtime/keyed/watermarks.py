"""Event time: read from tuples (`Stamper`), and put together from predecessors (`Gate`)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from itertools import takewhile
from typing import Any

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.keyed.spec import EventTime

_ALL = object()


class Stamper:
    """The watermark of an instance that reads event time from its own results.

    Each device (the whole stream, if no device is told apart) has its latest time; the slowest
    device that is not idle counts, less the allowed disorder. What is too far ahead of the clock
    does not count (P38): a device that sends nothing else is as good as silent, for it would hold
    up everybody for ever. `floor`: where it begins; it never goes back.
    """

    def __init__(self, spec: EventTime, *, floor: float = -math.inf) -> None:
        self.ahead = 0
        """Tuples from too far in the future."""
        self._spec = spec
        self._floor = floor
        self._latest: dict[Any, float] = {}
        self._heard: dict[Any, float] = {}  # who was silent for longest comes first
        self._heard_last: float | None = None

    def note(self, tuples: Iterable[Any], now: float, wall: float) -> None:
        """Look at results. `now`: a clock that only goes on; `wall`: seconds since the epoch."""
        self._forget_silent(now)
        spec, latest = self._spec, self._latest
        most = math.inf if spec.ahead_s is None else wall + spec.ahead_s
        device: Any = _ALL
        for one in tuples:
            try:
                at = float(spec.fn(one))
                if spec.device is not None:
                    device = spec.device(one)
                before = latest.get(device, -math.inf)
            except Exception:
                continue  # who needs its time will say so
            if not math.isfinite(at):
                continue  # no time at all; infinity would end the stream for everybody
            if at > most:
                self.ahead += 1
                continue
            self._heard.pop(device, None)
            self._heard[device] = self._heard_last = now
            if at > before:
                latest[device] = at

    def watermark(self, now: float) -> float:
        self._forget_silent(now)
        if self._latest:
            self._floor = max(self._floor, min(self._latest.values()) - self._spec.disorder_s)
        return self._floor

    def _forget_silent(self, now: float) -> None:
        """Devices that are idle begin anew, if ever, so that those which come and go do not fill
        the memory."""
        idle_s = self._spec.idle_s
        if idle_s is not None:
            silent = takewhile(lambda device: now - self._heard[device] >= idle_s, self._heard)
            for device in list(silent):
                del self._heard[device]
                self._latest.pop(device, None)

    def idle(self, now: float) -> bool:
        """Whether nobody has sent anything for long; counted from the first time that this is
        asked, until somebody has."""
        if self._heard_last is None:
            self._heard_last = now
        idle_s = self._spec.idle_s
        return idle_s is not None and now - self._heard_last >= idle_s


class Gate:
    """What all predecessors have said: `value`, the least of it, which never goes back; those that
    are idle are not waited for. `output`: what this instance may say itself, which stays where it
    is while anybody holds it; meanwhile it is not idle, for successors would not wait for it."""

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

    def set_preds(self, preds: Iterable[InstanceId]) -> None:
        """These and no others. A new one begins with what its creator has said, if that is among
        them, else with what all have said."""
        before = self._said
        self._said = {p: before.get(p, self._inherited(p)) for p in preds}
        self._idle &= self._said.keys()
        self._look()

    def _inherited(self, new: InstanceId) -> float:
        for pred, said in self._said.items():
            if pred.operator == new.operator and pred.number == new.creator:
                return said
        return self.value

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
