"""A stamper and a gate of a later incarnation go on where the former ones were."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.keyed.watermarks import RESTORED, Gate, Stamper
from anabranch.runtime.plan.spec import EventTime

SOURCE = OperatorName("source")
A, B = InstanceId(SOURCE, 1), InstanceId(SOURCE, 2)
IDLE_S = 60.0


def stamper(**options: Any) -> Stamper:
    spec = EventTime(lambda e: e[1], device=lambda e: e[0], idle_s=IDLE_S, ahead_s=1000.0)
    return Stamper(spec, journaled=True, **options)


def contents(one: Stamper) -> tuple[Any, ...]:
    """In which order devices were heard at one moment does not matter."""
    heard = [*one._heard.values()]
    return one._floor, one.ahead, one._heard_last, one._latest, one._heard, heard


# -- a stamper ---------------------------------------------------------------------------------


def test_it_tells_of_the_devices_that_are_news_and_of_nothing_twice() -> None:
    one = stamper()
    one.note([("a", 1.0), ("b", 2.0)], 0.0, 0.0)
    assert one.changes() is not None
    assert one.changes() is None
    one.note([(f"device {n}", 3.0) for n in range(1000)], 1.0, 0.0)
    one.changes()
    one.note([("a", 5.0)], 2.0, 0.0)
    change = one.changes()
    assert change is not None
    assert len(change) < 200


def test_a_watermark_that_was_said_does_not_go_back_in_the_next_incarnation() -> None:
    one = stamper()
    one.note([("a", 100.0)], 0.0, 0.0)
    assert one.watermark(IDLE_S) == 100.0
    told = [change] if (change := one.changes()) else []
    after = stamper()
    after.restore(told)
    after.note([("b", 5.0)], 2 * IDLE_S, 0.0)
    assert after.watermark(2 * IDLE_S) == 100.0


def test_silence_goes_on_where_it_was() -> None:
    one = stamper()
    one.note([("a", 1.0)], 5.0, 0.0)
    one.note([("b", 50.0)], 45.0, 0.0)
    change = one.changes()
    assert change is not None
    after = stamper()
    assert after.restore([change]) == 45.0
    assert after.watermark(45.0) == 1.0
    assert after.watermark(65.0) == 50.0


def test_one_that_is_not_journaled_tells_nothing() -> None:
    one = Stamper(EventTime(float))
    one.note([1.0], 0.0, 0.0)
    assert one.changes() is None


def test_a_stream_without_devices_is_restored_too() -> None:
    one = Stamper(EventTime(float), journaled=True)
    one.note([1.0, 7.0], 0.0, 0.0)
    after = Stamper(EventTime(float))
    after.restore([one.changes() or b""])
    assert after.watermark(0.0) == 7.0


notes = st.tuples(
    st.just("note"), st.sampled_from("abcdef"), st.integers(0, 100), st.integers(0, 40)
)
asks = st.tuples(st.sampled_from(["watermark", "idle"]), st.integers(0, 90))
snapshots = st.tuples(st.just("snapshot"), st.integers(1, 3))
acts = notes | notes | asks | snapshots | st.sampled_from([("piece",), ("piece",), ("die",)])


@given(st.lists(acts, max_size=50))
def test_whatever_happens_the_next_incarnation_is_as_the_last_one(story: list[Any]) -> None:
    one, told, now, begins = stamper(), list[bytes](), 0.0, 0
    pieces: Iterator[bytes] = iter(())
    for what, *rest in story:
        if what == "note":
            now += rest[2]
            one.note([(rest[0], float(rest[1])), ("z", 1e9)], now, 0.0)
        elif what == "watermark":
            now += rest[0]
            one.watermark(now)
        elif what == "idle":
            now += rest[0]
            one.idle(now)
        told += [change] if (change := one.changes()) else []
        if what == "snapshot":
            pieces, begins = one.snapshot(rest[0]), len(told)
        if what in ("snapshot", "piece"):
            piece = next(pieces, None)
            told += [piece] if piece is not None else []
            if piece is None:
                del told[:begins]
                begins = 0
        if what == "die":
            after, pieces, begins = stamper(), iter(()), 0
            now = max(now, after.restore(told))
            assert contents(after) == contents(one)
            one = after
    after = stamper()
    after.restore(told)
    assert contents(after) == contents(one)
    assert after.watermark(now) == one.watermark(now)
    assert after.idle(now + 30) == one.idle(now + 30)


# -- a gate ------------------------------------------------------------------------------------


def again(gate: Gate) -> Gate:
    """The gate of the next incarnation."""
    after = Gate()
    after.restore(pickle.loads(pickle.dumps(gate.state())))
    return after


def test_a_gate_knows_again_what_each_has_said_and_who_was_idle() -> None:
    gate = Gate()
    gate.set_preds([A, B])
    gate.heard(A, 50.0)
    gate.heard(B, 30.0, idle=True)
    after = again(gate)
    assert (after.value, after.output, after.held, after.idle) == (50.0, 50.0, False, False)
    after.heard(A, 60.0, idle=True)
    assert after.idle
    after.heard(B, 40.0)
    assert after.value == 50.0
    after.heard(B, 55.0)
    assert after.value == 55.0


def test_a_predecessor_that_came_meanwhile_begins_with_what_its_creator_had_said() -> None:
    gate = Gate()
    gate.set_preds([A])
    gate.heard(A, 50.0)
    after = again(gate)
    child = InstanceId(SOURCE, 3, creator=A.number)
    after.set_preds([A, child])
    after.heard(A, 90.0)
    assert after.value == 50.0
    after.heard(child, 70.0)
    assert after.value == 70.0


@pytest.mark.parametrize("holders", [["x"], ["x", "y"]])
def test_a_gate_that_was_held_stays_where_it_was_until_its_holds_are_made_again(
    holders: list[str],
) -> None:
    gate = Gate(10.0)
    gate.set_preds([A])
    gate.hold("x")
    gate.heard(A, 20.0)
    after = again(gate)
    assert (after.value, after.output, after.held) == (20.0, 10.0, True)
    for token in holders:
        after.hold(token)
    after.release(RESTORED)
    assert after.output == 10.0
    for token in holders:
        after.release(token)
    assert (after.output, after.held) == (20.0, False)
