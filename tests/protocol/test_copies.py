"""Copies of journals: what a holder takes, what counts at the writer, and what home may do
(`docs/protocol.md` 9)."""

from __future__ import annotations

import pytest

from anabranch.protocol.copies import (
    CopyError,
    CopyHolder,
    CopySet,
    CopyWriter,
    FencedError,
    Part,
    Position,
    contains,
)


def test_a_copy_keeps_what_it_shares_with_the_journal_and_takes_what_follows() -> None:
    """J2."""
    held = CopyHolder(1, (Part(1, 1, 10), Part(2, 1, 7)))
    opened = held.opened(2, (Part(1, 1, 8), Part(2, 2, 9)))
    assert opened == CopyHolder(2, (Part(1, 1, 8),))
    grown = opened.appended(2, Part(2, 2, 9), 0)
    assert grown.position == Position(2, 9)


def test_parts_of_another_author_are_not_the_same_however_long() -> None:
    """J2."""
    held = CopyHolder(2, (Part(1, 1, 10), Part(2, 2, 7)))
    assert held.opened(3, (Part(1, 1, 10), Part(2, 3, 7))).parts == (Part(1, 1, 10),)


def test_behind_a_part_that_is_shorter_than_in_the_journal_nothing_is_kept() -> None:
    """J2: in between something would be missing."""
    held = CopyHolder(1, (Part(1, 1, 5), Part(2, 1, 7)))
    assert held.opened(1, (Part(1, 1, 6), Part(2, 1, 7))).parts == (Part(1, 1, 5),)


def test_a_copy_that_needs_older_parts_no_more_does_not_begin_anew_for_them() -> None:
    """J6: the next incarnation may be read from a holder that has not heard yet that they go. A
    walk of the explorer has found it."""
    held = CopyHolder(2, (Part(2, 2, 7), Part(3, 2, 5)))
    offered = (Part(1, 1, 10), Part(2, 2, 7), Part(3, 2, 4))
    assert held.opened(3, offered).parts == (Part(2, 2, 7), Part(3, 2, 4))
    assert held.opened(3, (Part(1, 1, 10), Part(2, 3, 7))).parts == ()


def test_repeated_bytes_count_once_and_a_gap_is_refused() -> None:
    held = CopyHolder(1, (Part(1, 1, 10),))
    assert held.appended(1, Part(1, 1, 9), 4) == held
    assert held.appended(1, Part(1, 1, 12), 4).position == Position(1, 12)
    for part, at in ((Part(1, 1, 13), 11), (Part(2, 1, 3), 1), (Part(0, 0, 3), 0)):
        with pytest.raises(CopyError):
            held.appended(1, part, at)
    with pytest.raises(CopyError):
        held.appended(2, Part(1, 2, 12), 10)


def test_a_copy_begins_with_nothing_and_forgets_what_is_not_needed_any_more() -> None:
    """J2, J6."""
    empty = CopyHolder()
    assert empty.position == Position(0, 0)
    assert empty.opened(1, (Part(1, 1, 10),)).parts == ()
    begun = empty.appended(1, Part(1, 1, 3), 0).appended(1, Part(2, 1, 5), 0)
    assert begun.parts == (Part(1, 1, 3), Part(2, 1, 5))
    assert begun.appended(1, Part(2, 1, 6), 5).parts == (Part(1, 1, 3), Part(2, 1, 6))
    assert begun.dropped(1, 2).parts == (Part(2, 1, 5),)


def test_a_fenced_incarnation_can_do_nothing_any_more() -> None:
    """J4."""
    fenced = CopyHolder(1, (Part(1, 1, 10),)).fence(2)
    assert fenced.fence(2) == fenced
    with pytest.raises(FencedError):
        fenced.fence(1)
    with pytest.raises(FencedError):
        fenced.opened(1, (Part(1, 1, 10),))
    with pytest.raises(FencedError):
        fenced.appended(1, Part(1, 1, 11), 10)
    with pytest.raises(FencedError):
        fenced.dropped(1, 1)


