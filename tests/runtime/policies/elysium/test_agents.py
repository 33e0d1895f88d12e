"""No controller: distributed first fit, sheds and drains, and that hosts never drain into each
other."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.policies.elysium.agents import (
    CloseHost,
    DrainHost,
    HostReading,
    Keep,
    OtherHost,
    OwnInstance,
    Shed,
    decide,
    has_room,
)
from anabranch.runtime.policies.elysium.costs import HostCost

COST = HostCost(0.1, 1.2, 1)
"""Bears 0.58 cores of instances."""
Hosts = dict[int, list[OwnInstance]]
HOSTS = st.lists(st.lists(st.floats(0.01, 0.5), max_size=5), min_size=1, max_size=5)


def reading(hosts: Hosts, at: int, draining: frozenset[int] = frozenset()) -> HostReading:
    others = [
        OtherHost(each, COST, sum(one.cores for one in own), each in draining)
        for each, own in hosts.items()
        if each != at
    ]
    return HostReading(at, COST, hosts[at], others, draining=at in draining)


def hosts_of(cores: list[list[float]]) -> Hosts:
    return {
        at: [OwnInstance(f"{at}.{i}", each, keeper=i % 2 == 0) for i, each in enumerate(some)]
        for at, some in enumerate(cores)
    }


def test_room_is_what_a_host_bears_unless_it_drains() -> None:
    some = reading({1: [OwnInstance("a.0", 0.3)]}, 1)
    assert has_room(some, 0.28)
    assert not has_room(some, 0.29)
    assert not has_room(replace(some, reserved=0.1), 0.2)
    assert not has_room(replace(some, draining=True), 0.1)


def test_a_host_in_stress_sheds_the_smallest_that_keeps_nothing() -> None:
    own = [OwnInstance("a.0", 0.1, True), OwnInstance("b.1", 0.3), OwnInstance("c.1", 0.25)]
    assert decide(reading({1: own}, 1)) == Shed("c.1")
    # Keepers only, as in a chain of single instances: the smallest of them (EL-G20).
    keepers = [replace(one, keeper=True) for one in own]
    assert decide(reading({1: keepers}, 1)) == Shed("a.0")
    assert decide(reading({1: [OwnInstance("a.0", 0.9)]}, 1)) == Keep()


def test_a_host_drains_the_largest_first_into_smaller_ids_only() -> None:
    hosts = {1: [OwnInstance("a.0", 0.3)], 2: [OwnInstance("b.0", 0.4)],
             3: [OwnInstance("c.0", 0.1), OwnInstance("c.1", 0.2)]}  # fmt: skip
    assert decide(reading(hosts, 3)) == DrainHost((("c.1", 1), ("c.0", 2)))
    assert decide(reading(hosts, 1)) == Keep()
    hosts[2].append(OwnInstance("b.1", 0.15))
    assert decide(reading(hosts, 3)) == Keep()


def test_two_that_fit_into_each_other_do_not_drain_both() -> None:
    hosts = {4: [OwnInstance("a.0", 0.1)], 9: [OwnInstance("b.0", 0.1)]}
    assert [decide(reading(hosts, at)) for at in (4, 9)] == [Keep(), DrainHost((("b.0", 4),))]
    assert decide(reading(hosts, 9, frozenset({4}))) == Keep()


def test_an_empty_host_stops_but_the_last() -> None:
    hosts: Hosts = {1: [], 2: []}
    assert [decide(reading(hosts, at)) for at in (1, 2)] == [Keep(), CloseHost()]
    assert decide(replace(reading(hosts, 2), reserved=0.1)) == Keep()


@given(HOSTS)
def test_moves_of_a_drain_fit_and_go_to_smaller_ids(cores: list[list[float]]) -> None:
    hosts = hosts_of(cores)
    for at in hosts:
        act = decide(reading(hosts, at))
        if isinstance(act, DrainHost):
            assert all(to < at for _, to in act.moves)
            assert {name for name, _ in act.moves} == {one.name for one in hosts[at]}
            by_name = {one.name: one.cores for one in hosts[at]}
            for to in {to for _, to in act.moves}:
                new = sum(by_name[name] for name, goes in act.moves if goes == to)
                assert COST.bears(sum(one.cores for one in hosts[to]) + new, 0.8)


@given(HOSTS, st.integers(0, 99))
def test_whatever_the_order_hosts_come_to_rest_and_nothing_is_lost(
    cores: list[list[float]], seed: int
) -> None:
    """Each move is answered by the host at that moment, and a refusal cancels the rest."""
    hosts, rng = hosts_of(cores), Random(seed)
    names = sorted(one.name for own in hosts.values() for one in own)
    for _ in range(200):
        said = {at: decide(reading(hosts, at)) for at in hosts}
        acts = {at: act for at, act in said.items() if isinstance(act, DrainHost | CloseHost)}
        if not acts:
            break
        at = rng.choice(sorted(acts))
        carry_out(hosts, at, acts[at])
    else:
        pytest.fail("hosts do not come to rest")
    assert sorted(one.name for own in hosts.values() for one in own) == names
    assert min(hosts) == 0, "the host of least id stays"
    assert all(own or at == 0 for at, own in hosts.items()), "an empty host has stopped"


@given(HOSTS)
def test_all_that_decide_at_once_drain_into_no_host_that_drains(cores: list[list[float]]) -> None:
    """They announce it in the order of their ids, and what drains has no room: no circles."""
    hosts = hosts_of(cores)
    draining: set[int] = set()
    into: set[int] = set()
    for at in sorted(hosts, reverse=True):
        act = decide(reading(hosts, at, frozenset(draining)))
        if isinstance(act, DrainHost):
            assert not {to for _, to in act.moves} & draining
            draining.add(at)
            into |= {to for _, to in act.moves}
    assert min(hosts) not in draining


def carry_out(hosts: Hosts, at: int, act: DrainHost | CloseHost) -> None:
    if isinstance(act, CloseHost):
        assert not hosts[at], "a host never closes with an instance on it"
        del hosts[at]
        return
    for name, to in act.moves:
        one = next(own for own in hosts[at] if own.name == name)
        if not has_room(reading(hosts, to), one.cores):
            return
        hosts[at].remove(one)
        hosts[to].append(one)
