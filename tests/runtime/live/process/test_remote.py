"""Processes on another host, through streams that break: nothing is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import pytest

from anabranch.runtime.live.hosts.stream import FrameStream
from anabranch.runtime.live.process import tunnel as tunnels_of
from anabranch.runtime.live.process.hosted import HostWorker
from anabranch.runtime.live.process.kernel_view import KernelLook
from anabranch.runtime.live.process.processes import ForkError
from anabranch.runtime.live.process.tunnel import NumberedPiece, Tunnel, TunnelError, written
from anabranch.runtime.world.stream import Conditions
from tests.runtime.live.process.tunnels import ROUGH, Far, Heard, Near, until

COUNT = {"count": 5, "size": 10, "every_s": 0.0}
SMOOTH = Conditions()


def carry_out(
    act: Callable[[Far, Near], Awaitable[None]], seed: int = 1, conditions: Conditions = SMOOTH
) -> Far:
    far = Far(seed, conditions)

    async def begin() -> None:
        near = Near(far)
        await near.processes.start(10.0)
        try:
            await act(far, near)
        finally:
            await near.processes.stop()
        await asyncio.sleep(3)  # for the worker to end

    with far.going_on():
        far.loops.run(begin(), loop=far.home)
    return far


def test_a_process_elsewhere_is_made_asked_and_hears_and_its_end_is_told() -> None:
    async def act(far: Far, near: Near) -> None:
        one = await near.fork()
        assert one.process.pid == 1001
        one.process.send(COUNT)
        one.process.send({"echo": 7})
        await until(lambda: len(one.numbers) == 5 and one.echoes == [7])
        one.process.send({"end": 4})
        assert await one.process.exited == 4
        assert one.last == 5
        assert one.link_closed_with == one.exited_with == 5
        assert one.process.link.error is None
        await one.process.last_words()
        one.process.close()
        assert near.processes.place.listen == "far"
        assert near.processes.is_reachable

    assert carry_out(act).kept == [True]


def test_a_process_elsewhere_is_killed_and_its_exit_says_so() -> None:
    async def act(far: Far, near: Near) -> None:
        one = await near.fork()
        near.processes.kill(one.process)
        assert await one.process.exited == -signal.SIGKILL
        assert not one.process.orphan_wait

    carry_out(act)


def test_closing_a_link_ends_its_process() -> None:
    async def act(far: Far, near: Near) -> None:
        one = await near.fork()
        one.process.link.close()
        assert await one.process.exited == 3

    carry_out(act)


def test_a_worker_removes_files_and_the_run_says_whether_they_are_kept() -> None:
    async def act(far: Far, near: Near) -> None:
        near.processes.remove_files("work", 3)
        near.processes.keeps = False

    far = carry_out(act)
    assert far.removed == [("work", 3)]
    assert far.kept == [False]


def test_files_are_removed_by_the_next_worker_if_the_last_one_has_not_heard_of_it() -> None:
    async def act(far: Far, near: Near) -> None:
        far.cut_off_now()
        near.processes.remove_files("work", 3)
        await asyncio.sleep(1)
        far.begin_worker()
        far.cut_off = False
        await until(lambda: bool(far.removed))
        await asyncio.sleep(5)

    assert carry_out(act).removed == [("work", 3)]


def test_a_host_that_refuses_or_cannot_read_the_pipeline_says_why() -> None:
    def refuse(**why: str) -> tuple[str, list[str]]:
        far = Far(1, SMOOTH)
        vars(far).update(why)

        async def begin() -> list[str]:
            near = Near(far)
            with pytest.raises(ForkError, match="no numpy") as told:
                await near.processes.start(10.0)
            with pytest.raises(ForkError, match="no numpy"):
                await near.processes.fork()
            await near.processes.stop()
            assert str(told.value) == near.lost[0]
            return near.lost

        with far.going_on():
            return "", far.loops.run(begin(), loop=far.home)

    assert refuse(refused="no numpy") == refuse(cannot_load="no numpy")
    assert refuse(refused="no numpy")[1] == ["host 'far': no numpy"]


def test_a_worker_that_can_make_no_more_still_hears_that_the_run_ends() -> None:
    async def act(far: Far, near: Near) -> None:
        one = await near.fork()
        far.processes[-1].on_lost("no memory")
        await until(lambda: near.lost == ["host 'far': no memory"])
        assert one.process.exit_code is None
        near.processes.keeps = False

    far = carry_out(act)
    assert far.kept == [False]
    assert not far.processes[-1].alive


def test_a_fork_that_fails_there_says_why() -> None:
    async def act(far: Far, near: Near) -> None:
        far.processes[0].refuses = "no memory"
        with pytest.raises(ForkError, match="could be made on host 'far': no memory"):
            await near.processes.fork()
        far.processes[0].refuses = ""
        assert (await near.fork()).process.pid

    carry_out(act)


def test_processes_go_on_while_their_host_is_cut_off_and_all_they_said_comes_then() -> None:
    async def act(far: Far, near: Near) -> None:
        one = await near.fork()
        one.process.send({"count": 300, "size": 100, "every_s": 0.1})
        await asyncio.sleep(5)
        far.cut_off_now()
        await asyncio.sleep(1)
        had = len(one.numbers)
        assert not near.processes.is_reachable
        one.process.send({"echo": 1})
        await asyncio.sleep(40)
        assert len(one.numbers) == had
        assert far.processes[0].counting[1].said == 300
        far.cut_off = False
        await until(lambda: len(one.numbers) == 300 and one.echoes == [1], 15)
        assert one.numbers == list(range(1, 301))

    carry_out(act)


def test_why_a_host_is_away_is_said_once() -> None:
    async def act(far: Far, near: Near) -> None:
        for _ in range(2):
            far.away = "no agent answers"
            far.cut_off_now()
            far.cut_off = False
            await asyncio.sleep(60)
            far.away = ""
            await until(lambda: near.processes.is_reachable)
        assert near.printed == {"far": ["host far cannot be reached for now: no agent answers"] * 2}

    carry_out(act)


def test_no_process_is_made_until_the_host_can_be_reached() -> None:
    async def act(far: Far, near: Near) -> None:
        far.cut_off_now()
        await asyncio.sleep(1)
        making = asyncio.ensure_future(near.fork())
        await asyncio.sleep(100)
        assert not making.done()
        far.cut_off = False
        assert (await asyncio.wait_for(making, 10)).process.pid

    carry_out(act)


def test_a_process_that_is_killed_while_its_host_is_cut_off_ends_then() -> None:
    async def act(far: Far, near: Near) -> None:
        one = await near.fork()
        far.cut_off_now()
        near.processes.kill(one.process)
        await asyncio.sleep(30)
        assert one.process.exit_code is None
        far.cut_off = False
        assert await asyncio.wait_for(one.process.exited, 10) == -signal.SIGKILL

    carry_out(act)


def test_a_run_that_ends_while_a_host_is_cut_off_does_not_wait_for_it_for_long() -> None:
    async def act(far: Far, near: Near) -> None:
        await near.fork()
        far.cut_off_now()
        before = far.loops.timeline.now
        await near.processes.stop()
        assert far.loops.timeline.now - before < 8

    assert carry_out(act).kept == []


def test_a_worker_that_begins_anew_has_none_of_the_former_processes() -> None:
    async def act(far: Far, near: Near) -> None:
        one, other = await near.fork(), await near.fork()
        one.process.send(COUNT)
        await until(lambda: len(one.numbers) == 5)
        far.begin_worker()
        assert await asyncio.wait_for(one.process.exited, 15) == -signal.SIGKILL
        assert one.process.orphan_wait
        assert other.process.exit_code == -signal.SIGKILL
        assert one.process.link.closed.done()
        assert near.taken_over == 1
        again = await near.fork()
        again.process.send(COUNT)
        await until(lambda: len(again.numbers) == 5)

    carry_out(act)


def test_a_fork_that_its_worker_has_not_answered_is_done_by_the_next_one() -> None:
    async def act(far: Far, near: Near) -> None:
        making = asyncio.ensure_future(near.fork())
        await asyncio.sleep(0.005)
        far.begin_worker()
        one = await asyncio.wait_for(making, 15)
        one.process.send(COUNT)
        await until(lambda: len(one.numbers) == 5)

    carry_out(act)


def test_processes_wait_while_too_much_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = 200_000
    monkeypatch.setattr(tunnels_of, "UNACKNOWLEDGED_BYTES_MAX", bound)

    async def act(far: Far, near: Near) -> None:
        one = await near.fork()
        one.process.send({"count": 2000, "size": 1000, "every_s": 0.001})
        one.process.send({"end": 0})
        await until(lambda: len(one.numbers) > 2)
        far.cut_off_now()
        await asyncio.sleep(30)
        counting = far.processes[0].counting[1]
        assert 0 < counting.said < 2000
        waiting = far.worker._tunnel._kept_bytes
        assert bound <= waiting < 3 * bound
        far.cut_off = False
        assert await asyncio.wait_for(one.process.exited, 60) == 0
        assert one.numbers == list(range(1, 2001))
        assert one.exited_with == 2000

    carry_out(act)


def test_what_a_process_does_not_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from anabranch.runtime.live.process import remote_process

    monkeypatch.setattr(remote_process, "UNSENT_BYTES_MAX", 1000)

    async def act(far: Far, near: Near) -> None:
        one = await near.fork()
        for n in range(200):  # what has come there does not count
            one.process.send({"echo": n})
            await asyncio.sleep(0.01)
        assert one.process.link.error is None
        far.cut_off_now()
        for n in range(200):
            one.process.send({"echo": n})
        assert str(one.process.link.error) == "does not read its link"
        far.cut_off = False
        assert await asyncio.wait_for(one.process.exited, 15) == 3

    carry_out(act)


def test_the_clock_of_another_host_is_known_by_half_the_way() -> None:
    async def act(far: Far, near: Near) -> None:
        assert abs(near.processes.place.ahead_s) < 0.01

    carry_out(act)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_doubled_or_reordered_in_a_storm(seed: int) -> None:
    """Streams break at any byte, at one end long before the other, or deliver nothing."""
    rng = random.Random(seed)

    async def act(far: Far, near: Near) -> None:
        network = far.loops.network
        all_heard: list[tuple[Heard, list[int]]] = []
        expected: dict[int, int] = {}
        for _ in range(60):
            what = rng.random()
            if what < 0.2 or not all_heard:
                made = await near.fork()
                all_heard.append((made, []))
                expected[made.process.key] = 0
            one, sent = rng.choice(all_heard)
            count = rng.randrange(20)
            one.process.send(
                {"count": count, "size": rng.choice((1, 1, 500, 500, 90_000)), "every_s": 0}
            )
            expected[one.process.key] += count
            for _ in range(rng.randrange(5)):
                sent.append(len(sent))
                one.process.send({"echo": sent[-1]})
            if rng.random() < 0.5:
                far.cut(rng.choice((0.0, 0.5, 20.0)))
            elif rng.random() < 0.3:
                for end in network.open_ends:
                    end.clog(rng.uniform(0, 12))
            await asyncio.sleep(rng.uniform(0, 1))
        for one, _ in all_heard:
            one.process.send({"end": 0})
        for one, sent in all_heard:
            assert await asyncio.wait_for(one.process.exited, 300) == 0
            assert one.numbers == list(range(1, expected[one.process.key] + 1))
            assert one.echoes == sent
            assert one.last == one.exited_with == one.link_closed_with == len(one.numbers)
        assert not near.lost
        assert near.taken_over == 0
        assert not far.worker.refused, far.worker.refused
        assert not near.processes.line.refused, near.processes.line.refused

    carry_out(act, seed, Conditions(latency_s=2e-3, jitter_s=5e-3, stalls=0.02, cuts=0.3))


@pytest.mark.parametrize("seed", range(6))
def test_workers_that_begin_anew_in_a_storm_lose_processes_and_nothing_else(seed: int) -> None:
    rng = random.Random(f"anew {seed}")

    async def act(far: Far, near: Near) -> None:
        alive: list[Heard] = []
        for _ in range(40):
            what = rng.random()
            if what < 0.4:
                alive.append(await near.fork())
            elif what < 0.5:
                far.begin_worker()
            elif what < 0.7:
                far.cut(rng.choice((0.0, 5.0)))
            elif alive:
                rng.choice(alive).process.send({"count": 20, "size": 50, "every_s": 0.01})
            await asyncio.sleep(rng.uniform(0, 2))
        far.begin_worker()
        for one in alive:
            assert await asyncio.wait_for(one.process.exited, 60) == -signal.SIGKILL
            assert one.numbers == list(range(1, len(one.numbers) + 1))
            assert one.exited_with == len(one.numbers)
        again = await near.fork()
        again.process.send(COUNT)
        await until(lambda: len(again.numbers) == 5)

    carry_out(act, seed)


FORGED: list[Callable[[int], bytes]] = [
    lambda n: b"",
    lambda n: b"\xc1",
    lambda n: b"x" * 90_000,
    lambda n: written(NumberedPiece(n, False, b"\xc1")),
    lambda n: written(NumberedPiece(n, False, msgspec.msgpack.encode(("to", 5, b"")))),
    lambda n: written(NumberedPiece(n, False, msgspec.msgpack.encode(("make", 0)))),
    lambda n: written(NumberedPiece(n, False, msgspec.msgpack.encode(("make", -1)))),
    lambda n: written(NumberedPiece(n, True, b"")),
    lambda n: written(NumberedPiece(n + 1, False, b"")),
    lambda n: written(tunnels_of.Acknowledged(99)),
    lambda n: written(tunnels_of.TellTime(0.0, 0.0)),
    lambda n: written(tunnels_of.HomeGreeting(b"12345678", b"another", 1)),
]


@pytest.mark.parametrize("greets", [False, True])
def test_forged_frames_end_their_stream_and_are_counted(greets: bool) -> None:
    async def act(far: Far, near: Near) -> None:
        one, worker = await near.fork(), far.worker
        for n, forge in enumerate(FORGED):
            stream = await far.dial()
            assert await stream.receive() is not None  # its greeting
            if greets:
                first = worker._tunnel._session.first_kept
                home = near.processes.line._home
                stream.send(written(tunnels_of.HomeGreeting(home, worker._own, first)))
            stream.send(forge(worker._tunnel.expected))
            await _end_of(stream)
            await until(partial(_has_counted, worker, n + 1))
        assert far.processes[0].counting.keys() == {1}
        one.process.send(COUNT)
        await until(lambda: one.numbers == [1, 2, 3, 4, 5])

    carry_out(act)


def _has_counted(worker: HostWorker, count: int) -> bool:
    return worker.refused.total() == count


async def _end_of(stream: FrameStream) -> None:
    while await stream.receive() is not None:
        continue


def test_a_worker_listens_to_the_first_run_that_greets_and_to_no_other() -> None:
    async def act(far: Far, near: Near) -> None:
        await near.fork()
        other = Near(far)
        other.processes.line.start()
        await asyncio.sleep(10)
        assert not other.processes.is_reachable
        assert sum(other.processes.line.refused.values()) > 1
        await other.processes.stop()
        await until(lambda: near.processes.is_reachable)
        assert (await near.fork()).process.pid
        assert not near.taken_over

    carry_out(act)


def test_a_tunnel_takes_a_message_once_and_only_in_its_turn() -> None:
    got: list[object] = []
    tunnel = Tunnel("far", lambda body: body)
    tunnel.begin(1)
    tunnel.receive(NumberedPiece(1, True, b"a"), got.append)
    tunnel.receive(NumberedPiece(2, False, b"b"), got.append)
    tunnel.receive(NumberedPiece(2, False, b"b"), got.append)
    with pytest.raises(TunnelError, match="does not follow"):
        tunnel.receive(NumberedPiece(4, False, b"d"), got.append)
    assert got == [b"ab"]
    assert tunnel.expected == 3


def test_a_tunnel_refuses_a_message_above_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnels_of, "MESSAGE_BYTES_MAX", 10)
    tunnel = Tunnel("far", lambda body: body)
    tunnel.receive(NumberedPiece(1, True, b"123456"), lambda _: None)
    with pytest.raises(TunnelError, match="too large"):
        tunnel.receive(NumberedPiece(2, False, b"123456"), lambda _: None)


def test_dead_letters_come_home_when_the_run_has_come_to_its_end_over_a_bad_line() -> None:
    heard: list[bytes] = []
    letters = [b"%d\n" % number for number in range(100)]

    async def act(far: Far, near: Near) -> None:
        far.letters, near.processes.keeps = letters, False
        near.processes.on_letters = heard.append
        await near.fork()

    far = carry_out(act, conditions=ROUGH)
    assert far.kept == [False]
    assert heard == letters


@pytest.mark.parametrize("keeps", [True, False])
def test_dead_letters_stay_there_with_the_files_or_if_they_cannot_be_written_here(
    keeps: bool,
) -> None:
    told: list[str] = []
    heard: list[bytes] = []

    async def act(far: Far, near: Near) -> None:
        def refuse(lines: bytes) -> None:
            heard.append(lines)
            raise OSError(28, "No space left on device")

        far.letters, near.processes.keeps = [b"one\n"], keeps
        near.processes.on_letters = refuse
        await near.fork()
        await near.processes.stop()
        told.extend(near.printed["far"])
        await asyncio.sleep(30)  # for the worker to give up

    assert carry_out(act).kept == [True]
    assert (heard == []) is keeps
    assert all("dead letters of far stay there" in line for line in told)
    assert bool(told) is not keeps


def test_what_the_system_says_of_a_process_there_is_known_here_a_little_later() -> None:
    async def act(far: Far, near: Near) -> None:
        one, other = (await near.fork()).process, (await near.fork()).process
        assert near.processes.look(one.pid) is None
        far.looks[one.pid] = KernelLook("T", 5)
        await asyncio.sleep(3)
        assert near.processes.look(one.pid) == KernelLook("T", 5)
        assert near.processes.look(other.pid) is None
        far.cannot_look, far.looks[one.pid] = True, KernelLook("S", 6)
        await asyncio.sleep(3)
        assert near.processes.look(one.pid) == KernelLook("T", 5)
        far.cannot_look = False
        await asyncio.sleep(3)
        assert near.processes.look(one.pid) == KernelLook("S", 6)

    carry_out(act)


def test_a_stopped_process_from_which_all_are_forked_goes_on_there() -> None:
    async def act(far: Far, near: Near) -> None:
        await near.fork()
        far.looks[100] = KernelLook("T", 1)
        await asyncio.sleep(4)
        assert far.looks[100].state == "T"
        await asyncio.sleep(4)
        assert far.looks[100].state == "S"

    carry_out(act)
