"""Accounts that are summed, at the instances and at the agent: the ledger says the same of a run,
and still sees what is wrong with it."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.live.agent import finals as finals_module
from anabranch.runtime.live.agent.finals import Finals
from anabranch.runtime.live.channel import totals as totals_module
from anabranch.runtime.live.channel.totals import ChannelTotals, Closed
from anabranch.runtime.reporting.carried import Carried, carried
from anabranch.runtime.reporting.ledger import Ledger, SummedFinals, settle
from anabranch.runtime.reporting.status import FinalCount, Status

EDGES = [("a", "b"), ("b", "c")]
OPERATORS = ["a", "b", "c"]

Flows = dict[tuple[str, str], int]
"""By sender and receiver."""


class World(NamedTuple):
    """What senders have sent and receivers have received, and how many of its channels each
    instance, and how many accounts the agent, still knows one by one."""

    sent: Flows
    received: Flows
    channels_max: int
    finals_max: int


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Every instance of b gets something, and every one of c."""
    first = {(f"a.{i}", f"b.{j}"): draw(st.integers(1, 9)) for i in range(2) for j in range(3)}
    second: Flows = Counter()
    for (_, middle), tuples in first.items():
        second[middle, f"c.{draw(st.integers(0, 2))}"] += tuples
    flows = {**first, **second}
    return World(flows, dict(flows), draw(st.integers(0, 3)), draw(st.integers(0, 9)))


