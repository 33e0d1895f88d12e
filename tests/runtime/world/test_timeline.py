"""Virtual time, and the loops that share it."""

from __future__ import annotations

import asyncio
import itertools
import signal
import threading
import time

import pytest

from anabranch.runtime.world.loop import VirtualLoop
from anabranch.runtime.world.timeline import TURN_MAX_S, Deadlock, TooLong
from tests.runtime.world.loops import Loops

HOUR = 3600.0


def test_hours_pass_at_once_and_in_their_order() -> None:
    loops, order = Loops(), list[str]()

    async def sleep(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append(name)

    async def work() -> float:
        began = asyncio.get_running_loop().time()
        await asyncio.gather(sleep("late", 5 * HOUR), sleep("soon", 1.0), sleep("later", HOUR))
        return asyncio.get_running_loop().time() - began

    before = time.process_time()
    assert loops.run(work()) == pytest.approx(5 * HOUR, abs=1e-3)
    assert order == ["soon", "later", "late"]
    assert time.process_time() - before < 5.0
    assert loops.timeline.turns < 100


def test_what_waits_for_each_other_is_named() -> None:
    loops = Loops()

    async def work() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match="nothing is left that could happen; waiting: main: work"):
        loops.run(work())


def test_a_world_that_goes_on_for_ever_has_a_bound() -> None:
    loops = Loops()

    async def tick() -> None:
        for _ in itertools.count():
            await asyncio.sleep(1.0)

    loops.loop("ticking").create_task(tick(), name="tick")
    with pytest.raises(TooLong, match="after 60 s of its time; waiting: ticking: tick"):
        loops.timeline.run(lambda: False, until_s=60.0)


def test_who_waits_in_a_circle_does_not_stop_the_time() -> None:
    loops = Loops()

    async def poll() -> int:
        turns, loop = 0, asyncio.get_running_loop()
        while loop.time() < 0.01:
            await asyncio.sleep(0)
            turns += 1
        return turns

    turns = loops.run(poll())
    assert 0.01 / TURN_MAX_S < turns < 3000


async def _count(upto: float, said: list[str], name: str) -> None:
    loop = asyncio.get_running_loop()
    while loop.time() < upto:
        await asyncio.sleep(0)
        said.append(name)


def _race(seed: int, slowness: float = 1.0) -> list[str]:
    loops, said = Loops(seed), list[str]()
    for name in "ab":
        loop = loops.loop(name)
        loop.slowness = slowness if name == "b" else 1.0
        loop.create_task(_count(0.01, said, name))
    loops.run(asyncio.sleep(0.02))
    return said


def test_the_seed_says_who_overtakes() -> None:
    assert _race(1) == _race(1)
    assert _race(1) != _race(2)


def test_a_slow_process_has_fewer_turns() -> None:
    said = _race(1, slowness=20.0)
    assert said.count("b") * 10 < said.count("a")


def test_a_killed_process_does_nothing_any_more_not_even_what_it_does_in_the_end() -> None:
    loops, done = Loops(), list[str]()
    victim = loops.loop("victim")

    async def live() -> None:
        try:
            await asyncio.sleep(1.0)
            done.append("lived")
        finally:
            done.append("tidied up")

    victim.create_task(live())
    victim.call_later(0.5, done.append, "half")

    async def work() -> None:
        await asyncio.sleep(0.7)
        victim.kill()
        victim.post(done.append, "late")
        await asyncio.sleep(5.0)

    loops.run(work())
    assert done == ["half"]
    assert len(victim.left) == 1
    victim.forget()


def test_what_ends_its_own_process_is_the_last_that_it_does() -> None:
    loops, done = Loops(), list[str]()
    victim = loops.loop("victim")
    victim.call_soon(victim.kill)
    victim.call_soon(done.append, "more")
    loops.run(asyncio.sleep(1.0))
    assert done == []


def test_a_thread_is_a_pause_in_which_others_have_their_turns() -> None:
    loops, order = Loops(), list[str]()

    async def beside() -> None:
        order.append("beside")

    async def work() -> int:
        task = asyncio.get_running_loop().create_task(beside())
        ident = await asyncio.to_thread(threading.get_ident)
        order.append("work")
        await task
        return ident

    assert loops.run(work()) == threading.get_ident()
    assert order == ["beside", "work"]


def test_what_a_thread_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        Loops().run(asyncio.to_thread(lambda: 1 // 0))


def test_a_time_limit_is_one_of_virtual_time() -> None:
    async def work() -> None:
        await asyncio.wait_for(asyncio.sleep(HOUR), HOUR / 2)

    with pytest.raises(TimeoutError):
        Loops().run(work())


def test_a_signal_is_handled_or_not() -> None:
    loops, got = Loops(), list[int]()
    loop: VirtualLoop = loops.loop("signalled")
    loop.add_signal_handler(signal.SIGTERM, got.append, 15)
    assert loop.signal(signal.SIGTERM)
    assert not loop.signal(signal.SIGHUP)
    loops.run(asyncio.sleep(0.1))
    assert got == [15]


def test_what_a_callback_raises_is_told() -> None:
    loops = Loops()
    loops.loop("careless").call_soon(lambda: 1 // 0)
    loops.run(asyncio.sleep(0.1))
    assert isinstance(loops.errors[0]["exception"], ZeroDivisionError)


def test_no_socket_can_be_had() -> None:
    with pytest.raises(NotImplementedError):
        Loops().run(asyncio.open_connection("localhost", 80))


def test_time_that_passes_in_a_turn_passes_for_its_process_alone() -> None:
    """Two that work for ten seconds each do so side by side, and each does what follows later."""
    loops, done = Loops(), list[tuple[str, float]]()
    other = loops.loop("other")

    def note(name: str) -> None:
        done.append((name, loops.timeline.now))

    async def work(name: str, seconds: float) -> None:
        loops.timeline.pass_by(seconds)
        note(name)
        other.post(note, f"heard of {name}")
        asyncio.get_running_loop().call_later(1.0, note, f"{name} later")

    for name, seconds in (("short", 1.0), ("long", 10.0)):
        loops.loop(name).create_task(work(name, seconds))
    loops.run(asyncio.sleep(20.0))
    assert dict(done) == pytest.approx(
        {
            "short": 1.0,
            "heard of short": 1.0,
            "short later": 2.0,
            "long": 10.0,
            "heard of long": 10.0,
            "long later": 11.0,
        },
        abs=1e-3,
    )


def test_what_comes_while_a_process_works_waits_until_it_has_done() -> None:
    loops, heard = Loops(), list[float]()
    busy = loops.loop("busy")
    busy.post(loops.timeline.pass_by, 5.0)
    busy.call_later(1.0, lambda: heard.append(loops.timeline.now))
    loops.run(asyncio.sleep(9.0))
    assert heard == pytest.approx([5.0], abs=1e-3)
