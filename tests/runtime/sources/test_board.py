"""The board gives every part of the input to exactly one reader, in whatever order they ask."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.plan.ends import Split
from anabranch.runtime.sources.board import Board, BoardError


def numbers(*pairs: tuple[int, int]) -> Iterator[Split]:
    return ({"start": a, "end": b} for a, b in pairs)


@given(st.lists(st.integers(0, 12), max_size=6), st.data())
def test_any_order_of_claims_and_releases_covers_the_input_exactly_once(
    lengths: list[int], data: st.DataObject
) -> None:
    """Numbers stand for tuples: a holder reads some of its split and gives back the rest."""
    bounds = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    board: Board[str] = Board(numbers(*itertools.pairwise(bounds)))
    read: Counter[int] = Counter()
    asking = {"a", "b", "c", "d"}
    while not board.ended:
        idle = sorted(asking - set(board.holders))
        moves = [("claim", h) for h in idle] + [("release", h) for h in sorted(board.holders)]
        move, holder = data.draw(st.sampled_from(moves))
        if move == "claim":
            if board.claim(holder) is None and not board.ended:
                asking.discard(holder)  # asks again only when told to
            continue
        split = board.holds(holder)
        assert split is not None
        start, end = split["start"], split["end"]
        stop = data.draw(st.integers(start, end)) if data.draw(st.booleans()) else end
        read.update(range(start, stop))
        rest = {"start": stop, "end": end} if stop < end else None
        asking.update(board.release(holder, rest, float(stop - start)))
    assert read == Counter(range(sum(lengths)))
    assert board.progress == sum(lengths)


def test_splits_are_pulled_only_when_claimed() -> None:
    pulled = []

    def endless() -> Iterator[Split]:
        number = 0
        while True:
            pulled.append(number)
            yield {"n": number}
            number += 1

    board: Board[str] = Board(endless())
    board.claim("a")
    board.claim("b")
    assert pulled == [0, 1]
    assert not board.ended


def test_a_remainder_is_given_out_before_new_splits() -> None:
    board: Board[str] = Board(numbers((0, 5), (5, 9)))
    board.claim("a")
    board.release("a", {"start": 3, "end": 5})
    assert board.claim("b") == {"start": 3, "end": 5}


def test_the_input_ends_only_when_the_last_holder_has_released() -> None:
    board: Board[str] = Board(numbers((0, 5)))
    board.claim("a")
    assert board.claim("b") is None
    assert not board.ended
    assert board.release("a", None) == ("b",)
    assert board.ended
    assert board.claim("b") is None


def test_who_asked_in_vain_is_told_of_a_remainder_once() -> None:
    board: Board[str] = Board(numbers((0, 5)))
    board.claim("a")
    board.claim("b")
    assert board.release("a", {"start": 1, "end": 5}) == ("b",)
    assert board.claim("b") is not None
    assert board.release("b", None) == ()


def test_a_holder_that_claims_again_gets_what_it_holds_under_the_same_number() -> None:
    """Its process has died, and the next one does not know what it held."""
    board: Board[str] = Board(numbers((0, 5), (5, 9)))
    board.claim("a")
    board.claim("b")
    board.advance("a", 3.0)
    assert board.claim("a") == {"start": 0, "end": 5}
    assert (board.number("a"), board.number("b"), board.number("c")) == (1, 2, 0)
    assert board.progress == 0.0


def test_what_an_earlier_process_has_released_is_not_released_again() -> None:
    board: Board[str] = Board(numbers((0, 5), (5, 9)))
    board.claim("a")
    board.release("a", {"start": 3, "end": 5}, 3.0, 1)
    assert board.release("a", {"start": 3, "end": 5}, 3.0, 1) == ()
    assert board.claim("a") == {"start": 3, "end": 5}
    assert board.release("a", {"start": 3, "end": 5}, 3.0, 1) == ()
    assert board.holds("a") == {"start": 3, "end": 5}
    assert board.claim("b") == {"start": 5, "end": 9}
    board.release("a", None, 2.0, 2)
    assert (board.holders, board.progress) == (("b",), 5.0)


def test_published_splits_reach_those_who_wait() -> None:
    board: Board[str] = Board(iter(()), open=True)
    assert board.claim("a") is None
    assert not board.ended
    assert board.publish({"n": 1}) == ("a",)
    assert board.claim("a") == {"n": 1}
    assert board.claim("b") is None
    assert board.close() == ()
    assert board.release("a", None) == ("b",)
    assert board.ended


def test_nothing_is_published_on_a_closed_board() -> None:
    board: Board[str] = Board(iter(()))
    with pytest.raises(BoardError, match="closed"):
        board.publish({"n": 1})


def test_an_input_that_is_ended_early_drops_what_nobody_has_read() -> None:
    board: Board[str] = Board(numbers((0, 5), (5, 9)), open=True)
    board.claim("a")
    assert board.end_input() == ()
    assert board.claim("b") is None
    assert not board.ended
    assert board.release("a", {"start": 2, "end": 5}, 2.0) == ("b",)
    assert board.ended
    assert board.progress == 2.0


def test_whoever_releases_out_of_turn_is_a_bug() -> None:
    board: Board[str] = Board(numbers((0, 5)))
    with pytest.raises(BoardError, match="b releases"):
        board.release("b", None)


def test_progress_is_told_as_a_whole_and_never_falls_while_a_split_is_read() -> None:
    board: Board[str] = Board(numbers((0, 5), (5, 9)))
    board.claim("a")
    board.claim("b")
    for told, sum_ in ((2.0, 2.0), (3.0, 3.0), (1.0, 3.0)):  # 1.0: a later process reads again
        board.advance("a", told, 1)
        assert board.progress == sum_
    board.advance("b", 1.0, 2)
    board.release("a", {"start": 2, "end": 5}, 2.0, 1)
    assert board.progress == 3.0
    board.release("b", None, 4.0, 2)
    assert board.progress == 6.0


def test_late_progress_of_an_earlier_claim_is_ignored() -> None:
    board: Board[str] = Board(numbers((0, 5), (5, 9)))
    board.claim("a")
    board.release("a", None, 5.0, 1)
    board.claim("a")
    board.advance("a", 5.0, 1)
    assert board.progress == 5.0


def test_late_progress_of_one_that_holds_nothing_is_ignored() -> None:
    board: Board[str] = Board(numbers((0, 5)))
    board.advance("a", 7.0)
    assert board.progress == 0.0


def test_a_source_that_breaks_never_looks_as_if_it_had_ended() -> None:
    def breaks() -> Iterator[Split]:
        yield {"n": 1}
        raise OSError("the disk is gone")

    board: Board[str] = Board(breaks())
    board.claim("a")
    for _ in range(2):
        with pytest.raises(OSError, match="disk"):
            board.claim("b")
    board.release("a", None)
    assert not board.ended
