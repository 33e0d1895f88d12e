"""Connections in a world: what a socket promises, and what goes wrong with one."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from anabranch.runtime.world.loop import VirtualLoop
from anabranch.runtime.world.stream import Conditions, StreamEnd
from tests.runtime.world.loops import Loops

PLACE = "unix:/a.sock"
ROUGH = Conditions(jitter_s=0.01, stalls=0.2, cuts=0.7)


class Hearer(asyncio.Protocol):
    """Notes all that happens to it. Each has a number."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.pieces = 0
        self.lost: list[Exception | None] = []
        self.ended = False
        self.held_up: list[bool] = []
        self.end: StreamEnd

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, StreamEnd)
        self.end = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.pieces += 1

    def eof_received(self) -> bool:
        self.ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.held_up.append(True)

    def resume_writing(self) -> None:
        self.held_up.append(False)


class Pairs:
    """Makes connections from `a` to a listener in `b`."""

    def __init__(self, seed: int = 1, conditions: Conditions | None = None) -> None:
        self.loops = Loops(seed, conditions)
        self.a, self.b = self.loops.loop("a"), self.loops.loop("b")
        self.accepted: list[Hearer] = []
        self.loops.network.listen(self.b, PLACE, self._accept)

    def _accept(self) -> Hearer:
        assert asyncio.get_running_loop() is self.b
        self.accepted.append(Hearer())
        return self.accepted[-1]

    def dial(self) -> tuple[Hearer, Hearer]:
        async def dialled() -> Hearer:
            return await self.loops.network.dial(self.a, PLACE, Hearer)

        near = self.loops.run(dialled(), loop=self.a)
        self.pass_s(0.001)
        return near, self.accepted[-1]

    def pass_s(self, seconds: float) -> None:
        self.loops.run(asyncio.sleep(seconds), loop=self.loops.loop("time"))


@pytest.mark.parametrize("seed", range(5))
def test_bytes_come_whole_and_in_their_order_cut_anywhere(seed: int) -> None:
    pairs = Pairs(seed, ROUGH)
    near, far = pairs.dial()
    said = [bytes([n]) * (1 + 7 * n) for n in range(100)]
    for piece in said[:50]:
        near.end.write(piece)
    near.end.writelines(said[50:])
    far.end.write(b"and back")
    pairs.pass_s(60.0)
    assert far.heard == b"".join(said)
    assert near.heard == b"and back"
    assert far.pieces > 51
    assert far.end.peer.sent_bytes == len(far.heard)


def test_connections_overtake_each_other_and_pieces_of_one_do_not() -> None:
    pairs = Pairs(3, ROUGH)
    ends = [pairs.dial() for _ in range(20)]
    order = list[int]()

    def hear(number: int, far: Hearer) -> None:
        far.data_received = lambda data: order.extend([number] * len(data))  # type: ignore[method-assign]

    for number, (near, far) in enumerate(ends):
        hear(number, far)
        near.end.write(b"x")
    pairs.pass_s(10.0)
    assert sorted(order) == [*range(20)] != order


def test_nothing_listens_where_nothing_does() -> None:
    loops = Loops()

    async def dial(loop: VirtualLoop) -> None:
        await loops.network.dial(loop, "unix:/nowhere.sock", Hearer)

    with pytest.raises(ConnectionRefusedError):
        loops.run(dial(loop := loops.loop()), loop=loop)


def test_a_place_is_free_again_when_its_listener_has_gone() -> None:
    pairs = Pairs()
    with pytest.raises(OSError, match="in use"):
        pairs.loops.network.listen(pairs.a, PLACE, Hearer)
    pairs.loops.network.end_of(pairs.b)
    pairs.loops.network.listen(pairs.a, PLACE, Hearer).close()
    pairs.loops.network.listen(pairs.a, PLACE, Hearer)


def test_who_closes_is_heard_to_the_end() -> None:
    pairs = Pairs(conditions=Conditions(wire_bytes=1000))
    near, far = pairs.dial()
    near.end.write(b"x" * 10_000)
    near.end.close()
    near.end.write(b"too late")
    pairs.pass_s(5.0)
    assert far.heard == b"x" * 10_000
    assert far.ended
    assert near.lost == far.lost == [None]


