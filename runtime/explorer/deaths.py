"""Processes die, and their instances live on: what a death takes, and what comes back.

A death and the new incarnation behind it are one move. That is every case: between the two the
instance does nothing, and what is on its way to it or from it may be as slow as anything is here.
The agent kills before it resumes, so a wrong suspicion is a death too, and two incarnations are
never there at once.

Kept, since it is in the journal before anything of it leaves: the state of the core; what was sent
(so it stays on the channels, whichever instance dies); the state of key groups, what has come of
those that are expected, and tuples that are kept. Work without a record was seen by no other
instance, so it has not happened; here it is undone by not having been done yet.

Gone: what the driver was about, and tuples that were accepted and not processed. Their senders
repeat them, so they are in the mail again, ahead of everything newer from the same sender. Nothing
else binds their order, but one thing (duty 12): what came before the answer to new owners of key
groups is processed before what came behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.explorer.items import Again, Tuple


class QueuedItem(NamedTuple):
    """A tuple in a queue. `sender`: the instance that repeats it after a death; None if the tuple
    is kept here. `age`: how often new owners have been acknowledged since it was accepted first."""

    item: Tuple
    sender: InstanceId | None = None
    age: int = 0


@dataclass(frozen=True, slots=True)
class Died:
    """Event: the process of an instance has died, and its next incarnation begins. `kept`: how many
    of the accepted tuples had been looked into and kept. `again`: the rest, with their senders."""

    kept: int = 0
    again: tuple[tuple[InstanceId, Again], ...] = ()


def divided(queue: Iterable[QueuedItem], kept: int) -> tuple[tuple[QueuedItem, ...], Died]:
    """What stays of a queue after a death, and the death with what does not."""
    stays: list[QueuedItem] = []
    again: list[tuple[InstanceId, Again]] = []
    left = kept
    for item, sender, age in queue:
        if sender is not None and not left:
            again.append((sender, Again(item, age)))
            continue
        left -= sender is not None
        stays.append(QueuedItem(item))
    return tuple(stays), Died(kept, tuple(again))


def aged(queue: Iterable[QueuedItem]) -> tuple[QueuedItem, ...]:
    """A queue after new owners have been acknowledged."""
    return tuple(q if q.sender is None else q._replace(age=q.age + 1) for q in queue)
