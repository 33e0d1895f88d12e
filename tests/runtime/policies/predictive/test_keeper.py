"""PL, 4a: the keeper decides for its siblings, which do their part of each plan once."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.live.channel.load_reports import LoadReports
from anabranch.runtime.measuring.reading import Figures, Planned, Reading
from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.policies.decider import Decider
from anabranch.runtime.policies.decision import Act, Duplicate, Hold, Leave
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.policies.predictive.keeper import PredictiveKeeper
from anabranch.runtime.world.trial import WorldVerdict
from tests.runtime.policies.predictive.test_lost_sums import outcomes

SCALE = Scale(max_instances=16, policy=PredictiveKeeper(latency_ms=100))


def sums(rate: float) -> SlotSums:
    return SlotSums(seconds=1.0, arrived=rate, processed=rate, busy_s=rate * 0.01)


def reading(slot: int, rank: int, rate: float = 700.0, **changes: Any) -> Reading:
    """Of one of two siblings, just after it was told the sums of a slot."""
    seen = Reading(
        now_s=slot + 1.2, instances=2, instances_changed_s=0.0, covered_s=50.0, rank=rank
    )
    told = {"own": Figures(slot, 1, sums(rate / 2)), "operator": Figures(slot, 2, sums(rate))}
    return replace(seen, keeper=rank == 0, **told | changes)


def pair() -> tuple[Decider, Decider]:
    """The keeper, and its sibling."""
    keeper, sibling = (Decider.begin(SCALE, {}, 0.0) for _ in range(2))
    return keeper, sibling


def decided(decider: Decider, seen: Reading) -> Act:
    return decider.decide(seen, random.Random(1))


def started(*acts: Act) -> int:
    return sum(act.n for act in acts if isinstance(act, Duplicate))


def test_the_keeper_plans_and_all_do_their_part_when_they_hear_of_it_once() -> None:
    keeper, sibling = pair()
    waits = [decided(keeper, reading(9, 0)), decided(sibling, reading(9, 1))]
    assert all(isinstance(act, Hold) for act in waits)
    planned = keeper.planned
    assert planned is not None
    assert planned.slot == 10
    assert planned.instances > 7
    assert sibling.planned is None
    heard = [replace(reading(9, rank), now_s=10.5, planned=planned) for rank in (0, 1)]
    made = [decided(one, seen) for one, seen in zip((keeper, sibling), heard, strict=True)]
    assert started(*made) == planned.instances - 2
    much_later = reading(29, 1, planned=planned)
    assert decided(sibling, much_later).explanation.why == "the keeper decides"


def test_the_numbers_of_all_but_the_keeper_do_not_count() -> None:
    _, sibling = pair()
    told = reading(9, 1, rate=2_000.0, planned=Planned(10, 1))
    assert isinstance(decided(sibling, told), Leave)


def test_a_sibling_that_becomes_the_keeper_goes_on_with_filter_and_feedback() -> None:
    keeper, sibling = pair()
    for slot, rate in enumerate([300.0, 320.0, 360.0], 9):
        decided(keeper, reading(slot, 0, rate))
        decided(sibling, reading(slot, 1, rate, planned=keeper.planned))
    assert sibling.memory.known == keeper.memory.known
    after = reading(12, 0, 400.0)
    decided(keeper, after)
    decided(sibling, after)
    assert sibling.planned == keeper.planned


def test_of_two_plans_of_one_slot_the_one_with_more_instances_holds() -> None:
    assert max(Planned(3, 2), Planned(3, 5), Planned(2, 9)) == Planned(3, 5)


def test_in_virtual_time_it_grows_to_what_a_step_needs_and_holds_the_bound() -> None:
    made = ab.Pipeline("made")
    policy = ab.policies.PredictiveKeeper(latency_ms=250, horizon=2)
    scale = ab.Scale(max_instances=12, policy=policy)
    made.source("lines", ab.items([1])).map("work", str, scale=scale).sink("out", ab.discard())
    load = "step:before=50,after=350,at_s=10"
    found = ab.testing.scaled(made, load, capacity={"work": 50}, seconds=30)
    work, out = found.courses["work"], found.courses["out"]
    late = [p for t, p in zip(found.t, out.p50_ms, strict=True) if t > 16 and p is not None]
    assert max(late) < 250
    assert min(n for t, n in zip(found.t, work.instances, strict=True) if t > 16) >= 7
    assert max(work.instances) <= 12
    assert set(work.instances[:8]) <= {1, 2}


def test_plans_that_are_lost_lose_no_tuple(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, tell = random.Random(9), LoadReports.tell_plan
    lost = [0, 0]

    def now_and_then(self: LoadReports, planned: Planned, *, of_keeper: bool) -> None:
        is_lost = rng.random() < 0.5
        lost[is_lost] += 1
        if not is_lost:
            tell(self, planned, of_keeper=of_keeper)

    monkeypatch.setattr(LoadReports, "tell_plan", now_and_then)
    found = outcomes(PredictiveKeeper(latency_ms=20, horizon=2))
    assert [o.text for o in found if o.verdict is WorldVerdict.INVALID] == []
    assert sum(o.happened["joins"] for o in found) > 0
    assert min(lost) > 20