@pytest.mark.parametrize("how", ["the other end writes", "the other process ends"])
def test_an_end_that_closes_with_unsent_bytes_is_lost_in_the_end(how: str) -> None:
    pairs = Pairs(conditions=Conditions(wire_bytes=1000, cuts=0.0))
    near, far = pairs.dial()
    far.end.pause_reading()
    near.end.write(b"x" * 1500)
    near.end.close()
    pairs.pass_s(1.0)
    assert near.lost == []
    if how == "the other end writes":
        far.end.write(b"nothing reads this any more")
        far.end.resume_reading()
    else:
        pairs.b.kill()
        pairs.loops.network.end_of(pairs.b)
    pairs.pass_s(1.0)
    assert len(near.lost) == 1
    if how == "the other end writes":
        assert far.heard == b"x" * 1500
        assert far.lost == [None]


def test_one_way_may_end_before_the_other() -> None:
    pairs = Pairs()
    near, far = pairs.dial()
    far.eof_received = lambda: True  # type: ignore[method-assign]
    near.end.write_eof()
    pairs.pass_s(1.0)
    far.end.write(b"an answer")
    pairs.pass_s(1.0)
    assert near.heard == b"an answer"
    assert (near.lost, far.lost) == ([], [])


def test_what_is_aborted_is_a_reset_for_the_other_end() -> None:
    pairs = Pairs()
    near, far = pairs.dial()
    near.end.abort()
    pairs.pass_s(1.0)
    assert near.lost == [None]
    assert isinstance(far.lost[0], ConnectionResetError)


@pytest.fixture(params=["clogged", "not read"])
def stuck(request: pytest.FixtureRequest) -> tuple[Pairs, Hearer, Hearer]:
    """For ten seconds nothing comes in at the far end."""
    pairs = Pairs(conditions=Conditions(wire_bytes=1000, cuts=0.0))
    near, far = pairs.dial()
    if request.param == "clogged":
        far.end.clog(10.0)
    else:
        far.end.pause_reading()
        pairs.b.call_later(10.0, far.end.resume_reading)
    return pairs, near, far


def test_a_reader_that_does_not_read_holds_up_its_writer(
    stuck: tuple[Pairs, Hearer, Hearer],
) -> None:
    pairs, near, far = stuck
    near.end.set_write_buffer_limits(high=500)
    near.end.write(b"x" * 1400)
    assert near.held_up == []
    near.end.write(b"x" * 400)
    assert near.held_up == [True]
    assert near.end.get_write_buffer_size() == 800
    pairs.pass_s(5.0)
    assert not far.heard
    pairs.pass_s(10.0)
    assert far.heard == b"x" * 1800
    assert near.held_up == [True, False]


def test_a_cut_is_heard_at_both_ends_or_at_one_long_before_the_other() -> None:
    pairs = Pairs()
    for later_s in (0.0, 5.0):
        near, far = pairs.dial()
        pairs.loops.network.cut(near.end, later_s)
        pairs.pass_s(1.0)
        assert isinstance(near.lost[0], ConnectionResetError)
        assert len(far.lost) == (later_s == 0.0)
        pairs.pass_s(5.0)
        assert len(far.lost) == 1
    assert pairs.loops.network.open_ends == []


def test_who_writes_to_a_lost_end_hears_of_it() -> None:
    pairs = Pairs()
    near, far = pairs.dial()
    pairs.loops.network.cut(near.end, 60.0)
    pairs.pass_s(1.0)
    far.end.write(b"are you there?")
    pairs.pass_s(1.0)
    assert isinstance(far.lost[0], ConnectionResetError)


def test_what_a_process_has_sent_outlives_it() -> None:
    pairs = Pairs(conditions=Conditions(latency_s=0.5, wire_bytes=1000))
    near, far = pairs.dial()
    near.end.write(b"x" * 1500)
    pairs.a.kill()
    pairs.loops.network.end_of(pairs.a)
    pairs.pass_s(5.0)
    assert far.heard == b"x" * 1000
    assert far.ended
    assert near.lost == []


def test_the_same_seed_gives_the_same_arrivals() -> None:
    def arrivals(seed: int) -> list[float]:
        pairs = Pairs(seed, ROUGH)
        near, far = pairs.dial()
        times = list[float]()
        far.data_received = lambda data: times.append(pairs.loops.timeline.now)  # type: ignore[method-assign]
        for _ in itertools.repeat(None, 20):
            near.end.write(b"some words")
        pairs.pass_s(10.0)
        return times

    assert arrivals(1) == arrivals(1) != arrivals(2)
