"""The shipped core, all interleavings: nothing is found in the small scopes."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest

from anabranch.runtime.explorer.bulk import Bulk
from anabranch.runtime.explorer.coverage import CONDITIONS, Cell, Coverage
from anabranch.runtime.explorer.impossible import possible_cells, why_never
from anabranch.runtime.explorer.machine import Shipped
from anabranch.runtime.explorer.scope import Scope
from anabranch.runtime.explorer.scopes import DEEP, DEEPEST, SETS, SMALL
from anabranch.runtime.explorer.search import Verdict, explore

COUNTED = {
    "1,2 joins=1 leaves=2": (267, 573),
    "1,2,1 joins=1 leaves=1 tuples=1": (3261, 9347),
    "1,2 joins=1 leaves=1 tuples=1 finish": (7372, 24723),
    "1,2,2 moves=2 tuples=2 keyed=1,2": (19973, 70539),
    "1,1 joins=1 leaves=1 tuples=1 batch=2 groups=2 keyed=1": (5489, 13054),
    "1,2,1 joins=1 leaves=1 tuples=1 crashes=1 spawn": (3540, 10339),
    "1,2,1 leaves=1 moves=1 tuples=2 crashes=1 keyed=1": (9299, 28529),
}
"""States and transitions: a change of these is a change of the protocol, or of the search."""


class Searched(NamedTuple):
    verdict: Verdict
    deaths: int
    met: frozenset[Cell]


@cache
def searched(name: str) -> Searched:
    """Once for all tests: together, these searches take half a minute."""
    coverage = Coverage()
    verdict = explore(Shipped(), SMALL[name], coverage=coverage)
    assert verdict.sites is not None
    deaths, verdict.sites = verdict.sites.options.deaths, None  # all that was met: large
    return Searched(verdict, deaths, frozenset(coverage.cells))


@pytest.mark.parametrize("name", SMALL)
def test_nothing_is_found_in_a_small_scope(name: str) -> None:
    found = searched(name).verdict
    assert found.fault == ""
    assert found.complete
    assert found.quiescent, "a search that never came to rest proves nothing"


@pytest.mark.parametrize("name", [name for name, scope in SMALL.items() if scope.crashes])
def test_deaths_are_tried_by_the_dozen(name: str) -> None:
    assert searched(name).deaths > 50


@pytest.mark.parametrize(
    "name",
    [
        "1,2 joins=1 leaves=2",
        "1,2,1 joins=1 leaves=1 tuples=1",
        "1,2 leaves=1 sibling=1 tuples=1 finish",
    ],
)
def test_nobody_else_can_tell_that_a_process_has_died(name: str) -> None:
    """Where tuples have no names and starts take no time, a new incarnation stands where the old
    one did: as many states, however many die."""
    mortal = explore(Shipped(), Scope.parse(f"{name} crashes=3"))
    immortal = explore(Shipped(), Scope.parse(name))
    assert mortal.complete
    assert (mortal.states, mortal.transitions) == (immortal.states, immortal.transitions)


@pytest.mark.parametrize("name", COUNTED)
def test_both_searches_count_the_same(name: str) -> None:
    one, other = searched(name).verdict, Bulk(Shipped(), SMALL[name]).run()
    assert (one.states, one.transitions) == COUNTED[name]
    assert (other.states, other.transitions) == COUNTED[name]
    assert (one.quiescent, one.depth, True) == (other.quiescent, other.depth, other.complete)


def test_nothing_is_found_among_more_than_a_million_transitions() -> None:
    found = Bulk(Shipped(), DEEP["2,2 joins=1 leaves=1 tuples=1 finish"]).run()
    assert found.fault == ""
    assert found.complete
    assert found.transitions > 1_000_000


@pytest.mark.parametrize("name", [name for names in SETS.values() for name in names])
def test_a_scope_is_what_it_is_called(name: str) -> None:
    assert Scope.parse(name) == Scope.parse(str(Scope.parse(name)))


def test_the_named_sets_do_not_overlap() -> None:
    assert not DEEP.keys() & DEEPEST.keys()


def test_a_scope_in_words_says_what_may_happen() -> None:
    scope = Scope.parse("1,2,1 edges=0-1,0-2,1-2 joins=2 batch=2 leaves=3 finish scalable=1")
    assert scope.counts == (1, 2, 1)
    assert scope.edges == ((0, 1), (0, 2), (1, 2))
    assert (scope.joins, scope.batch, scope.leaves, scope.finish) == (2, 2, 3, True)
    assert scope.instances_max == 8
    assert [scope.decides(me) for me in scope.founders()] == [False, True, True, False]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,x", "not a list of numbers"),
        ("1,1 jions=1", "'jions=1' says nothing about a scope; possible are joins=N"),
        ("1,1 joins=many", "says nothing"),
        ("1,1 edges=0>1", "not an edge such as 0-1"),
        ("1,1 edges=1-0", "from a lower operator to a higher"),
        ("1,1 edges=0-2", "from a lower operator to a higher"),
        ("1,0", "at least one instance"),
        ("1,1 room=1 blocking crashes=1", "sends that block are explored without crashes"),
        ("1,1 keyed=0", "a keyed operator is one behind another"),
        ("1,1 keyed=2", "a keyed operator is one behind another"),
        ("1,1 moves=1", "moves, groups and slow say something about keyed operators"),
        ("1,1 slow", "moves, groups and slow say something about keyed operators"),
        ("1,1 keyed=1 groups=0", "one group at least"),
        ("1,1 keyed=1 room=1", "channels with bounds are explored without keyed operators"),
    ],
)
def test_a_scope_that_cannot_be_is_refused_with_what_may_be_said(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Scope.parse(text)


def test_a_scope_in_words_says_which_operators_have_key_groups() -> None:
    scope = Scope.parse("1,2,1 moves=2 groups=3 keyed=1,2 slow")
    first, sink = scope.names[1:]
    assert (scope.groups, scope.moves, scope.slow) == (3, 2, True)
    assert [scope.is_keyed(name) for name in scope.names] == [False, True, True]
    owners = [(r.group, r.owner.number) for r in scope.founding_routes()]
    assert owners == [(0, 0), (1, 1), (2, 0), (0, 0), (1, 0), (2, 0)]
    assert (scope.siblings_max(first), scope.is_alone(sink)) == (1, True)


def test_a_search_that_is_cut_short_says_so() -> None:
    found = explore(Shipped(), SMALL["1,1,1 joins=2 leaves=1 tuples=1"], states_max=100)
    assert not found.complete
    assert found.states >= 100


@pytest.mark.slow
def test_the_small_scopes_meet_every_cell_that_can_be_met() -> None:
    """What is met beside which other operation is printed by `anabranch verify --coverage`."""
    met = {cell for name in SMALL for cell in searched(name).met}
    missing = set(possible_cells()) - met
    assert {cell for cell in missing if not why_never(*cell)} == set()
    assert {cell for cell in met if why_never(*cell)} == set()
    assert {where for _, where in met} == set(CONDITIONS)


@pytest.mark.parametrize(
    "name",
    ["1,2 joins=1 leaves=1 tuples=1", "1,2,1 leaves=1 moves=1 tuples=2 crashes=1 keyed=1"],
)
def test_both_searches_go_through_the_same(name: str) -> None:
    scope, one, other = Scope.parse(name), Coverage(), Coverage()
    explore(Shipped(), scope, coverage=one)
    Bulk(Shipped(), scope, coverage=other).run()
    assert one.cells == other.cells
    assert one.pairs
