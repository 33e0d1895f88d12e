"""Tables of hosts: whatever order rows come in, tables that have seen the same are equal."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.hosts import table as table_module
from anabranch.runtime.hosts.frames import HASH_BYTES
from anabranch.runtime.hosts.host import HostInfo, HostState, HostStatement
from anabranch.runtime.hosts.table import FORGET_S, Table

ROOM = 2**16


def host(name: str, incarnation: int = 1, key: bytes = b"k" * 8) -> HostInfo:
    return HostInfo(name, key, incarnation, f"{name}:1", "plant", {}, 1, 64, "1")


members = st.builds(
    HostStatement,
    st.builds(
        host,
        st.sampled_from(["a", "b", "c"]),
        st.integers(1, 3),
        st.sampled_from([b"k" * 8, b"l" * 8]),
    ),
    st.sampled_from(HostState),
)


def said_of(name: str, state: HostState, incarnation: int = 1) -> HostStatement:
    return HostStatement(host(name, incarnation), state)


def table_of(rows: list[HostStatement]) -> Table:
    table = Table()
    for row in rows:
        table.put(row, 0.0)
    return table


def said(table: Table) -> dict[str, tuple[HostInfo, HostState]]:
    return {row.host.name: (row.host, row.state) for row in table}


@given(st.lists(members, max_size=12), st.randoms(use_true_random=False))
def test_the_order_in_which_rows_come_does_not_matter(
    rows: list[HostStatement], rng: random.Random
) -> None:
    one = table_of(rows)
    rng.shuffle(rows)
    other = table_of([*rows, *rows[:3]])
    assert said(one) == said(other)
    assert one.digest == other.digest


@given(st.lists(members, max_size=8), st.lists(members, max_size=8))
def test_tables_are_equal_after_each_has_got_what_it_lacks(
    some: list[HostStatement], others: list[HostStatement]
) -> None:
    one, other = table_of(some), table_of(others)
    lacked = other.lacked_by(one.hashes, 0.0, ROOM)
    wanted = other.wanted_from(one.hashes)
    given_back = one.with_hashes(wanted, 0.0, ROOM)
    for row in lacked:
        one.put(row, 0.0)
    for row in given_back:
        other.put(row, 0.0)
    assert said(one) == said(other)
    assert one.digest == other.digest
    assert (one.digest == Table().digest) == (not some and not others)


def test_a_digest_differs_if_one_state_does() -> None:
    alive, dead = (table_of([said_of("a", s)]) for s in (HostState.ALIVE, HostState.DEAD))
    assert alive.digest != dead.digest


def test_a_host_that_comes_back_counts_more_than_what_was_said_of_its_former_incarnation() -> None:
    table = table_of([said_of("a", HostState.DEAD), said_of("a", HostState.ALIVE, 2)])
    assert table.put(said_of("a", HostState.LEFT), 0.0) is None
    assert [row.state for row in table] == [HostState.ALIVE]


def test_what_is_newest_is_told_first_and_no_more_than_there_is_room_for() -> None:
    table = table_of([said_of(f"h{n}", HostState.ALIVE) for n in range(20)])
    table.put(said_of("h3", HostState.SUSPECTED), 1.0)
    told = table.lacked_by(b"", 1.0, 200)
    assert told[0].host.name == "h3"
    assert 1 < len(told) < 6
    assert len(table.hashes) == 20 * HASH_BYTES


def test_a_host_that_is_gone_is_forgotten_after_a_day_and_not_taught_again() -> None:
    table = table_of([said_of("a", HostState.DEAD), said_of("b", HostState.ALIVE)])
    other = table_of([said_of("b", HostState.ALIVE)])
    assert table.lacked_by(other.hashes, FORGET_S / 2, ROOM)[0].gone_s == FORGET_S / 2
    late = table.lacked_by(other.hashes, FORGET_S, ROOM)
    table.forget(FORGET_S)
    assert [row.host.name for row in table] == ["b"]
    assert other.put(late[0], FORGET_S) is None
    assert table.digest == other.digest


def test_a_full_table_makes_room_for_a_live_host_and_not_for_one_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_module, "HOSTS_MAX", 2)
    table = table_of([said_of("a", HostState.LEFT), said_of("b", HostState.ALIVE)])
    assert table.put(said_of("c", HostState.DEAD), 1.0) is None
    assert table.put(said_of("d", HostState.ALIVE), 1.0)
    assert table.put(said_of("e", HostState.ALIVE), 1.0) is None
    assert [row.host.name for row in table] == ["b", "d"]
