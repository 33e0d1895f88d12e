"""What a host takes from others whose names are proved by certificates, and what it does not."""

from __future__ import annotations

import random

import msgspec
import pytest

from anabranch.runtime.hosts import frames
from anabranch.runtime.hosts.effects import FrameCame, HangUp, NameTaken, Say, Tick
from anabranch.runtime.hosts.frames import HOSTS_MAX, Answer, Opinion, Probe, Rows
from anabranch.runtime.hosts.hearsay import FAR, LEAP_MAX, OWN_LEAP_MAX
from anabranch.runtime.hosts.host import HostInfo, HostState, HostStatement
from anabranch.runtime.hosts.membership import HostMembership
from tests.runtime.hosts.test_table import host

ME = host("me", key=b"m" * 8)
ALIVE, DEAD, LEFT = HostState.ALIVE, HostState.DEAD, HostState.LEFT


def among(*others: str) -> HostMembership:
    one = HostMembership(ME, [], random.Random(1), 0.0)
    for other in others:
        said(one, other, HostStatement(host(other), ALIVE))
    return one


def said(one: HostMembership, peer: str, *rows: HostStatement) -> None:
    one.handle(FrameCame(-1, frames.encode(Rows([*rows], b"")), peer), 0.0)


def with_(info: HostInfo, **changes: object) -> HostInfo:
    return msgspec.structs.replace(info, **changes)


def known(one: HostMembership, name: str) -> HostInfo | None:
    row = one.table.get(name)
    return None if row is None else row.host


def probe(name: str, opinion: Opinion | None = None) -> bytes:
    return frames.encode(Probe(name, b"k" * 8, 1, "me", bytes(8), opinion))


def test_a_frame_in_the_name_of_another_host_ends_the_exchange_and_is_counted() -> None:
    one = among("a", "b")
    assert one.handle(FrameCame(-7, probe("b"), "a"), 0.0) == [HangUp(-7)]
    assert one.false_names == 1
    assert any(isinstance(e, Say) for e in one.handle(FrameCame(-8, probe("a"), "a"), 0.0))
    one.handle(Tick(), 0.0)
    answer = frames.encode(Answer("b", b"k" * 8, 1, None, None, []))
    for peer in ("a", "b"):  # whichever of the two was dialled, one of these is in its name
        one.handle(FrameCame(1, answer, peer), 0.1)
    assert one.false_names == 2


def test_a_host_may_say_anything_of_itself() -> None:
    one = among("a")
    again = with_(host("a"), key=b"z" * 8, incarnation=2**60, address="10.0.0.9:1")
    said(one, "a", HostStatement(again, ALIVE))
    assert known(one, "a") == again
    assert one.false_rows == 0


@pytest.mark.parametrize(
    ("changes", "is_taken"),
    [
        ({"incarnation": 2}, True),
        ({"incarnation": FAR + LEAP_MAX}, True),
        ({"incarnation": FAR + LEAP_MAX + 1}, False),
        ({"incarnation": 2, "key": b"z" * 8}, False),
    ],
)
def test_of_others_it_says_only_what_they_can_object_to(
    changes: dict[str, object], is_taken: bool
) -> None:
    one = among("a", "b")
    new = with_(host("b"), **changes)
    said(one, "a", HostStatement(new, ALIVE))
    assert (known(one, "b") == new, one.false_rows) == (is_taken, not is_taken)


def test_a_host_that_is_dead_may_come_back_with_another_key_also_by_hearsay() -> None:
    one = among("a", "b")
    said(one, "a", HostStatement(host("b"), DEAD))
    new = with_(host("b"), key=b"z" * 8, incarnation=2)
    said(one, "a", HostStatement(new, ALIVE))
    assert known(one, "b") == new


def test_a_host_objects_to_whatever_others_may_have_been_told_of_it() -> None:
    """However far a liar lifts its incarnation, the host itself goes beyond."""
    other, me = among("a", "me"), among("a")
    for step in range(1, 40):
        lie = with_(host("me"), key=ME.key, incarnation=FAR + step * LEAP_MAX)
        said(other, "a", HostStatement(with_(lie, key=host("me").key), DEAD))
        said(me, "a", HostStatement(lie, DEAD))
        assert me.me.incarnation == lie.incarnation + 1
    for far, is_heard in ((OWN_LEAP_MAX, True), (OWN_LEAP_MAX + 1, False)):
        before = me.me.incarnation
        me.handle(FrameCame(-9, probe("a", Opinion(ME.key, before + far, DEAD)), "a"), 0.0)
        assert (me.me.incarnation > before) is is_heard
    assert me.me.incarnation < 2**61


def test_no_other_host_makes_it_believe_that_its_name_is_taken() -> None:
    one = among("a")
    false = with_(ME, key=b"z" * 8, incarnation=9, address="10.0.0.9:1")
    effects = one.handle(
        FrameCame(-1, frames.encode(Rows([HostStatement(false, ALIVE)], b"")), "a"), 0.0
    )
    assert not any(isinstance(effect, NameTaken) for effect in effects)
    assert (one.refused, one.me) == (False, ME)


def test_fuzzed_frames_of_a_proved_host_leave_the_table_whole() -> None:
    rng = random.Random(7)
    one = among("a", "b", "c")
    rows = [HostStatement(host(name), HostState(n)) for n, name in enumerate(("a", "b", "me"))]
    bodies = [
        probe("a", Opinion(ME.key, 5, DEAD)),
        frames.encode(Rows(rows, bytes(8))),
        frames.encode(Answer("a", b"k" * 8, 1, None, bytes(8), rows)),
    ]
    for n in range(20_000):
        body = bytearray(rng.choice(bodies))
        for _ in range(rng.randint(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        if rng.random() < 0.2:
            del body[rng.randrange(len(body)) :]
        one.handle(FrameCame(-10 - n, bytes(body), "a"), n / 1000)
    assert one.malformed > 5_000
    assert one.false_names > 10
    mine = one.table.get("me")
    assert mine is not None
    assert (mine.host, mine.state) == (one.me, ALIVE)
    assert (one.me.key, one.me.incarnation < 2**61) == (ME.key, True)
    assert len(one.table) <= HOSTS_MAX
    said_back = one.handle(FrameCame(-5, probe("a"), "a"), 1000.0)
    assert any(isinstance(effect, Say) for effect in said_back)