def settled(world: World, missing: tuple[str, ...] = (), order: int = 0) -> Ledger:
    ids = sorted({one for pair in world.sent for one in pair} - {*missing})
    ids = ids[order % len(ids) :] + ids[: order % len(ids)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(totals_module, "LATEST_MAX", world.channels_max)
        patch.setattr(finals_module, "LATEST_MAX", world.finals_max)
        kept = Finals(OPERATORS, EDGES)
        for one in ids:
            kept.add(account(one, world))
    unaccounted: dict[str, Status | None] = dict.fromkeys(missing)
    return settle(kept.latest, EDGES, OPERATORS, unaccounted, summed=kept.summed)


def account(me: str, world: World) -> FinalCount:
    """As an instance gives it that counts right what it has seen."""
    closed, operator = Closed(me), me[0]
    out = {peer: n for (sender, peer), n in world.sent.items() if sender == me}
    into = {peer: n for (peer, receiver), n in world.received.items() if receiver == me}
    for peer in sorted({*out, *into}):
        closed.add(ChannelTotals(peer, out.get(peer, 0), into.get(peer, 0), 1))
    tuples = sum(into.values()) if into else sum(out.values())
    made = sum(out.values()) if out else tuples
    return FinalCount(
        id=me,
        operator=operator,
        tuples_in=tuples,
        processed=tuples,
        tuples_out=made,
        sent=closed.sent([]),
        received=closed.received([]),
        sent_before=closed.summed.sent,
        received_before=closed.summed.received,
        messages=closed.messages([]),
    )


@given(worlds(), st.integers(0, 9))
def test_a_run_that_balances_does_so_however_much_of_it_is_summed(world: World, order: int) -> None:
    found = settled(world, order=order)
    exact = settled(world._replace(channels_max=99, finals_max=99))
    assert found.faults == []
    assert msgspec.structs.astuple(found) == msgspec.structs.astuple(exact)


@given(worlds(), st.integers(0, 99), st.sampled_from([-1, 1]), st.integers(0, 9))
def test_one_tuple_lost_or_doubled_on_any_channel_is_seen(
    world: World, at: int, by: int, order: int
) -> None:
    pair = sorted(world.sent)[at % len(world.sent)]
    world.received[pair] += by
    found = settled(world, order=order)
    assert not found.balanced
    assert found.lost >= (by < 0)
    assert found.duplicated >= (by > 0)
    assert found.faults


@given(worlds(), st.data())
def test_a_loss_on_one_channel_and_a_double_on_another_do_not_cancel_out(
    world: World, data: st.DataObject
) -> None:
    pairs = sorted(pair for pair in world.sent if pair[0][0] == "b")
    first, second = data.draw(st.sampled_from([*itertools.permutations(pairs, 2)]))
    world.received[first] -= 1
    world.received[second] += 1
    found = settled(world)
    assert (found.lost >= 1, found.duplicated >= 1) == (True, True)
    assert found.faults


def test_a_fault_between_instances_that_are_summed_names_their_operators() -> None:
    sent = {("b.0", "c.0"): 5, ("b.1", "c.0"): 7}
    world = World(sent, {("b.0", "c.0"): 6, ("b.1", "c.0"): 6}, 0, 0)
    found = settled(world)
    assert (
        "instances of c received as much as those of b sent, 12, but not each of them from each: "
        "at least one tuple is lost, and one doubled"
    ) in found.faults
    found = settled(world._replace(received={("b.0", "c.0"): 5, ("b.1", "c.0"): 5}))
    assert "instances of b sent 12 to instances of c, which received 10" in found.faults
    assert found.lost == 2


def test_an_instance_that_does_not_fit_together_is_seen_though_another_makes_up_for_it() -> None:
    kept = Finals(["b"], [("a", "b")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finals_module, "LATEST_MAX", 0)
        for number, processed in enumerate((4, 6)):
            one = FinalCount(
                id=f"b.{number}",
                operator="b",
                tuples_in=5,
                processed=processed,
                tuples_out=processed,
                received={f"a.{number}": 5},
            )
            kept.add(one)
    found = settle(kept.latest, [("a", "b")], ["a", "b"], summed=kept.summed)
    assert "b.0 took 5 in, but accounts for 4" in found.faults
    assert "b.1 took 5 in, but accounts for 6" in found.faults
    assert (found.lost >= 1, found.duplicated >= 1) == (True, True)


@given(worlds())
def test_what_was_sent_to_one_that_gave_no_account_is_in_flight(world: World) -> None:
    found = settled(world, missing=("c.0", "c.1", "c.2"))
    assert found.in_flight == sum(n for pair, n in world.sent.items() if pair[0][0] == "b")
    assert (found.lost, found.duplicated, found.balanced) == (0, 0, False)


@given(worlds())
def test_what_came_from_one_that_gave_no_account_is_not_doubled(world: World) -> None:
    found = settled(world, missing=("a.0", "a.1"))
    assert (found.lost, found.duplicated, found.balanced) == (0, 0, False)


def test_sums_of_an_earlier_part_of_the_run_count_on() -> None:
    """As the agent writes them down, and reads them again."""
    world = World({("a.0", "b.0"): 5}, {("a.0", "b.0"): 5}, 0, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finals_module, "LATEST_MAX", 0)
        before = Finals(["a", "b"], [("a", "b")])
        before.add(account("a.0", world))
        after = Finals(["a", "b"], [("a", "b")])
        for summed in before.summed.values():
            again = msgspec.msgpack.decode(msgspec.msgpack.encode(summed), type=SummedFinals)
            after.restore(again)
        after.add(account("b.0", world))
    assert [row.messages for row in after.rows()] == [1, 1]
    assert settle(after.latest, [("a", "b")], ["a", "b"], summed=after.summed).balanced


def test_every_count_of_an_account_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is added to the class later. What channels have carried is summed otherwise."""
    monkeypatch.setattr(finals_module, "LATEST_MAX", 0)
    counts: dict[str, Any] = {
        field.name: {"x": 2} if field.default_factory is dict else 2
        for field in msgspec.structs.fields(FinalCount)
        if field.name not in ("id", "operator", "sent", "received")
        and not field.name.endswith("_before")
    }
    kept = Finals(["a"], [])
    for number in range(3):
        kept.add(FinalCount(id=f"a.{number}", operator="a", **counts))
    (row,) = kept.rows()
    assert {name: getattr(row, name) for name in counts} == {
        name: {"x": 6} if isinstance(count, dict) else 6 for name, count in counts.items()
    }


def test_an_incarnation_that_goes_on_has_the_sums_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(totals_module, "LATEST_MAX", 2)
    first, second = Closed("b.0"), Closed("b.0")
    for number in range(5):
        first.add(ChannelTotals(f"a.{number}", 0, 10 + number, 1))
    second.restore(first.summed, first.latest)
    assert (second.summed, second.latest) == (first.summed, first.latest)
    assert second.messages([]) == 5
    assert second.received([]) == {"a.3": 13, "a.4": 14}
    assert second.summed.received["a"].tuples == 10 + 11 + 12


def test_a_proof_says_which_channel_it_was() -> None:
    one, other = carried("a.0", "b.0", 5), carried("b.0", "a.0", 5)
    assert one.proof != other.proof
    assert carried("a.0", "b.0", 2) + carried("a.0", "b.0", 3) == Carried(5, 2, one.proof)
