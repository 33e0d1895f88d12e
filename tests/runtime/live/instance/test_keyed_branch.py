"""On the way to a keyed operator every tuple goes to the owner of its key, in the order of its
group, however often owners change; and what is said after results is said when they have left."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.limits import Limits
from anabranch.protocol.ownership import Route, Routes
from anabranch.runtime.keyed.groups import group_of
from anabranch.runtime.keyed.payload import decode_keyed
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.instance.branch import Branch
from anabranch.runtime.live.instance.keyed_branch import KeyedBranch
from tests.runtime.live.channel.test_channels import Listener

GROUPS = 8
COUNT = OperatorName("count")
OWNERS = [InstanceId(COUNT, n) for n in range(4)]
PLENTY = 10**9

Tuple = tuple[Any, int]
"""A key and a number."""


def key_of(one: Tuple) -> Any:
    return one[0]


def routes(owners: Sequence[int]) -> Routes:
    return tuple(Route(OWNERS[owner], group, 1) for group, owner in enumerate(owners))


class Way:
    """A keyed branch, the channels that it uses, and what each owner has got by it."""

    def __init__(
        self, owners: Sequence[int], key: Callable[[Any], Any] = key_of, **limits: int
    ) -> None:
        self.limits = Limits(**limits)
        self.branch = KeyedBranch(COUNT, key, GROUPS, self.limits)
        self.channels = {
            owner: Channel(owner, dialing=False, user=Listener(), limits=self.limits)
            for owner in OWNERS
        }
        for channel in self.channels.values():
            channel.allowance.allow(PLENTY, PLENTY)
        self.got: list[tuple[InstanceId, Any, Any]] = []
        self.own(owners)

    def own(self, owners: Sequence[int], present: Iterable[InstanceId] = OWNERS) -> None:
        """These owners of the groups; channels to those `present`."""
        channels = tuple(self.channels[owner] for owner in present)
        self.branch.change_view(channels, routes(owners))

    def send(self, n: int = PLENTY) -> bool:
        """One batch, as the outbox does it."""
        channel = self.branch.next_channel(random.Random(1))
        if channel is None:
            return False
        taken = self.branch.take(channel, n)
        assert sum(batch.tuples for batch in taken.batches) + len(taken.dead) == taken.tuples
        for batch in taken.batches:
            keys, tuples, letters = decode_keyed(batch.data, batch.tuples)
            assert not letters
            self.got += [(channel.peer, k, t) for k, t in zip(keys, tuples, strict=True)]
        self.branch.epochs.settle(self.branch)
        return True

    def send_all(self) -> None:
        while self.send():
            pass

    def numbers(self, group: int) -> list[int]:
        """In the order in which they have left."""
        return [t[1] for _, key, t in self.got if group_of(key, GROUPS) == group]


some_keys = st.integers(0, 30) | st.text(max_size=1) | st.tuples(st.integers(0, 3), st.none())
some_owners = st.lists(st.integers(0, 3), min_size=GROUPS, max_size=GROUPS) | st.integers(0, 3).map(
    lambda owner: [owner] * GROUPS
)
happenings = st.lists(
    st.tuples(st.just("hold"), st.lists(some_keys, max_size=12))
    | st.tuples(st.just("own"), some_owners)
    | st.tuples(st.just("send"), st.integers(1, 6))
    | st.tuples(st.just("mark"), st.none()),
    max_size=30,
)


@given(some_owners, happenings)
def test_order_ownership_and_epochs_hold_whatever_happens(
    owners: list[int], happenings: list[tuple[str, Any]]
) -> None:
    way = Way(owners)
    held: list[Tuple] = []
    waiting: list[int] = []
    """For each mark that has not been acted upon, how many tuples were made before it."""

    def mark() -> None:
        before = len(held)
        waiting.append(before)

        def act(branch: Branch) -> None:
            assert {t[1] for _, _, t in way.got} >= set(range(before)), "too early"
            assert waiting.pop(0) == before, "out of order"

        way.branch.epochs.after(act, way.branch)

    for what, detail in happenings:
        if what == "hold":
            new = [(key, len(held) + n) for n, key in enumerate(detail)]
            held += new
            assert way.branch.hold(new, 0.0) == []
        elif what == "own":
            owners = detail
            way.own(owners)
        elif what == "mark":
            mark()
        else:
            before = len(way.got)
            way.send(detail)
            for receiver, key, _ in way.got[before:]:
                assert receiver == OWNERS[owners[group_of(key, GROUPS)]]
        assert way.branch.held == len(held) - len(way.got)
        gone = {t[1] for _, _, t in way.got}
        left = min((n for _, n in held if n not in gone), default=len(held))
        assert all(before > left for before in waiting), "too late"
    way.send_all()
    assert way.branch.held == 0
    assert waiting == []
    for group in range(GROUPS):
        assert way.numbers(group) == [n for k, n in held if group_of(k, GROUPS) == group]


def keys_of_group(group: int, n: int) -> list[int]:
    return [key for key in range(1000) if group_of(key, GROUPS) == group][:n]


def test_what_is_held_of_a_group_moves_behind_what_its_new_owner_has() -> None:
    way = Way([0, 1] + [0] * 6)
    mine, other = keys_of_group(0, 1)[0], keys_of_group(1, 1)[0]
    way.branch.hold([(mine, 0), (other, 1), (mine, 2), (other, 3)], 0.0)
    way.own([1] * GROUPS)
    way.send_all()
    assert [(receiver, t[1]) for receiver, _, t in way.got] == [
        (OWNERS[1], n) for n in (1, 3, 0, 2)
    ]


def test_tuples_for_an_owner_who_is_not_in_view_yet_wait_for_it() -> None:
    way = Way([2] * GROUPS)
    way.own([2] * GROUPS, present=OWNERS[:2])
    way.branch.hold([("a", 0)], 0.0)
    assert not way.send()
    assert way.branch.held == 1
    way.own([2] * GROUPS)
    way.send_all()
    assert way.got == [(OWNERS[2], "a", ("a", 0))]


def test_an_owner_without_credit_does_not_keep_others_waiting() -> None:
    way = Way([0, 1] + [0] * 6)
    way.channels[OWNERS[0]].allowance = type(way.channels[OWNERS[0]].allowance)()
    mine, other = keys_of_group(0, 1)[0], keys_of_group(1, 1)[0]
    way.branch.hold([(mine, 0), (other, 1), (other, 2)], 0.0)
    way.send_all()
    assert [t[1] for _, _, t in way.got] == [1, 2]
    assert way.branch.held == 1


def test_owners_take_turns() -> None:
    way = Way([0, 1] + [0] * 6)
    mine, other = keys_of_group(0, 1)[0], keys_of_group(1, 1)[0]
    way.branch.hold([(mine, n) for n in range(3)] + [(other, n) for n in range(3)], 0.0)
    while way.send(1):
        pass
    receivers = [receiver for receiver, _, _ in way.got]
    assert receivers == [OWNERS[0], OWNERS[1]] * 3


def test_the_moment_of_reading_goes_along_to_a_new_owner() -> None:
    way = Way([0] * GROUPS)
    way.branch.hold([("a", 0)], 5.0)
    way.branch.hold([("a", 1)], 6.0)
    way.own([1] * GROUPS)
    channel = way.channels[OWNERS[1]]
    assert [way.branch.take(channel, 1).born for _ in range(2)] == [5.0, 6.0]


@pytest.mark.parametrize("owners", [[0] * GROUPS, [0, 1] * (GROUPS // 2)])
def test_only_tuples_without_a_key_become_dead_letters(owners: list[int]) -> None:
    way = Way(owners, key=lambda one: one["key"])
    sound = [{"key": n} for n in range(20)]
    no_key, bad_key, nan = {"other": 1}, {"key": [1]}, {"key": float("nan")}
    letters = way.branch.hold([*sound[:7], no_key, bad_key, nan, *sound[7:]], 0.0)
    assert [letter.tuple for letter in letters] == [no_key, bad_key, nan]
    assert all("has no key for operator 'count'" in letter.reason for letter in letters)
    assert ["KeyError" in letters[0].reason, "KeyTypeError" in letters[2].reason] == [True, True]
    way.send_all()
    assert sorted(t["key"] for _, _, t in way.got) == list(range(20))


def test_a_tuple_that_cannot_travel_is_buried_without_its_key() -> None:
    way = Way([0] * GROUPS)
    unwilling = ("b", lambda: 0)
    way.branch.hold([("a", 0), unwilling, ("a", 1)], 0.0)
    taken = way.branch.take(way.channels[OWNERS[0]], 10)
    assert taken.tuples == 3
    (letter,) = taken.dead
    assert letter.tuple is unwilling
