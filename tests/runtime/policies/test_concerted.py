"""What neighbours tell each other of their work: sums of siblings, and what waits further up."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.measuring.reading import Figures, Planned, Reading
from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.policies.arrears import is_news, passed_on
from anabranch.runtime.policies.concerted import Concerted, newest


def figures(slot: int, arrived: float, instances: int = 1) -> Figures:
    return Figures(slot, instances, SlotSums(seconds=1.0, arrived=arrived))


class Line:
    """A channel, and what has been told on it."""

    def __init__(self, operator: str, number: int) -> None:
        self.peer = InstanceId(OperatorName(operator), number, -1)
        self.figures_told: Figures | None = None
        self.sums_told: Figures | None = None
        self.plan_told: Planned | None = None
        self.keepers_plan_told: Planned | None = None
        self.arrears_told = self.arrears_said = 0.0
        self.heard: list[float] = []
        self.plans: list[tuple[Planned, bool]] = []

    def tell_figures(self, figures: Figures, *, of_all: bool) -> None:
        raise AssertionError("not in these tests")

    def tell_plan(self, planned: Planned, *, of_keeper: bool) -> None:
        self.plans.append((planned, of_keeper))

    def tell_arrears(self, tuples: float) -> None:
        self.arrears_said = tuples
        self.heard.append(tuples)


def concerted(*lines: Line) -> Concerted[Line]:
    return Concerted({line.peer: line for line in lines}.__getitem__)


def test_a_teller_tells_the_sums_once_all_have_told_the_same_slot() -> None:
    teller, lines = concerted(), [Line("work", i) for i in range(3)]
    others = [Line("out", 0)]
    for i, line in enumerate(lines):
        assert teller.complete([*lines, *others]) == []
        line.figures_told = figures(7, 10.0 + i)
    ((told, sums),) = teller.complete([*lines, *others])
    assert told == lines
    assert (sums.slot, sums.instances, sums.sums.arrived) == (7, 3, 33.0)
    assert teller.complete([*lines, *others]) == []
    lines[0].figures_told = figures(8, 1.0)
    assert teller.complete(lines) == []


def test_figures_go_once_to_the_least_predecessor_or_of_a_source_to_the_least_successor() -> None:
    below, above = [Line("a", i).peer for i in (2, 1)], [Line("c", i).peer for i in (4, 3)]
    assert concerted().teller(figures(1, 1.0), below, above) == below[1]
    assert concerted().teller(figures(1, 1.0), [], above) == above[1]
    me = concerted()
    assert me.teller(None, below, above) is None
    assert me.teller(figures(1, 1.0), below, above) is not None
    assert me.teller(figures(1, 1.0), below, above) is None


def test_the_newest_sums_count() -> None:
    one, other = Line("a", 0), Line("a", 1)
    assert newest([one, other]) is None
    one.sums_told, other.sums_told = figures(3, 5.0, 2), figures(4, 6.0, 2)
    assert newest([one, other]) == figures(4, 6.0, 2)


def test_the_plan_of_a_keeper_goes_by_its_teller_to_all_siblings_once() -> None:
    """PL, 4a."""
    above, works, other = Line("a", 0), [Line("work", i) for i in range(3)], Line("out", 0)
    keeper, teller = concerted(above), concerted(*works, other)
    keeper.plan(None, [above.peer], [])
    for planned in (Planned(7, 5), Planned(7, 5), Planned(8, 6)):
        keeper.plan(planned, [above.peer], [])
    assert above.plans == [(Planned(7, 5), False), (Planned(8, 6), False)]
    works[0].plan_told, works[1].plan_told = Planned(8, 6), Planned(7, 9)
    for _ in range(2):
        teller.exchange(seen(), [], [x.peer for x in (*works, other)], in_concert=False)
    assert [line.plans for line in works] == [[(Planned(8, 6), True)]] * 3
    assert other.plans == []


def test_who_decides_by_the_keeper_finds_its_newest_plan_in_the_reading() -> None:
    one, two = Line("a", 0), Line("a", 1)
    one.keepers_plan_told, two.keepers_plan_told = Planned(8, 2), Planned(7, 9)
    me, peers = concerted(one, two), [one.peer, two.peer]
    assert me.exchange(seen(), peers, [], in_concert=True).planned == Planned(8, 2)
    assert me.exchange(seen(), peers, [], in_concert=False).planned is None


# -- arrears (MM13) --------------------------------------------------------------------------


def seen(instances: int = 1, queued: int = 0, held: float = 0.0, blocked_by: str = "") -> Reading:
    return Reading(
        now_s=1.0,
        instances=instances,
        instances_changed_s=0.0,
        covered_s=1.0,
        queued=queued,
        held_upstream=held / instances,
        blocked=0.9 if blocked_by else 0.0,
        blocked_by=blocked_by or None,
    )


def test_mm_answer_6_all_that_waits_at_the_source_is_in_the_end_b_s() -> None:
    """10,000 due and unread, the source holds 300 for A; A, blocked, has 100 queued and holds 200
    for B; B, alone, has 50."""
    operator, from_source = passed_on(seen(held=10_000, blocked_by="a.0"))
    assert operator == "a"
    at_a = replace(seen(queued=100, held=300, blocked_by="b.0"), arrears=from_source)
    operator, from_a = passed_on(at_a)
    assert operator == "b"
    at_b = replace(seen(queued=50, held=200), arrears=from_a)
    assert at_b.waiting == 10_650
    assert passed_on(at_b) == ("", 0.0)


def test_arrears_are_told_as_results_and_only_by_whom_they_are_held_up() -> None:
    up = replace(seen(queued=40, blocked_by="b.1"), results_total=30, processed_total=20)
    assert passed_on(up) == ("b", 60.0)
    assert passed_on(replace(up, blocked=0.19)) == ("", 0.0)
    to_b, to_c, to_me = Line("b", 1), Line("c", 0), Line("lines", 0)
    me = concerted(to_b, to_c, to_me)
    found = me.exchange(up, [to_me.peer], [to_b.peer, to_c.peer], in_concert=False)
    assert (to_b.heard, to_c.heard, to_me.heard) == ([60.0], [], [])
    assert found.arrears == 0
    to_me.arrears_told = 500.0
    assert me.exchange(up, [to_me.peer], [to_b.peer], in_concert=False).waiting == 540


def test_small_changes_are_not_told_but_an_end_is() -> None:
    assert is_news(100, 0)
    assert not is_news(105, 100)
    assert is_news(115, 100)
    assert not is_news(1.5, 1.0)
    assert is_news(0, 1.0)
    assert not is_news(0, 0)


stage = st.tuples(st.integers(1, 4), st.integers(0, 300), st.integers(0, 300))
"""An operator of a chain: its instances, what each has queued, and holds for the next one."""


@given(st.integers(0, 5_000), st.lists(stage, min_size=1, max_size=5))
def test_mm_property_all_that_waits_in_a_chain_is_counted_by_its_bottleneck(
    unread: int, chain: list[tuple[int, int, int]]
) -> None:
    """Each operator but the last is held up by the next; results per tuple are 1."""
    first, *_ = chain
    told, held = float(unread), 0.0
    at_source = first[0]
    waits = [seen(at_source, 0, held=unread) for _ in range(at_source)]
    for (n, _, holds), (siblings, queued, _) in pairwise([(at_source, 0, first[2]), *chain]):
        told = sum(passed_on(replace(w, blocked=1.0, blocked_by="next.0"))[1] for w in waits)
        held = n * holds
        one = replace(seen(siblings, queued, held=held), arrears=told / siblings)
        waits = [one] * siblings
    everything = unread + first[0] * first[2]
    everything += sum(n * queued for n, queued, _ in chain)
    everything += sum(n * holds for n, _, holds in chain[:-1])
    assert sum(w.waiting for w in waits) == pytest.approx(everything)
