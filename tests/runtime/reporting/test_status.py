"""The states in a status are those of the protocol."""

from __future__ import annotations

from typing import get_args

from anabranch.protocol.states import State
from anabranch.runtime.reporting.status import InstanceState


def test_every_state_of_the_protocol_has_a_name_on_the_wire() -> None:
    assert {state.__name__ for state in get_args(State)} == set(InstanceState)
