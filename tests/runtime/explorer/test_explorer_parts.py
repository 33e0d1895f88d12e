"""The parts of the search: what has been met, the rank, walks, and a driver that obeys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.effects import (
    AwaitDrained,
    ChangeView,
    Effect,
    StateComplete,
    Terminate,
)
from anabranch.protocol.events import BatchReceived, Drained, Founded, LeaveDecided
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.ownership import Route
from anabranch.protocol.rules.context import Context
from anabranch.protocol.states import Active, ClosingIn, Idle
from anabranch.runtime.broken_protocols.variants import VARIANTS
from anabranch.runtime.explorer.bulk import Bulk
from anabranch.runtime.explorer.deaths import QueuedItem
from anabranch.runtime.explorer.driver import Driver, TupleProcessed
from anabranch.runtime.explorer.items import GroupState, Parcel, Tuple
from anabranch.runtime.explorer.machine import Shipped
from anabranch.runtime.explorer.node import Fault, Node
from anabranch.runtime.explorer.scope import Scope
from anabranch.runtime.explorer.search import StateSpace
from anabranch.runtime.explorer.visited import VisitedStates
from tests.runtime.explorer.walker import Walker

ME, PRED, SUCC = (InstanceId(OperatorName(o), 1) for o in ("O1", "O0", "O2"))
SCOPE = Scope((2, 2, 2))


@given(st.lists(st.lists(st.integers(0, 60), max_size=30), max_size=12))
def test_what_has_been_met_is_new_once(batches: list[list[int]]) -> None:
    met, known = VisitedStates(), set[int]()
    for batch in batches:
        first = np.array(batch, dtype=np.uint64)
        fresh = [batch[i] for i in met.add(first, first * np.uint64(7))]
        assert sorted(fresh) == sorted(set(batch) - known)
        known |= set(batch)
    assert len(met) == len(known)


def test_two_states_with_half_a_hash_in_common_are_not_taken_for_one() -> None:
    met = VisitedStates()
    one, other = np.array([5], dtype=np.uint64), np.array([6], dtype=np.uint64)
    met.add(one, one)
    with pytest.raises(RuntimeError, match="share 64 bits"):
        met.add(one, other)
    with pytest.raises(RuntimeError, match="share 64 bits"):
        VisitedStates().add(np.array([5, 5], dtype=np.uint64), np.array([1, 2], dtype=np.uint64))


def test_no_two_numbers_have_the_same_hash() -> None:
    """Not even 0, which is that of nothing: such states would be taken for one."""
    search = Bulk(Shipped(), Scope.parse("1,2,1 leaves=1 moves=1 tuples=2 crashes=1 keyed=1"))
    search.run()
    look, world = search.lookup, search.world
    for hashes, used in (
        (look.hashes._of_meta, len(world.budgets.metas)),
        (look.hashes._of_site, len(world.sites.sites)),
    ):
        assert len(set(hashes[0][:used].tolist()) | {0}) == used + 1


def test_a_walk_is_repeated_by_its_seed() -> None:
    scope = Scope.parse("1,2,1 joins=2 leaves=2 fresh=1 sibling=1 tuples=2 finish")
    one, other = (Walker(Shipped(), scope).walk(7) for _ in range(2))
    assert (one.steps, one.fault) == (other.steps, "")
    assert one.steps > 20


def test_walks_of_a_large_scope_find_nothing() -> None:
    walker = Walker(
        Shipped(),
        Scope.parse("2,3,2 joins=4 leaves=5 fresh=1 sibling=2 tuples=4 batch=2 finish spawn"),
    )
    for seed in range(12):
        assert walker.walk(seed).fault == ""


def test_walks_of_a_large_scope_with_keyed_operators_find_nothing() -> None:
    text = "2,3,3,2 joins=3 leaves=4 sibling=1 moves=6 tuples=6 batch=2 groups=3 keyed=1,2"
    walker = Walker(Shipped(), Scope.parse(f"{text} finish spawn slow"))
    for seed in range(12):
        assert walker.walk(seed, eagerness=0.2).fault == ""


def test_walks_among_processes_that_die_find_nothing() -> None:
    text = "2,3,3,2 joins=3 leaves=3 sibling=1 moves=5 crashes=8 tuples=6 batch=2 groups=3"
    walker = Walker(Shipped(), Scope.parse(f"{text} keyed=1,2 finish spawn slow"))
    for seed in range(8):
        assert walker.walk(seed, eagerness=0.2).fault == ""
    assert walker.sites.options.deaths


def test_walks_find_broken_rules_out() -> None:
    (variant,) = (v for v in VARIANTS if v.name.startswith("R6: LEAVE and EOS"))
    walker = Walker(variant.machine(), Scope.parse("1,2,1 joins=1 leaves=2 tuples=2"))
    assert any(walker.walk(seed).fault for seed in range(10))


def test_children_are_named_by_their_lineage_so_that_the_order_of_joins_does_not_matter() -> None:
    world = StateSpace(Shipped(), Scope.parse("1,1 joins=2"))
    budgets, (x, y) = world.budgets, world.sites.scope.founders()
    first = budgets.child(x, 0)
    assert budgets.child(y, 0) != budgets.child(x, 1) != first
    assert budgets.child(x, 0) is first
    assert first.creator == x.number


# -- the driver ---------------------------------------------------------------------------------


class Scripted(Shipped):
    """A core whose every answer is given."""

    def __init__(self, state: Any, *effects: Effect) -> None:
        super().__init__("scripted")
        self._answer = state, effects

    def step(self, ctx: Context, state: Any, event: Any) -> Any:
        return self._answer


def active() -> Active:
    return Active(frozenset({SUCC}), frozenset({PRED}), keeper=True)


@pytest.mark.parametrize(
    ("effects", "node", "event", "fault"),
    [
        ((), Node(active()), BatchReceived(PRED, 1), "S1: the tuple is dropped"),
        ((AwaitDrained(),), Node(active(), asked=True), Drained(), "duty 5"),
        ((Terminate("left"),), Node(active(), queue=(QueuedItem(Tuple()),)), Drained(), "I11"),
        ((), Node(Idle()), Founded(frozenset(), frozenset(), True), "duty 4"),
        (
            (ChangeView(frozenset(), frozenset()),),
            Node(active()),
            LeaveDecided(),
            "duty 4",
        ),
    ],
    ids=["a batch nobody takes", "asked twice", "ends with a queue", "no view", "another view"],
)
def test_the_driver_finds_out_a_core_that_misleads_it(
    effects: tuple[Effect, ...], node: Node, event: Any, fault: str
) -> None:
    driver = Driver(Scripted(active(), *effects), ME, SCOPE)
    with pytest.raises(Fault, match=fault):
        driver.core.handle(node, event)


# -- the driver of key groups -------------------------------------------------------------------

KEYED = Scope((2, 2, 2), keyed=(1,), groups=2)
OTHER = InstanceId(OperatorName("O1"), 0)
MINE = Active(frozenset({SUCC}), frozenset({PRED}), keeper=True, owned=(Route(ME, 0),))
OWNER = Node(MINE, working=True, owned=((0, ()),))


def keyed_driver(machine: Shipped, me: InstanceId = ME) -> Driver:
    return Driver(machine, me, KEYED)


@pytest.mark.parametrize(
    ("effects", "node", "event", "fault"),
    [
        ((StateComplete(OTHER, frozenset({1})),), OWNER, Drained(), "K1: .* no state has come"),
        ((Terminate("left"),), OWNER, Drained(), "K4: .* owns key groups 0"),
        (
            (Terminate("finished"),),
            OWNER._replace(queue=(QueuedItem(Tuple(PRED, 0, 1)),)),
            Drained(),
            "I11",
        ),
        ((), OWNER._replace(owned=()), LeaveDecided(), "K5: .* owns .0., not"),
    ],
    ids=["no state", "leaves with groups", "ends with a queue", "another owner"],
)
def test_the_driver_finds_out_a_core_that_misleads_it_about_key_groups(
    effects: tuple[Effect, ...], node: Node, event: Any, fault: str
) -> None:
    with pytest.raises(Fault, match=fault):
        keyed_driver(Scripted(MINE, *effects)).core.handle(node, event)


def test_state_comes_only_to_those_who_expect_it() -> None:
    with pytest.raises(Fault, match=r"^K4: state for O1.1 from O1.0, which it does not expect"):
        keyed_driver(Shipped()).run(OWNER, Parcel(OTHER, GroupState(((1, ()),), ())))


def test_a_tuple_is_processed_when_it_follows_the_last_of_its_sequence() -> None:
    driver, first, third = (keyed_driver(Shipped()), *(Tuple(PRED, 0, n) for n in (1, 3)))
    queued = OWNER._replace(queue=(QueuedItem(first), QueuedItem(third)))
    later = driver.run(queued, TupleProcessed(first, (SUCC,)))
    assert [item for _, item in later.sends] == [replace(first, path=(ME.operator,))]
    with pytest.raises(Fault, match=r"^K1: O1.1 meets tuple\(O0.1 g0 #3\) after #1"):
        driver.run(later.node, TupleProcessed(third, (SUCC,)))


def test_only_tuples_of_owned_groups_that_are_not_frozen_are_processed() -> None:
    driver, mine, other = (keyed_driver(Shipped()), *(Tuple(PRED, g, 1) for g in (0, 1)))
    queued = OWNER._replace(queue=(QueuedItem(other), QueuedItem(mine)))
    assert driver.next_tuple(queued) == mine
    assert driver.next_tuple(queued._replace(frozen=frozenset({0}))) is None


def test_behind_a_keyed_operator_nothing_is_overtaken_until_the_receiver_leaves() -> None:
    driver = keyed_driver(Shipped(), SUCC)
    second, first = (Parcel(ME, Tuple(PRED, 0, n)) for n in (2, 1))
    sink = Active(frozenset(), frozenset({ME}), keeper=False)
    seen = driver.run(Node(sink), second).node
    with pytest.raises(Fault, match=r"^K2: O2.1 meets"):
        driver.run(seen, first)
    leaving = ClosingIn(frozenset(), frozenset({ME}), awaiting=frozenset({ME}))
    after = driver.run(seen._replace(state=leaving), first).node
    assert len(after.queue) == 2


def test_a_refusal_is_reported_under_the_number_of_its_invariant() -> None:
    core = Driver(Shipped(), ME, SCOPE).core
    with pytest.raises(Fault, match=r"^I8: O1.1: a batch from O2.1, unknown to me"):
        core.handle(Node(active()), BatchReceived(SUCC, 1))
    with pytest.raises(Fault, match=r"^ILLEGAL: O1.1: Drained is not possible for Idle"):
        core.handle(Node(Idle()), Drained())
