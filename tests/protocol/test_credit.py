"""`docs/protocol.md` 4: no send blocks, nothing overflows, and no sender is left waiting."""

from __future__ import annotations

import random
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.credit import Allowance, Grant


def test_nothing_may_be_sent_before_it_is_allowed() -> None:
    assert not Allowance().open


def test_a_sender_stops_at_its_allowance_of_tuples_or_of_bytes() -> None:
    allowance = Allowance()
    allowance.allow(10, 1000)
    allowance.spend(9, 10)
    assert allowance.open
    assert allowance.tuples_left == 1
    allowance.spend(1, 10)
    assert not allowance.open
    allowance.allow(20, 1000)
    allowance.spend(1, 980)
    assert not allowance.open


def test_one_batch_may_overdraw_so_that_a_large_one_can_travel() -> None:
    allowance = Allowance()
    allowance.allow(4, 100)
    allowance.spend(50, 5000)
    assert allowance.tuples_left == -46
    assert not allowance.open


def test_an_older_statement_takes_nothing_back() -> None:
    allowance = Allowance()
    allowance.allow(10, 100)
    allowance.allow(4, 50)
    assert (allowance.tuples_allowed, allowance.bytes_allowed) == (10, 100)


def test_a_sender_knows_how_much_waits_at_the_receiver() -> None:
    allowance = Allowance()
    allowance.spend(5, 50)
    allowance.note_done(3)
    allowance.note_done(2)
    assert allowance.tuples_waiting == 2, "an older statement takes nothing back"


def test_credit_returns_only_for_what_has_been_worked_off() -> None:
    grant = Grant(8, 800)
    assert grant.state() == (8, 800)
    assert not grant.worth_stating
    grant.done(1, 10)
    assert not grant.worth_stating
    grant.done(1, 10)
    assert grant.worth_stating, "a quarter of the window is free"
    assert grant.state() == (10, 820)
    assert not grant.worth_stating


def test_that_nothing_is_left_is_worth_stating_when_a_sixteenth_of_the_window_was_done() -> None:
    grant = Grant(1600, 800)
    grant.state()
    grant.done(99, 1)
    assert not grant.worth_stating_when_idle
    grant.done(1, 1)
    assert grant.worth_stating_when_idle
    assert not grant.worth_stating
    grant.state()
    assert not grant.worth_stating_when_idle


def test_bytes_alone_make_a_statement_worth_it() -> None:
    grant = Grant(1000, 400)
    grant.state()
    grant.done(1, 100)
    assert grant.worth_stating


def test_a_smaller_window_takes_back_nothing_that_was_allowed() -> None:
    grant, allowance = Grant(8, 800), Allowance()
    allowance.allow(*grant.state())
    grant.tuples_window = 2
    allowance.allow(*grant.state())
    assert allowance.tuples_allowed == 8


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=40),
    st.lists(st.integers(1, 8), min_size=1, max_size=10),
    st.integers(0, 2**16),
)
def test_no_order_of_work_statements_and_windows_overflows_or_leaves_anybody_waiting(
    batches: list[int], windows: list[int], seed: int
) -> None:
    """A sender with batches, a receiver that works them off and changes its window, statements
    that travel slowly and get lost until the connection is made anew."""
    choose = random.Random(seed).choice
    allowance, grant = Allowance(), Grant(windows[0], 10**6)
    queue: deque[int] = deque()
    statements = deque([grant.state()])
    to_send, largest = deque(batches), max(windows)
    outstanding = 0
    while to_send or queue:
        can = ["lose"] if statements else ["restate"]
        can += ["hear"] * 3 if statements else []
        can += ["send"] * 3 if to_send and allowance.open else []
        can += ["work"] * 3 if queue else []
        match choose([*can, "resize"]):
            case "send":
                queue.append(batch := to_send.popleft())
                allowance.spend(batch, batch)
                outstanding += batch
                assert outstanding - batch < largest, "only the last batch may overdraw"
            case "work":
                outstanding -= queue[0]
                grant.done(queue[0], queue.popleft())
                if grant.worth_stating:
                    statements.append(grant.state())
            case "hear":
                allowance.allow(*statements.popleft())
            case "lose":
                # The connection breaks, and what was under way with it; the next says it anew.
                statements.clear()
                statements.append(grant.state())
            case "restate":
                # Nothing is under way: then the sender may send, or the receiver has work, or
                # the window was made smaller just now.
                if not allowance.open and not queue:
                    assert grant.worth_stating or allowance.tuples_allowed == grant.totals[0]
                    statements.append(grant.state())
            case "resize":
                grant.tuples_window = choose(windows)


@given(st.integers(1, 64), st.integers(1, 2**20))
def test_who_has_worked_everything_off_always_has_something_to_state(
    window: int, size: int
) -> None:
    """Otherwise a sender without credit would wait for ever (L2)."""
    allowance, grant = Allowance(), Grant(window, size)
    for _ in range(20):
        allowance.allow(*grant.state())
        sent = 0
        while allowance.open:
            allowance.spend(1, 100)
            sent += 1
        assert sent, "a statement has brought nothing"
        for _ in range(sent):
            grant.done(1, 100)
        assert grant.worth_stating