def test_a_copy_that_may_have_lost_its_end_is_readable_when_it_has_all_of_the_journal() -> None:
    """J5."""
    held = CopyHolder(1, (Part(1, 1, 10),)).damaged((Part(1, 1, 3),))
    assert held.parts == (Part(1, 1, 3),)
    assert not held.fence(1).readable
    opened = held.opened(1, (Part(1, 1, 10), Part(2, 1, 4)))
    more = opened.appended(1, Part(1, 1, 10), 3)
    assert not more.readable
    assert more.appended(1, Part(2, 1, 4), 0).readable
    assert held.opened(1, (Part(1, 1, 3),)).readable


def writer(*complete: str, others: tuple[str, ...] = ()) -> CopyWriter:
    begun = CopyWriter.begun(2, (Part(1, 1, 10),), 5, (*complete, *others), complete)
    return begun.wrote(2, 4)


def test_a_writer_begins_with_the_holders_that_home_has_named() -> None:
    """J3: of the others home has taken away one whose copy was complete."""
    begun = CopyWriter.begun(2, (Part(1, 1, 10),), 5, ("a", "z"), ("a", "b"))
    assert begun.waited == {"a"}
    assert begun.learning == {"z"}
    assert begun.holders == {"a", "z"}
    assert begun.counted == begun.end == Position(1, 10)
    two = begun.wrote(2, 4)
    assert two.parts == (Part(1, 1, 10), Part(2, 2, 4))
    assert two.wrote(2, 9).parts == (Part(1, 1, 10), Part(2, 2, 9))


def test_what_all_have_acknowledged_counts_and_stays_so() -> None:
    """J1."""
    one = writer("a", "b").acknowledged("a", Position(2, 4))
    assert one.counted == Position(1, 10)
    both = one.acknowledged("b", Position(2, 3))
    assert both.counted == Position(2, 3)
    assert both.acknowledged("b", Position(1, 1)).counted == Position(2, 3)
    assert both.acknowledged("stranger", Position(2, 4)) == both


def test_a_new_holder_is_waited_for_when_it_has_all_that_counts() -> None:
    """J3."""
    begun = writer("a", others=("z",)).acknowledged("a", Position(2, 2))
    early = begun.acknowledged("z", Position(2, 1))
    assert early.complete == {"a"}
    there = early.acknowledged("z", Position(2, 2))
    assert there.complete == {"a", "z"}
    assert there.learning == frozenset()
    assert there.acknowledged("a", Position(2, 4)).counted == Position(2, 2)


def test_orders_count_in_their_order_and_one_who_comes_back_learns_anew() -> None:
    """J3."""
    both = writer("a", "b").acknowledged("b", Position(2, 3)).acknowledged("a", Position(2, 4))
    assert both.ordered(5, ("a",)) == both
    alone = both.ordered(6, ("a",))
    assert alone.ordered(6, ("a", "b")) == alone
    assert alone.waited == {"a"}
    assert alone.counted == Position(2, 4)
    again = alone.ordered(7, ("a", "b"))
    assert again.waited == {"a"}
    assert again.learning == {"b"}
    assert again.position_of("b") is None


def test_with_nothing_to_wait_for_nothing_counts() -> None:
    """J1."""
    alone = writer("a").ordered(6, ("z",))
    assert alone.acknowledged("z", Position(1, 1)).counted == Position(1, 10)


def test_older_parts_go_when_all_that_are_waited_for_have_the_newer_snapshot() -> None:
    """J6."""
    drawn = writer("a", "b").drew().wrote(2, 9).acknowledged("a", Position(2, 9))
    assert drawn.droppable == 0
    assert drawn.dropped() == drawn
    both = drawn.acknowledged("b", Position(2, 4))
    assert both.droppable == 2
    assert both.dropped().parts == (Part(2, 2, 9),)


