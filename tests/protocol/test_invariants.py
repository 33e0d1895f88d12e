"""What an observer of the whole would complain of; and a healthy world, of which he would not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from anabranch.protocol.ids import InstanceId
from anabranch.protocol.invariants import broken_in
from anabranch.protocol.ownership import Route
from anabranch.protocol.states import (
    Active,
    ClosingIn,
    ClosingOut,
    Draining,
    Finished,
    Gone,
    Idle,
    State,
)
from tests.protocol.playbook import A0, B0, C0, C1, GRAPH, ME, active, ids

HEALTHY: dict[InstanceId, State] = {
    A0: Active(ids(B0, ME), ids(), keeper=True),
    B0: active(keeper=True),
    ME: active(),
    C0: Active(ids(), ids(B0, ME), keeper=True),
}


A0_ALONE = Active(ids(B0), ids(), keeper=True)


def world(changes: Mapping[InstanceId, State]) -> list[str]:
    return [sentence.split(":")[0] for sentence in broken_in(GRAPH, {**HEALTHY, **changes})]


def test_nothing_is_wrong_with_a_healthy_world() -> None:
    assert world({}) == []


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({ME: Gone()}, {"I1"}),
        ({B0: active(succs=(), keeper=True)}, {"I2", "I7"}),
        ({B0: active()}, {"I5"}),
        ({ME: active(preds=())}, {"I6"}),
        ({ME: ClosingIn(ids(C0), ids(), awaiting=ids(A0))}, {"I6"}),
        ({A0: Active(ids(B0), ids(), keeper=True)}, {"I7"}),
        ({ME: active(owned=(Route(ME, 1),)), B0: active(owned=(Route(B0, 1),))}, {"I5", "K5"}),
        ({ME: active(routes=(Route(C1, 1),))}, {"K3"}),
        ({ME: Draining(ids(C0), routes=(Route(C1, 1),)), A0: A0_ALONE}, {"K3"}),
    ],
)
def test_a_broken_world_is_named(changes: dict[InstanceId, State], broken: set[str]) -> None:
    assert set(world(changes)) == broken


@pytest.mark.parametrize(
    "changes",
    [
        {ME: Idle()},
        {ME: ClosingIn(ids(C0), ids(A0), awaiting=ids(A0))},
        {ME: ClosingOut(awaiting=ids(C0)), A0: Active(ids(B0), ids(), keeper=True)},
        {
            A0: Gone(keeper=True),
            B0: Finished(ids(C0), ids(A0), keeper=True),
            ME: Finished(ids(C0), ids(A0)),
        },
        {
            A0: Gone(keeper=True),
            B0: Gone(keeper=True),
            ME: Gone(),
            C0: Gone(keeper=True),
        },
    ],
    ids=["newcomer", "leaver", "closing outputs", "finishing", "finished"],
)
def test_what_happens_on_the_way_is_not_complained_of(changes: dict[InstanceId, State]) -> None:
    assert world(changes) == []


def test_a_leaver_that_drains_needs_successors_still() -> None:
    assert "I2" in world({ME: Draining(ids()), A0: Active(ids(B0), ids(), keeper=True)})


def test_a_neighbour_that_has_never_existed_is_named() -> None:
    sentences = list(broken_in(GRAPH, {B0: active(keeper=True)}))
    assert any("never existed" in sentence for sentence in sentences)
