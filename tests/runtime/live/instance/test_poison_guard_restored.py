"""Which deaths count against a tuple, and for how long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.limits import Limits
from anabranch.runtime.live.channel.row import ChannelRow
from anabranch.runtime.live.channel.totals import ChannelTotals
from anabranch.runtime.live.commit.recovery import Past, PastChannel
from anabranch.runtime.live.instance import poison_guard
from anabranch.runtime.live.instance.delivery import DUTIES
from anabranch.runtime.live.instance.poison_guard import GUARDED_TUPLES, TRIES, Place, PoisonGuard
from anabranch.runtime.processing.steps import StepError
from anabranch.runtime.values.kinds import Cause, Ending

PEER = InstanceId(OperatorName("numbers"), 0)
KILLED = Ending(Cause.SIGNAL, "was killed by SIGKILL")
PLACE: Place = ("frame", str(PEER), 5, 17)
LIMITS = Limits(credit_tuples=10)


class Commits:
    """Counts commits, and says what each would have written of the tuple that is tried."""

    def __init__(self) -> None:
        self.of: PoisonGuard
        self.tried: list[Place | None] = []

    async def committed(self, *, at_once: bool = False) -> None:
        self.tried.append(self.of.snapshot()[3])

    async def write_down(self, name: str) -> None:
        assert name == poison_guard.POISON
        await self.committed()

    def want(self) -> None: ...


def incarnation(*in_vain: Ending, delivery: Any = "effectively-once") -> PoisonGuard:
    profile = SimpleNamespace(
        in_vain=in_vain,
        duties=DUTIES[delivery],
        exact=delivery == "effectively-once",
        limits=LIMITS,
        pipeline=SimpleNamespace(dead_letters_path="dead.jsonl"),
    )
    commits = Commits()
    made = commits.of = PoisonGuard(cast(Any, profile), cast(Any, commits), lambda _: None)
    return made


def past(settled: int = 5, tuples: int = 100) -> Past:
    row = ChannelRow(1, 1, settled, (), (0, 0), 0, 0, 0, tuples, 0, 1)
    return Past(channels={0: PastChannel(dialing=False, peer=PEER, row=row)})


def next_incarnation(
    before: PoisonGuard,
    *in_vain: Ending,
    at: Past | None = None,
    delivery: Any = "effectively-once",
) -> PoisonGuard:
    after = incarnation(*in_vain, delivery=delivery)
    then = at or past()
    then.parts[poison_guard.POISON] = before.snapshot()
    after.restore(then)
    return after


async def dies_of(place: Place, times: int, how: Ending = KILLED) -> PoisonGuard:
    """The incarnation after so many in which the tuple was being tried."""
    now = incarnation(how, how)
    for _ in range(times):
        await now.before(place)
        now = next_incarnation(now, how)
    return now


@pytest.mark.parametrize(
    ("in_vain", "on"), [((), False), ((KILLED,), False), ((KILLED,) * 2, True)]
)
def test_two_incarnations_that_got_nothing_done_make_the_next_one_wary(
    in_vain: tuple[Ending, ...], on: bool
) -> None:
    assert incarnation(*in_vain).on is on


def test_one_death_of_an_incarnation_that_had_got_nothing_done_yet_is_no_reason() -> None:
    """As of a sink that gathers for some seconds."""
    first = incarnation()
    assert not next_incarnation(first, KILLED, at=Past()).on


def test_where_what_was_in_work_is_lost_nobody_needs_to_be_wary() -> None:
    before = incarnation(KILLED, KILLED, delivery="at-most-once")
    assert not before.on
    assert not next_incarnation(before, KILLED, KILLED, delivery="at-most-once").on


def test_work_that_is_done_again_and_again_is_none() -> None:
    """At least once, the agent takes tuples that come again for new ones."""
    first = next_incarnation(incarnation(), KILLED)
    assert not first.on
    second = next_incarnation(first, KILLED)
    assert not second.on
    assert not next_incarnation(second, KILLED, at=past(settled=6, tuples=200)).on
    assert next_incarnation(second, KILLED).on


async def test_it_is_written_down_which_tuple_is_tried_until_it_is_worked_off() -> None:
    now = incarnation(KILLED, KILLED)
    assert await now.before(PLACE) == ""
    assert cast(Any, now._commits).tried == [PLACE]
    now.done()
    assert now.snapshot()[3] is None


async def test_a_tuple_is_condemned_by_the_second_death_and_no_other_tuple_is() -> None:
    once, twice = await dies_of(PLACE, 1), await dies_of(PLACE, 2)
    assert once.on
    assert not once.condemns(PLACE)
    assert twice.condemns(PLACE)
    assert not twice.condemns((*PLACE[:-1], 18))
    assert await twice.before(PLACE) == f"ended its process: {KILLED.how}"
    assert cast(Any, twice._commits).tried == []


async def test_a_tuple_that_is_worked_off_once_is_acquitted() -> None:
    now = await dies_of(PLACE, TRIES - 1)
    await now.before(PLACE)
    now.done()
    await now.before(PLACE)
    assert not next_incarnation(now, KILLED).condemns(PLACE)


@pytest.mark.parametrize("cause", Cause)
async def test_which_deaths_count_is_decided_by_their_cause_and_not_by_words(cause: Cause) -> None:
    counts = cause in (Cause.SIGNAL, Cause.EXIT_CODE, Cause.OUT_OF_MEMORY, Cause.HANG)
    words = "was stopped (SIGSTOP)" if counts else "was killed by SIGKILL"
    assert (await dies_of(PLACE, TRIES + 1, Ending(cause, words))).condemns(PLACE) is counts


async def test_deaths_of_which_it_is_known_what_was_tried_are_counted_over_burials() -> None:
    twice = await dies_of(PLACE, TRIES)
    assert await twice.before(PLACE)
    twice.done()
    assert next_incarnation(twice, KILLED).lessons == TRIES
    await twice.before((*PLACE[:-1], 18))
    assert next_incarnation(twice, KILLED).lessons == TRIES + 1


async def test_the_reason_tells_all_ways_in_which_it_ended() -> None:
    first = await dies_of(PLACE, 1)
    await first.before(PLACE)
    second = next_incarnation(first, Ending(Cause.EXIT_CODE, "ended with exit code 3"))
    assert await second.before(PLACE) == (
        f"ended its process: {KILLED.how}, then ended with exit code 3"
    )


async def test_a_run_that_is_resumed_as_a_whole_holds_nothing_against_tuples() -> None:
    """All its processes were killed, and its functions may have been mended."""
    now = next_incarnation(await dies_of(PLACE, TRIES))
    assert not now.on
    assert not now.condemns(PLACE)


@pytest.mark.parametrize(
    "at",
    [past(settled=6), Past(totals=[ChannelTotals(str(PEER), 0, 100, 0)])],
    ids=["settled", "closed"],
)
async def test_what_does_not_come_again_is_forgotten(at: Past) -> None:
    now = next_incarnation(await dies_of(PLACE, TRIES), KILLED, at=at)
    assert now.snapshot()[2] == ()


@pytest.mark.parametrize(
    ("delivery", "kept", "tuples"),
    [
        ("effectively-once", 0, GUARDED_TUPLES),
        ("at-least-once", 1, 2 * (LIMITS.credit_tuples + GUARDED_TUPLES)),
    ],
)
async def test_wariness_ends_and_what_was_buried_is_known_as_long_as_it_may_come_again(
    delivery: str, kept: int, tuples: int
) -> None:
    now = next_incarnation(await dies_of(PLACE, TRIES), KILLED, delivery=delivery)
    await now.before(PLACE)
    now.done()
    for i in range(tuples - 1):
        await now.before((*PLACE[:-1], 100 + i))
        now.done()
    assert now.on
    assert await now.before((*PLACE[:-1], 50)) == ""
    assert not now.on
    assert cast(Any, now._commits).tried[-1] is None  # written before it works as usual
    assert len(now.snapshot()[2]) == kept


async def test_incarnations_that_knew_what_they_tried_make_those_after_them_no_longer_wary() -> (
    None
):
    once, often = await dies_of(PLACE, 1), await dies_of((*PLACE[:-1], 18), TRIES)
    assert once.snapshot()[1] == often.snapshot()[1]
    assert next_incarnation(often, KILLED).snapshot()[1] == often.snapshot()[1] + 1


async def test_what_has_no_number_is_another_tuple_when_the_first_is_buried() -> None:
    place = ("kept", 3)
    now = await dies_of(place, TRIES)
    assert await now.before(place)
    now.done()
    assert await now.before(place) == ""


async def test_many_burials_with_nothing_worked_off_between_them_are_the_functions_fault() -> None:
    places: list[Place] = [(*PLACE[:-1], i) for i in range(poison_guard.IN_A_ROW_MAX + 1)]
    now = incarnation(KILLED, KILLED)
    for place in places:
        for _ in range(TRIES):
            await now.before(place)
            now = next_incarnation(now, KILLED)
        if place is not places[-1]:
            assert await now.before(place)
            now.done()
    with pytest.raises(StepError, match=r"more than 10 tuples .* try it on one of those"):
        await now.before(places[-1])
