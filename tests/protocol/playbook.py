"""Names and shorthands for playbooks: an event at an instance of operator b, and all that it does.

The graph is a -> b -> c. The instance under test is `ME`, number 1 of operator b; `CHILD` is one
that it has created. A playbook compares the whole answer: the next state and every effect in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from anabranch.protocol.effects import ChangeView, SendMessage
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.events import Event, MessageReceived
from anabranch.protocol.ids import InstanceId, OperatorName, Topology
from anabranch.protocol.messages import Ids
from anabranch.protocol.rules.context import Context, Step
from anabranch.protocol.states import Active, State
from anabranch.protocol.table import step

GRAPH = Topology.of([("a", "b"), ("b", "c")])


def instance(name: str, creator: int = -1) -> InstanceId:
    operator, number = name.split(".")
    return InstanceId(OperatorName(operator), int(number), creator)


A0, A1, A2 = (instance(f"a.{n}") for n in range(3))
B0, ME = instance("b.0"), instance("b.1")
CHILD, CHILD2 = instance("b.2", creator=1), instance("b.3", creator=1)
C0, C1, C2 = (instance(f"c.{n}") for n in range(3))


def ids(*members: InstanceId) -> Ids:
    return frozenset(members)


def active(
    succs: Iterable[InstanceId] = (C0,), preds: Iterable[InstanceId] = (A0,), **more: Any
) -> Active:
    """An active instance between `A0` and `C0`, no keeper, without an operation of its own."""
    return Active(frozenset(succs), frozenset(preds), **{"keeper": False, **more})


def play(state: State, event: Event, me: InstanceId = ME, graph: Topology = GRAPH) -> Step:
    return step(Context(me, graph), state, event)


def hear(state: State, sender: InstanceId, message: Any, me: InstanceId = ME) -> Step:
    return play(state, MessageReceived(sender, message), me)


def view(succs: Iterable[InstanceId] = (C0,), preds: Iterable[InstanceId] = (A0,)) -> ChangeView:
    return ChangeView(frozenset(succs), frozenset(preds))


def send(to: InstanceId, message: Any) -> SendMessage:
    return SendMessage(to, message)


def refused(state: State, event: Event, words: str, me: InstanceId = ME) -> None:
    """The event is refused in these words, and by raising: nothing else can have changed."""
    with pytest.raises(RemoteProtocolError, match=words):
        play(state, event, me)
