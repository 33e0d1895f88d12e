"""The death of a process in the explorer: what survives it, and what the senders repeat.

A death and the next incarnation are one move of the explorer. No case is lost by that: between the
two the instance does nothing, and frames to it and from it may be late in any case. The agent kills
a process before it starts the next one. So a wrong suspicion is a death too, and an instance never
has two processes.

A death keeps what the journal has: the state of the core; everything that was sent (so it stays on
the channels, whichever instance dies); the state of key groups, the pieces of state that have
arrived, and the tuples that are kept for groups on the move. Work that has no record had no effect
on other instances. The explorer processes a tuple and records it in one step, so it has no such
work.

A death takes the driver's open duties, and tuples that were accepted and not processed. Their
senders repeat these tuples, ahead of everything newer from the same sender. Duty 12 is the only
other rule for their order: a tuple that came before the answer to new owners of key groups is
processed before those that came behind it.
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
    of the accepted tuples were in the journal, kept for groups on the move. `again`: the others,
    with the senders that repeat them."""

    kept: int = 0
    again: tuple[tuple[InstanceId, Again], ...] = ()


def divided(queue: Iterable[QueuedItem], kept: int) -> tuple[tuple[QueuedItem, ...], Died]:
    """The part of a queue that a death leaves, and the event of the death with the rest."""
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