def test_home_believes_in_a_copy_only_since_it_was_added_last() -> None:
    """J3."""
    copies = CopySet.begun(["a", "b"])
    added = copies.without_holder("b").with_holder("b")
    assert added.holders == {"a", "b"}
    assert added.complete == {"a"}
    assert added.completed(1, added.order - 1, "b").complete == {"a"}
    assert added.completed(2, added.order, "b") == added
    assert added.completed(1, added.order, "c").complete == {"a"}
    assert added.completed(1, added.order, "b").complete == {"a", "b"}
    gone = added.struck("b")
    assert gone.completed(1, gone.order, "b").complete == {"a"}
    told = added.again()
    assert told.order > added.order
    assert told.completed(1, told.order, "b").complete == {"a", "b"}
    assert told.completed(1, added.order, "b").complete == {"a"}
    with pytest.raises(CopyError):
        added.without_holder("a")


def test_the_next_incarnation_is_read_from_a_fenced_holder_with_a_complete_copy() -> None:
    """J4, J7."""
    copies = CopySet.begun(["a", "b", "c"]).with_holder("z").giving_up()
    assert copies.completed(1, copies.order, "z") == copies
    assert copies.sources(["z"]) == frozenset()
    assert copies.sources(["z", "a"]) == {"a"}
    following = copies.begins_next(["y"])
    assert (following.incarnation, following.given_up) == (2, False)
    assert following.holders == {"a", "b", "c", "y", "z"}
    assert following.complete == {"a", "b", "c"}
    assert following.order > copies.order
    for holder in ("y", "z"):
        assert following.completed(2, following.order - 1, holder) == following
        assert holder in following.completed(2, following.order, holder).complete


def test_a_majority_is_more_than_half_of_all_that_the_writer_may_wait_for() -> None:
    """J8."""
    three = CopySet.begun(["a", "b", "c"])
    assert three.is_majority(["a", "b"])
    assert not three.is_majority(["a", "y", "z"])
    assert not CopySet.begun(["a", "b"]).is_majority(["a"])
    assert not CopySet.begun(["a"]).is_majority(["a"])
    fewer = three.without_holder("c")
    assert fewer.complete == fewer.holders == {"a", "b"}
    assert fewer.is_majority(["a", "b"])
    added = fewer.with_holder("z")
    assert not added.is_majority(["a", "b"])  # W may be all four
    assert added.is_majority(["a", "b", "z"])


def test_who_was_taken_away_counts_until_the_writer_has_heard_of_it() -> None:
    """J8: home cannot make itself a majority."""
    alone = CopySet.begun(["a", "b", "c"]).struck("c").with_holder("z").without_holder("b")
    assert alone.perhaps_waited == {"a", "b", "c", "z"}
    assert not alone.is_majority(["a", "z"])
    heard = alone.completed(1, 2, "a")
    assert heard.perhaps_waited == {"a", "b", "z"}
    assert heard.completed(2, 9, "a") == heard
    both = heard.completed(1, alone.order, "z")
    assert both.perhaps_waited == both.complete == {"a", "z"}
    assert both.is_majority(["a", "z"])
    assert alone.begins_next().perhaps_waited == {"a", "z"}


def test_behind_a_majority_the_next_incarnation_waits_for_one_that_refuses() -> None:
    """J9."""
    copies = CopySet.begun(["a", "b", "c"]).giving_up(by_majority=True)
    assert copies.to_fence == {"a", "b", "c"}
    added = CopySet.begun(["a", "b", "c"]).with_holder("z")
    assert added.giving_up(by_majority=True).to_fence == {"a", "b", "c", "z"}
    assert added.giving_up(by_majority=False).to_fence == {"a", "b", "c"}
    assert copies.sources(["a"]) == frozenset()
    assert copies.sources(["a"], ["b"]) == {"a"}
    assert copies.sources([], ["a", "b"]) == frozenset()
    assert copies.begins_next().giving_up().by_majority
    assert copies.giving_up(by_majority=False).sources(["a"]) == {"a"}


def test_a_journal_contains_what_is_a_beginning_of_it() -> None:
    mine = (Part(1, 1, 10), Part(2, 2, 4))
    assert contains(mine, ())
    assert contains(mine, (Part(1, 1, 10), Part(2, 2, 4)))
    assert contains(mine, (Part(1, 1, 9),))
    assert not contains(mine, (Part(1, 1, 10), Part(2, 2, 5)))
    assert not contains(mine, (Part(1, 1, 10), Part(2, 1, 4)))
    assert not contains((), mine)
