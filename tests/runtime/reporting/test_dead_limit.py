"""How many dead letters make a run fail."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.reporting.dead_limit import exceeded
from anabranch.runtime.values.checks import PipelineError


def told(dead_max: float | None, dead: int, read: int, **more: Any) -> str:
    return exceeded(dead_max, **{"dead": dead, "read": read, "delivered": 0, "ended": True, **more})


def test_without_a_limit_only_a_run_that_delivers_nothing_since_all_died_fails() -> None:
    assert "all 10 tuples" in told(None, 10, 10)
    assert not told(None, 10, 10, delivered=1)
    assert not told(None, 9, 10)  # the tenth may have been filtered
    assert not told(None, 0, 0)
    assert "no tuple could be read" in told(None, 1, 0)
    assert not told(None, 10, 10, ended=False)  # the eleventh may be good


def test_a_number_holds_while_the_run_goes_on() -> None:
    assert not told(5, 5, 10, ended=False)
    assert told(5, 6, 10, ended=False)
    assert told(0, 1, 10**9)


def test_a_share_holds_once_there_is_enough_to_tell() -> None:
    assert not told(0.1, 100, 1000, ended=False)
    assert told(0.1, 101, 1000, ended=False)
    assert not told(0.1, 5, 10, ended=False)
    assert told(0.1, 5, 10)
    assert told(0.0, 1, 1000)


def test_a_whole_share_allows_everything() -> None:
    assert not told(1.0, 20, 10)


@pytest.mark.parametrize("bad", [-1, 1.5, -0.1, "5", True, float("nan")])
def test_other_limits_are_refused(bad: Any) -> None:
    with pytest.raises(PipelineError, match="dead_max"):
        Pipeline("p", dead_max=bad)
