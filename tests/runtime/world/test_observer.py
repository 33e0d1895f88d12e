"""What an observer of all cores counts as the end of a stream."""

from __future__ import annotations

import pytest

from anabranch.protocol.states import Finished, Gone, Idle, State
from anabranch.runtime.world.observer import is_finished


@pytest.mark.parametrize(
    ("state", "finished"),
    [
        (Finished(frozenset(), frozenset()), True),
        (Gone(reason="finished"), True),
        (Gone(), False),
        (Idle(), False),
    ],
)
def test_a_sink_that_has_finished_is_gone_and_one_that_has_left_has_not_finished(
    state: State, finished: bool
) -> None:
    assert is_finished(state) is finished
