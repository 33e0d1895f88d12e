"""A stream over a broker: in order, each byte once, or broken; whatever the broker does."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from anabranch.runtime.mqtt.brokered_end import SILENT_S, BrokeredEnd, Receiving, Sending
from anabranch.runtime.mqtt.segments import WINDOW_BYTES, Kind, StreamSegment, segment_in
from tests.runtime.mqtt.airs import Air, Pair, Side

AIRS = st.builds(
    Air,
    loss=st.sampled_from([0.0, 0.05, 0.3]),
    repeat=st.sampled_from([0.0, 0.3]),
    late_s=st.sampled_from([0.0, 0.02, 2.0]),
    restarts=st.lists(st.floats(0.0, 20.0), max_size=4).map(tuple),
    down_s=st.sampled_from([0.1, 2.0]),
)
SIZES = st.lists(st.sampled_from([1, 100, 40_000, 300_000]), max_size=3)
LONG_S = 2_000.0
FEW = settings(max_examples=max(20, settings().max_examples // 2))


class Talk(Pair):
    """Both ends send pieces and close when they have got all that the other one has sent."""

    def __init__(
        self,
        air: Air,
        seed: int,
        there: list[int],
        back: list[int],
        make: type[BrokeredEnd] = BrokeredEnd,
    ) -> None:
        super().__init__(air, seed, make)
        drawn = random.Random(seed)
        self.there = [drawn.randbytes(n) for n in there]
        self.back = [drawn.randbytes(n) for n in back]
        self.dialer.to_send = [*self.there]

    def prepare(self, listener: Side) -> None:
        listener.to_send = [*self.back]

    def finish(self) -> None:
        """Have all come, then close both."""
        for _ in range(2_000):
            self.run(self.now + 1.0)
            if self._has_all() or self._is_broken():
                break
        for _, side in self._sides():
            side.closes = True
        self.run(self.now + LONG_S)

    def check(self) -> None:
        """In order, and nothing twice."""
        assert b"".join(self.there).startswith(self.listener.got if self.listener else b"")
        assert b"".join(self.back).startswith(self.dialer.got)

    def _has_all(self) -> bool:
        if self.listener is None:
            return False
        return (self.dialer.got, self.listener.got) == (b"".join(self.back), b"".join(self.there))

    def _is_broken(self) -> bool:
        return any(side.end.broken for _, side in self._sides())


@FEW
@given(air=AIRS, seed=st.integers(0, 2**32), there=SIZES, back=SIZES)
def test_a_stream_gives_all_bytes_in_order_or_breaks(
    air: Air, seed: int, there: list[int], back: list[int]
) -> None:
    talk = Talk(air, seed, there, back)
    talk.finish()
    talk.check()
    if not talk._is_broken():
        assert talk._has_all()
        assert all(side.end.over for _, side in talk._sides())


@FEW
@given(
    restarts=st.lists(st.floats(0.1, 20.0), max_size=6).map(tuple),
    seed=st.integers(0, 2**32),
    there=SIZES,
)
def test_no_stream_breaks_because_a_broker_restarts(
    restarts: tuple[float, ...], seed: int, there: list[int]
) -> None:
    talk = Talk(Air(repeat=0.2, late_s=0.1, restarts=restarts, down_s=2.0), seed, there, there)
    talk.finish()
    assert not talk._is_broken()
    assert talk._has_all()


@FEW
@given(seed=st.integers(0, 2**32), deaf_from_s=st.floats(0.1, 5.0), there=SIZES)
def test_an_end_that_hears_nothing_any_more_breaks_in_time(
    seed: int, deaf_from_s: float, there: list[int]
) -> None:
    talk = Talk(Air(late_s=0.05, deaf_from_s=deaf_from_s), seed, there, there)
    talk.run(deaf_from_s)
    assume(talk.listener is not None)
    talk.run(deaf_from_s + SILENT_S + 1.0)
    assert all(side.end.over for _, side in talk._sides())
    talk.check()


@FEW
@given(seed=st.integers(0, 2**32), late_s=st.sampled_from([0.0, 0.5]))
def test_a_slow_reader_makes_the_broker_keep_no_more_than_a_window(
    seed: int, late_s: float
) -> None:
    talk = Talk(Air(late_s=late_s), seed, [1_000_000], [])
    talk.prepare = lambda listener: setattr(listener, "is_slow", True)  # type: ignore[method-assign]
    talk.run(100.0)
    assert talk.listener is not None
    assert not talk._is_broken()
    assert talk.most_in_air <= 2 * WINDOW_BYTES
    talk.listener.is_slow = False
    talk.listener.use(talk.now)
    assert len(talk.listener.got) == WINDOW_BYTES
    talk.finish()
    assert talk._has_all()


@given(payload=st.binary(max_size=200))
def test_garbage_is_no_segment_or_means_nothing_to_a_stream(payload: bytes) -> None:
    end = BrokeredEnd(7, 0.0, 8)
    segment = segment_in(payload)
    if segment is not None:
        end.hear(segment, 0.0)
    assert not end.over
    assert not end.is_open


def test_a_segment_is_what_was_encoded() -> None:
    whole = StreamSegment(Kind.DATA, 1, 2, 3, 4, 5, b"six")
    assert segment_in(whole.encode()) == whole
    assert segment_in(whole.encode()[:20]) is None
    assert segment_in(b"\2" + whole.encode()[1:]) is None
    assert (
        segment_in(StreamSegment(Kind.DATA, 1, 2, window=WINDOW_BYTES + 1, data=b"x").encode())
        is None
    )


def test_an_end_that_acknowledges_what_was_not_sent_is_broken_off() -> None:
    end = BrokeredEnd(7, 0.0, 8)
    end.hear(StreamSegment(Kind.ACK, 7, 8, acked=1), 0.0)
    assert end.broken == "the other end has acknowledged what was not sent"
    assert end.out[-1].kind is Kind.RESET


def test_a_second_listener_is_told_that_another_one_has_answered() -> None:
    end = BrokeredEnd(7, 0.0)
    end.hear(StreamSegment(Kind.OPENED, 7, 8), 0.0)
    end.out.clear()
    end.hear(StreamSegment(Kind.OPENED, 7, 9), 0.0)
    assert [(said.kind, said.to) for said in end.out] == [(Kind.RESET, 9)]
    assert end.is_open
    assert end.theirs == 8


class _TakesGaps(Receiving):
    def take(self, segment: StreamSegment) -> bool:
        self.expected = max(self.expected, segment.offset)
        return super().take(segment)


class _TakesRepeats(Receiving):
    def take(self, segment: StreamSegment) -> bool:
        if segment.offset < self.expected and segment.data:
            self._ready.append(segment.data)
        return super().take(segment)


class _NeverRepeats(Sending):
    def lost(self, now: float, *, patient: bool = True) -> list[StreamSegment]:
        super().lost(now, patient=patient)
        return []


class _ForgetsTheWindow(Sending):
    def acknowledge(self, acked: int, window: int, now: float) -> list[StreamSegment]:
        return super().acknowledge(acked, 2**40, now)


def held_up(seed: int, make: type[BrokeredEnd]) -> Talk:
    """A bad broker, and a reader who is slow at first."""
    talk = Talk(Air(0.1, 0.3, 0.05), seed, [900_000], [100, 40_000], make)
    talk.prepare = lambda one: (Talk.prepare(talk, one), setattr(one, "is_slow", True))  # type: ignore
    talk.run(5.0)
    if talk.listener is not None:
        talk.listener.is_slow = False
    talk.finish()
    return talk


Rule = type[Receiving] | type[Sending]


@pytest.mark.parametrize("rule", [_TakesGaps, _TakesRepeats, _NeverRepeats, _ForgetsTheWindow])
def test_a_stream_with_one_rule_broken_is_found(rule: Rule) -> None:
    class Broken(BrokeredEnd):
        def __init__(self, mine: int, now: float, theirs: int = 0) -> None:
            super().__init__(mine, now, theirs)
            if issubclass(rule, Receiving):
                self._receiving = rule()
            else:
                self._sending = rule()

    def holds(seed: int) -> bool:
        talk = held_up(seed, Broken)
        try:
            talk.check()
        except AssertionError:
            return False
        return talk._has_all() and talk.most_in_air <= 2 * WINDOW_BYTES

    assert not all(holds(seed) for seed in range(4))


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_with_no_rule_broken_passes_that_search(seed: int) -> None:
    talk = held_up(seed, BrokeredEnd)
    talk.check()
    assert talk._has_all()
    assert talk.most_in_air <= 2 * WINDOW_BYTES
