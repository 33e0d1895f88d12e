"""The membership of one host: what it says, and what it makes of what comes in."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.hosts import frames, membership
from anabranch.runtime.hosts.budget import BURST_BYTES, BYTES_PER_S, Budget
from anabranch.runtime.hosts.effects import (
    Changed,
    Dial,
    DrainWanted,
    Effect,
    FrameCame,
    HangUp,
    KeepIncarnation,
    Say,
    StreamLost,
    Tick,
)
from anabranch.runtime.hosts.frames import Answer, AskOther, Probe, ProbeOutcome, Refused, Rows
from anabranch.runtime.hosts.host import HostInfo, HostState, HostStatement
from anabranch.runtime.hosts.membership import HostMembership
from tests.runtime.hosts.test_table import host

ME = host("me", key=b"m" * 8)


def among(*others: str) -> HostMembership:
    """A host that knows these to be live."""
    one = HostMembership(ME, [], random.Random(1), 0.0)
    rows = [HostStatement(host(name), HostState.ALIVE) for name in others]
    one.handle(FrameCame(-1, frames.encode(Rows(rows, b""))), 0.0)
    return one


def state_of(one: HostMembership, name: str) -> HostState | None:
    row = one.table.get(name)
    return None if row is None else row.state


def dials(effects: list[Effect]) -> list[tuple[int, object]]:
    return [(e.number, frames.decode(e.body)) for e in effects if isinstance(e, Dial)]


def answer_of(name: str, key: bytes = b"k" * 8) -> bytes:
    return frames.encode(Answer(name, key, 1, None, None, []))


def probing(one: HostMembership, now: float = 0.0) -> tuple[int, Probe]:
    ((number, probe),) = dials(one.handle(Tick(), now))
    assert isinstance(probe, Probe)
    return number, probe


def test_a_host_that_does_not_answer_is_suspected_once_another_one_cannot_reach_it() -> None:
    one = among("a", "b")
    number, probe = probing(one)
    asked = dials(one.handle(StreamLost(number), 0.1))
    (other,) = {"a", "b"} - {probe.to}
    ((helper, frame),) = asked
    assert isinstance(frame, AskOther)
    assert frame.target.name == probe.to
    assert state_of(one, probe.to) is HostState.ALIVE
    effects = one.handle(FrameCame(helper, frames.encode(ProbeOutcome(False))), 0.2)
    assert Changed(host(probe.to), HostState.ALIVE, HostState.SUSPECTED) in effects
    assert state_of(one, other) is HostState.ALIVE


def test_a_host_that_is_drained_says_so_in_another_incarnation_and_keeps_that_when_it_objects() -> (
    None
):
    one = among("a")
    effects = one.handle(DrainWanted(True), 0.0)
    assert (one.me.incarnation, one.me.drained) == (2, True)
    assert effects == [KeepIncarnation(2)]
    assert one.handle(DrainWanted(True), 0.0) == []
    said = HostStatement(one.me, HostState.SUSPECTED)
    one.handle(FrameCame(-2, frames.encode(Rows([said], b""))), 0.0)
    assert (one.me.incarnation, one.me.drained) == (3, True)
    other = HostMembership(host("a"), [], random.Random(1), 0.0)
    mine = HostStatement(one.me, HostState.ALIVE)
    before = HostStatement(ME, HostState.ALIVE)
    for number, rows in enumerate(([before], [mine], [before])):
        told = other.handle(FrameCame(-1 - number, frames.encode(Rows(rows, b""))), 0.0)
        assert (Changed(one.me, HostState.ALIVE, HostState.ALIVE) in told) == (rows == [mine])
    assert [row.host.drained for row in other.table if row.host.name == "me"] == [True]
    one.handle(DrainWanted(False), 0.0)
    assert not one.me.drained


def test_a_host_that_another_one_reaches_is_not_suspected() -> None:
    one = among("a", "b")
    number, probe = probing(one)
    ((helper, _),) = dials(one.handle(StreamLost(number), 0.1))
    one.handle(FrameCame(helper, frames.encode(ProbeOutcome(True))), 0.2)
    assert state_of(one, probe.to) is HostState.ALIVE


def test_one_that_reaches_it_counts_more_than_another_one_that_does_not() -> None:
    one = among("a", "b", "c")
    number, probe = probing(one)
    asked = dials(one.handle(StreamLost(number), 0.1))
    for (helper, _), reached in zip(asked, (False, True), strict=True):
        one.handle(FrameCame(helper, frames.encode(ProbeOutcome(reached))), 0.2)
    assert state_of(one, probe.to) is HostState.ALIVE


def test_without_a_witness_one_failure_is_no_suspicion() -> None:
    one, now = among("a"), 0.0
    for trial in range(1, membership.TRIALS_ALONE + 1):
        number, _ = probing(one, now)
        one.handle(StreamLost(number), now)
        expected = HostState.ALIVE if trial < membership.TRIALS_ALONE else HostState.SUSPECTED
        assert state_of(one, "a") is expected
        now = one.next_due()


def test_a_host_whose_own_timers_come_late_gives_the_others_time() -> None:
    """Its process was stopped, or the machine asleep."""
    one = among("a")
    number, _ = probing(one)
    effects = one.handle(Tick(), 500.0)
    assert HangUp(number) not in effects
    one.handle(FrameCame(number, answer_of("a")), 500.1)
    assert state_of(one, "a") is HostState.ALIVE


def test_a_suspected_host_is_dead_after_a_time_in_which_it_may_say_that_it_lives() -> None:
    one = among("a", "b")
    suspected = Rows([HostStatement(host("a"), HostState.SUSPECTED)], b"")
    one.handle(FrameCame(-2, frames.encode(suspected)), 0.0)
    back = Rows([HostStatement(host("a", 2), HostState.ALIVE)], b"")
    other = among("a", "b")
    other.handle(FrameCame(-2, frames.encode(suspected)), 0.0)
    other.handle(FrameCame(-3, frames.encode(back)), membership.SUSPICION_S - 1)
    for each in (one, other):
        now = 0.0
        while now < membership.SUSPICION_S + 1:
            now = each.next_due()
            for number, probe in dials(each.handle(Tick(), now)):
                if isinstance(probe, Probe) and probe.to == "b":
                    each.handle(FrameCame(number, answer_of("b")), now)
    assert state_of(one, "a") is HostState.DEAD
    assert state_of(other, "a") is not HostState.DEAD


@pytest.mark.parametrize("state", [HostState.SUSPECTED, HostState.DEAD, HostState.LEFT])
def test_a_host_takes_back_what_others_say_of_it(state: HostState) -> None:
    one = among("a")
    rows = Rows([HostStatement(msgspec.structs.replace(ME, incarnation=4), state)], b"")
    effects = one.handle(FrameCame(-2, frames.encode(rows)), 1.0)
    assert KeepIncarnation(5) in effects
    assert (one.me.incarnation, state_of(one, "me")) == (5, HostState.ALIVE)


def test_it_hears_in_the_probe_itself_what_the_other_host_takes_it_for() -> None:
    one = among("a")
    opinion = frames.Opinion(ME.key, 1, HostState.DEAD)
    one.handle(FrameCame(-2, frames.encode(Probe("a", b"k" * 8, 1, "me", bytes(8), opinion))), 1.0)
    assert one.me.incarnation == 2


def test_another_host_at_the_address_is_not_the_host_that_was_asked_for() -> None:
    one = among("a", "b")
    number, probe = probing(one)
    effects = one.handle(FrameCame(number, answer_of(probe.to, b"x" * 8)), 0.1)
    assert any(isinstance(frame, AskOther) for _, frame in dials(effects))


def test_a_second_host_with_the_name_of_a_live_one_is_refused_with_the_address_of_that() -> None:
    one = among("a")
    probe = Probe("a", b"x" * 8, 9, "", bytes(8), None)
    effects = one.handle(FrameCame(-2, frames.encode(probe)), 1.0)
    assert effects == [Say(-2, frames.encode(Refused("a:1"))), HangUp(-2)]
    own = Probe("me", b"x" * 8, 9, "", bytes(8), None)
    assert one.handle(FrameCame(-3, frames.encode(own)), 1.0)[0] == Say(
        -3, frames.encode(Refused("me:1"))
    )


def test_a_full_network_refuses_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "HOSTS_MAX", 2)
    one = among("a")
    probe = Probe("b", b"x" * 8, 1, "", bytes(8), None)
    effects = one.handle(FrameCame(-2, frames.encode(probe)), 1.0)
    assert effects[0] == Say(-2, frames.encode(Refused(None)))


def test_a_host_that_has_said_enough_says_that_it_is_busy() -> None:
    one = among("a")
    probe = frames.encode(Probe("b", b"x" * 8, 1, "", bytes(8), None))
    said = [one.handle(FrameCame(-n, probe), 1.0)[0] for n in range(2, 1000)]
    size = sum(len(each.body) for each in said if isinstance(each, Say))
    assert isinstance(said[-1], Say)
    assert frames.decode(said[-1].body) == frames.Busy()
    assert size < 2 * BURST_BYTES


def test_a_budget_gives_no_more_than_its_rate_over_time() -> None:
    budget, said = Budget(0.0), 0
    for tenth in range(1000):
        room = budget.room(tenth / 10)
        budget.spend(room)
        said += room
    assert 0.9 * 100 * BYTES_PER_S < said <= 100 * BYTES_PER_S + BURST_BYTES


def test_what_is_too_long_or_has_other_fields_is_no_frame() -> None:
    long = host("n" * 64)
    many = HostInfo("a", b"k" * 8, 1, "a:1", "", {str(n): "" for n in range(17)}, 1, 1, "1")
    short_key = host("a", key=b"k")
    for wrong in (long, many, short_key):
        with pytest.raises(msgspec.DecodeError):
            frames.decode(frames.encode(Rows([HostStatement(wrong, HostState.ALIVE)], b"")))


seeds_of_frames = [
    Probe("a", b"k" * 8, 1, "me", bytes(8), frames.Opinion(b"m" * 8, 3, HostState.DEAD)),
    Answer("a", b"k" * 8, 1, None, b"1234", [HostStatement(host("c"), HostState.ALIVE)]),
    Rows([HostStatement(host("d"), HostState.SUSPECTED)], b"12345"),
    Refused("a:1"),
    ProbeOutcome(False),
    AskOther(host("b")),
    frames.Busy(),
]


@given(st.data())
def test_no_frame_whatever_it_is_breaks_a_host(data: st.DataObject) -> None:
    one = among("a", "b")
    now = 0.0
    for _ in range(12):
        now += data.draw(st.floats(0, 3))
        body = bytearray(frames.encode(data.draw(st.sampled_from(seeds_of_frames))))
        for _ in range(data.draw(st.integers(0, 3))):
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
        number = data.draw(st.sampled_from([-1, -2, 1, 2, 3]))
        one.handle(FrameCame(number, bytes(body)), now)
        if data.draw(st.booleans()):
            one.handle(Tick(), now)
    assert state_of(one, "me") is HostState.ALIVE
    assert one.next_due() > now - 60
    assert any(isinstance(row.host, HostInfo) for row in one.table)


def test_a_seed_that_is_put_in_later_is_tried_and_one_that_was_taken_back_is_not() -> None:
    one = HostMembership(ME, [], random.Random(1), 0.0)
    assert dials(one.handle(Tick(), one.next_due())) == []
    one.seeds["10.0.0.7:7433"] = ""
    (dial,) = (e for e in one.handle(Tick(), one.next_due()) if isinstance(e, Dial))
    assert dial.address == "10.0.0.7:7433"
    del one.seeds["10.0.0.7:7433"]
    one.handle(FrameCame(dial.number, answer_of("a")), 1.0)
    assert one.seeds == {}
    assert dials(one.handle(Tick(), one.next_due())) == []


def probed(one: HostMembership, name: str, begun: float, seconds: float) -> None:
    number, _ = probing(one, begun)
    one.handle(FrameCame(number, answer_of(name)), begun + seconds)


def test_how_long_probes_take_is_smoothed() -> None:
    one = among("a")
    assert one.latencies.of("a") is None
    probed(one, "a", 0.0, 0.008)
    assert one.latencies.of("a") == pytest.approx(0.008)
    probed(one, "a", 2.0, 0.016)
    assert one.latencies.of("a") == pytest.approx(0.009)


def test_an_answer_of_another_host_says_nothing_of_how_far_one_is() -> None:
    one = among("a")
    number, _ = probing(one)
    one.handle(FrameCame(number, answer_of("b")), 0.004)
    assert (one.latencies.of("a"), one.latencies.of("b")) == (None, None)


def test_how_far_a_host_was_is_forgotten_when_it_is_gone() -> None:
    one = among("a")
    probed(one, "a", 0.0, 0.008)
    left = Rows([HostStatement(host("a"), HostState.LEFT)], b"")
    one.handle(FrameCame(-2, frames.encode(left)), 1.0)
    assert one.latencies.of("a") is None
