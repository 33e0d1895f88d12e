"""What an observer of all cores counts as the end of a stream, and as staying."""

from __future__ import annotations

import pytest

from anabranch.protocol.states import Finished, Gone, Idle, State
from anabranch.runtime.world.observer import is_finished, stays


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


def test_an_instance_that_has_not_kept_its_start_when_it_died_stays() -> None:
    assert stays(Idle(), has_begun=True)
    assert not stays(Idle(), has_begun=False), "a newcomer that may still be given up"
    assert not stays(Gone(), has_begun=True)
