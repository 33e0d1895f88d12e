"""Answer 3: thresholds, idle hosts, levels."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.runtime.policies.hierarchical.levels import (
    free_flag,
    idle_flag,
    load_level,
    use_level,
)
from anabranch.runtime.policies.hierarchical.thresholds import by_idle_hosts, by_threshold


@pytest.mark.parametrize(
    ("uses", "action"),
    [
        ([0.76] * 4, 1),
        ([0.42] * 4, -1),
        ([0.422] * 4, 0),
        ([0.28, 0.28], -1),
        ([0.76, 0.1], 1),
        ([0.0], 0),
    ],
)
def test_answer_3_the_threshold_of_an_operator(uses: list[float], action: int) -> None:
    assert by_threshold(uses, 20) == action


def test_no_operator_grows_beyond_its_bound() -> None:
    assert by_threshold([0.9] * 20, 20) == 0


def test_answer_3_levels_of_use_are_rounded_to_the_nearest() -> None:
    assert use_level(np.array([0.04, 0.05, 0.35, 0.95])).tolist() == [0, 1, 4, 10]
    assert use_level(np.array([0.0, 1.0])).tolist() == [0, 10]  # HI-G13


def test_levels_of_load_end_below_their_number() -> None:
    assert load_level(np.array([0.0, 59.9, 60.0, 600.0, 700.0]), 600.0).tolist() == [0, 0, 1, 9, 9]


@pytest.mark.parametrize(
    ("hosts", "idle", "action"), [(5, 1, 1), (5, 2, 0), (5, 3, -1), (50, 0, 0), (50, 3, -1)]
)
def test_a_simple_region_keeps_two_hosts_idle(hosts: int, idle: int, action: int) -> None:
    assert by_idle_hosts(hosts, idle, 50) == action


def test_flags_tell_idle_hosts_or_free_slots() -> None:
    assert idle_flag(np.array([0, 1, 7])).tolist() == [0, 1, 1]
    assert free_flag(np.array([0, 1, 2, 7])).tolist() == [0, 1, 2, 2]
