"""Results that are held get into the journal once, and a turn tells what has changed in it."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.ids import OperatorName
from anabranch.protocol.limits import Limits
from anabranch.runtime.live.commit.commits import Commits
from anabranch.runtime.live.instance.branch import Branch, SharedBranch
from anabranch.runtime.live.instance.held_pieces import ABOUT, HELD, HeldPieces, restored
from anabranch.runtime.processing.payload import Batch
from anabranch.runtime.values.line import Line
from tests.runtime.live.instance.test_keyed_branch import GROUPS, OWNERS, Way


class Journal:
    """What is told of held results: all pieces that count, and how many bytes a turn told."""

    def __init__(self, branch: Branch) -> None:
        self.lasting: dict[str, dict[int, bytes]] = {HELD: {}, ABOUT: {}}
        self.told = 0
        self._branch = branch
        self._memory = HeldPieces([branch])

    def keep(self, kind: str, number: int, data: bytes) -> None:
        self.told += len(data)
        self.lasting[kind][number] = data

    def drop(self, kind: str, number: int) -> None:
        del self.lasting[kind][number]

    def turn(self) -> int:
        self.told = 0
        self._memory.tell(cast(Commits, self))
        return self.told

    @property
    def held(self) -> list[Any]:
        """What the next incarnation would hold."""
        held: list[Any] = []
        restored(
            self.lasting,
            lambda _at, batch, _born: held.extend(self._branch.decode(batch.data, batch.tuples)[0]),
            lambda _at, reason: held.append(reason),
        )
        return held


PIECE_TUPLES = Limits().batch_tuples_max


def shared() -> SharedBranch:
    return SharedBranch(OperatorName("next"), Limits())


def send(branch: SharedBranch, n: int) -> list[Batch]:
    return branch.take(None, n).batches  # type: ignore[arg-type]


@pytest.mark.parametrize("held", [10, 10_000])
def test_a_turn_tells_what_has_changed_however_much_is_held(held: int) -> None:
    branch = shared()
    journal = Journal(branch)
    branch.hold([10**6 + n for n in range(held)], 0.0)
    at_first = journal.turn()
    assert journal.turn() == 0
    for _ in range(5):
        branch.hold([10**6], 0.0)
        send(branch, 1)
        assert journal.turn() < 8 * (PIECE_TUPLES + 1) + 200
    assert at_first < 8 * held + 100 * (1 + held // PIECE_TUPLES)
    assert len(journal.held) == held


def test_each_result_is_told_about_twice_at_most_while_all_are_sent() -> None:
    """Once when it is held, and once in a piece of which some are sent."""
    branch, n = shared(), 20_000
    journal = Journal(branch)
    branch.hold([10**6] * n, 0.0)
    told = at_first = journal.turn()
    while branch.held:
        send(branch, 1000)
        told += journal.turn()
    assert told < 2 * at_first
    assert journal.lasting == {HELD: {}, ABOUT: {}}


def test_what_is_held_goes_out_as_it_was_told_and_is_not_encoded_again() -> None:
    branch = shared()
    journal = Journal(branch)
    branch.hold([*range(PIECE_TUPLES + 500)], 0.0)
    journal.turn()
    branch.encoder = cast(Any, None)
    sent = [*send(branch, PIECE_TUPLES), *send(branch, PIECE_TUPLES)]
    assert [batch.tuples for batch in sent] == [PIECE_TUPLES, 500]
    assert [n for b in sent for n in branch.decode(b.data, b.tuples)[0]] == [
        *range(PIECE_TUPLES + 500)
    ]


def test_many_small_pieces_go_out_together() -> None:
    branch = shared()
    journal = Journal(branch)
    for n in range(10):
        branch.hold([n], 0.0)
        journal.turn()
    (batch,) = send(branch, PIECE_TUPLES)
    assert branch.decode(batch.data, batch.tuples) == ([*range(10)], [])


def test_a_piece_of_which_credit_allows_a_part_goes_out_in_parts() -> None:
    branch = shared()
    journal = Journal(branch)
    branch.hold([*range(100)], 0.0)
    journal.turn()
    sent = send(branch, 30)
    journal.turn()
    sent += send(branch, PIECE_TUPLES)
    assert [batch.tuples for batch in sent] == [30, 70]
    assert [n for b in sent for n in branch.decode(b.data, b.tuples)[0]] == [*range(100)]


def test_results_that_cannot_be_encoded_have_a_place_and_a_reason() -> None:
    branch = shared()
    journal = Journal(branch)
    branch.hold([1, lambda: None, 2], 0.0)
    journal.turn()
    first, reason, last = journal.held
    assert (first, last) == (1, 2)
    assert "cannot be sent" in reason
    send(branch, 2)
    journal.turn()
    assert journal.held == [2]


def test_one_result_that_cannot_be_encoded_leaves_those_beside_it_in_large_pieces() -> None:
    branch, n = shared(), 100 * PIECE_TUPLES
    journal = Journal(branch)
    results: list[Any] = [*range(n)]
    results[n // 3] = lambda: None
    branch.hold(results, 0.0)
    journal.turn()
    assert journal.held[: n // 3] == results[: n // 3]
    assert journal.held[n // 3 + 1 :] == results[n // 3 + 1 :]
    assert len(journal.lasting[HELD]) < 150


STEPS = st.lists(st.tuples(st.sampled_from(["hold", "send", "turn"]), st.integers(1, 600)))


@given(STEPS)
def test_the_next_incarnation_holds_what_this_one_holds(steps: list[tuple[str, int]]) -> None:
    branch, made, sent = shared(), 0, 0
    journal = Journal(branch)
    for what, n in steps:
        if what == "hold":
            branch.hold([*range(made, made + n)], 0.0)
            made += n
        elif what == "send" and branch.held:
            sent += sum(batch.tuples for batch in send(branch, n))
        else:
            journal.turn()
    journal.turn()
    assert journal.held == [*range(sent, made)]


KEYED = st.lists(st.tuples(st.sampled_from(["hold", "send", "own", "turn"]), st.integers(0, 3)))


@given(KEYED)
def test_by_key_it_holds_those_of_each_key_in_their_order(steps: list[tuple[str, int]]) -> None:
    way, made = Way([0] * GROUPS), 0
    journal = Journal(way.branch)
    expected: list[tuple[int, int]] = []
    for what, n in steps:
        match what:
            case "hold":
                new = [(key, made + key) for key in range(20)]
                made += 20
                expected += new
                way.branch.hold(new, 0.0)
            case "own":
                way.own([(n + group) % len(OWNERS) for group in range(GROUPS)])
            case "send":
                lines = {o: q for o, q in way.branch._queues.items() if q.tuples}
                if OWNERS[n] in lines:
                    line = lines[OWNERS[n]].tuples.part()
                    taken = way.branch.take(way.channels[OWNERS[n]], 7)
                    gone = line[: taken.tuples]
                    expected = [one for one in expected if one not in gone]
            case _:
                journal.turn()
    journal.turn()
    assert sorted(journal.held) == sorted(expected)
    for key in range(20):
        assert [x for x in journal.held if x[0] == key] == [x for x in expected if x[0] == key]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20))))
def test_a_line_is_a_list_that_is_taken_from_its_front(steps: list[tuple[bool, int]]) -> None:
    line, like, made = Line[int](), list[int](), 0
    for adds, n in steps:
        if adds:
            line.extend(range(made, made + n))
            like += range(made, made + n)
            made += n
        else:
            assert line.take(n) == like[:n]
            del like[:n]
        assert line.part() == like
        assert line.part(2, 5) == like[2:5]
        assert len(line) == len(like)
