"""Rules that forecast nothing (PL12), and when keys move (PL17)."""

from __future__ import annotations

import pytest

from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.policies.predictive.controller import Slot
from anabranch.runtime.policies.predictive.rules import ByLatency, ByLoad, rebalances


def busy(load: float, n: int, backlog: float = 0.0) -> Slot:
    """10 ms a tuple, three seconds."""
    arrived = load * n / 0.01 * 3
    return Slot(SlotSums(3.0, arrived, arrived, arrived * 0.01, backlog=backlog), n)


@pytest.mark.parametrize(
    ("load", "n", "backlog", "target"),
    [
        (0.81, 50, 0, 53),
        (0.79, 50, 0, 50),
        (0.76, 50, 0, 50),
        (0.74, 50, 0, 47),
        (0.76, 50, 381, 53),
        (0.76, 50, 379, 50),
        (0.9, 98, 0, 99),
        (0.1, 2, 0, 1),
    ],
)
def test_pl12_rules_add_or_take_three(load: float, n: int, backlog: float, target: int) -> None:
    assert ByLoad(99).target(busy(load, n, backlog)) == target


@pytest.mark.parametrize(
    ("latency_ms", "n", "target"),
    [(276, 50, 51), (274, 50, 50), (176, 50, 50), (174, 50, 49), (500, 99, 99), (1, 1, 1)],
)
def test_pl12_latency_rules_add_or_take_one(latency_ms: float, n: int, target: int) -> None:
    slot = Slot(SlotSums(3.0), n, latency_ms / 1000)
    assert ByLatency(250, 99).target(slot) == target


def test_pl12_without_results_the_latency_rules_hold() -> None:
    assert ByLatency(250, 99).target(Slot(SlotSums(3.0), 7)) == 7


@pytest.mark.parametrize(
    ("loads", "held", "moves"),
    [
        ((0.5, 0.5), 0, True),
        ((0.9, 0.3), 1, False),
        ((0.65, 0.5), 2, False),
        ((0.66, 0.5), 2, True),
        ((1.11, 1.0), 2, True),
        ((1.09, 1.0), 5, False),
        ((), 2, False),
    ],
)
def test_pl17_keys_move_with_changes_and_where_loads_stay_apart(
    loads: tuple[float, ...], held: int, moves: bool
) -> None:
    assert rebalances(loads, held) is moves
