"""Events, messages and conditions of the protocol in words."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

from anabranch.protocol import events
from anabranch.protocol.effects import Effect, SendMessage
from anabranch.protocol.events import Event
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import Message
from anabranch.protocol.states import State


def names(ids: Iterable[InstanceId]) -> str:
    return "{" + ",".join(map(str, sorted(ids))) + "}"


def condition(state: State) -> str:
    """Name of a state; an own operation stands behind a plus sign."""
    own = getattr(state, "own", None)
    name = type(state).__name__
    return name if own is None else f"{name}+{type(own).__name__}"


def say(message: Message) -> str:
    """A message as it is called in the text of the protocol."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(message).__name__).upper()
    details = [
        shown
        for field in dataclasses.fields(message)
        if (shown := _field(field.name, getattr(message, field.name)))
    ]
    return f"{name}({', '.join(details)})" if details else name


def _field(name: str, value: Any) -> str:
    if isinstance(value, InstanceId):
        return f"{name}={value}"
    if isinstance(value, bool):
        return name if value else ("no" if name == "ok" else "")
    if isinstance(value, tuple):
        routes = " ".join(f"{r.group}->{r.owner}@{r.version}" for r in value)
        return f"{name}={routes}" if routes else ""
    if isinstance(value, int):
        return f"{name}={value}" if value else ""
    return f"{name}={names(value)}" if value or name in ("succs", "preds") else ""


def tell(event: Event) -> str:
    """What an instance meets or does, without its name."""
    match event:
        case events.Founded(_, _, keeper):
            return "is a founder" + (", the keeper" if keeper else "")
        case events.MessageReceived(sender, message):
            return f"receives {say(message)} from {sender}"
        case events.BatchReceived(sender, tuples):
            return f"receives {counted(tuples)} from {sender}"
        case events.BatchReady(to, tuples):
            return f"sends {counted(tuples)} to {to}"
        case events.DuplicateDecided(n):
            return f"decides to start {n} more"
        case events.MoveDecided(groups):
            return f"decides to give away {len(groups)} key groups"
        case events.GroupsFrozen():
            return "has brought the key groups that move to rest"
        case events.GroupsTransferred(to):
            return f"has sent the state of key groups to {to}"
        case events.LeaveDecided():
            return "decides to leave"
        case events.RelocateDecided(host):
            return f"decides to relocate to {host}" if host else "decides to relocate"
        case events.HandOverDecided(None):
            return "decides to hand its role over to a fresh instance"
        case events.HandOverDecided(via):
            return f"decides to offer its role through {via}"
        case events.ChildrenReady(new):
            return f"has its children {names(new)}"
        case events.SpawnFailed(reason):
            return f"gets no children: {reason}"
        case events.InputEnded():
            return "has read its input to the end"
        case events.Drained():
            return "has drained"
        case events.Restarted():
            return "is a new incarnation of a process that died"


def tell_sent(effects: Iterable[Effect]) -> list[str]:
    """The messages among effects; one entry for equal ones."""
    groups: dict[str, list[InstanceId]] = {}
    for effect in effects:
        if isinstance(effect, SendMessage):
            groups.setdefault(say(effect.message), []).append(effect.to)
    return [f"{text} to {names(to)}" for text, to in groups.items()]


def counted(tuples: int) -> str:
    return f"{tuples} tuple" + ("s" if tuples != 1 else "")
