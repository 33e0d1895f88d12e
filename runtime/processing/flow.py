"""How tuples flow between neighbours: which successor gets a batch, and how much may be under way.

Pure.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

from anabranch.protocol.credit import Allowance
from anabranch.protocol.limits import Limits

COMPARED_MAX = 8
"""Above so many successors two drawn at random are compared instead of all (P28)."""
FIRST_WINDOW_TUPLES = 2048
WINDOW_S = 0.25
HOLD_S = 1.0
RATE_SHARE = 0.2
"""How much a new measurement of that rate counts against the older ones."""


class Creditor(Protocol):
    """A receiver of batches, as far as its allowance goes."""

    allowance: Allowance


C = TypeVar("C", bound=Creditor)


def least_waiting(channels: Sequence[C], rng: random.Random) -> C | None:
    """Of those with credit, the one that has the fewest of my tuples waiting, by chance among
    equals; None if none has credit.

    Not the one with the most credit: windows differ, and the successor with the widest would be
    full while its siblings idle. A newcomer with a wide first window would get far too much, one
    with a narrow window hardly anything. Not the first of equals: it would always get the next
    batch as soon as it is done with the last. In both cases one instance would duplicate, and
    others leave, for nothing.
    """
    if len(channels) > COMPARED_MAX:
        channels = rng.sample(channels, 2)
    least: float = math.inf
    best: list[C] = []
    for channel in channels:
        allowance = channel.allowance
        if allowance.open:
            waiting = allowance.tuples_waiting
            if waiting < least:
                least, best = waiting, [channel]
            elif waiting == least:
                best.append(channel)
    if len(best) > 1:
        return best[int(rng.random() * len(best))]
    return best[0] if best else None


def window_tuples(processed_per_s: float, senders: int, limits: Limits) -> int:
    """The window of credit for each of `senders` of an instance: its share of what is processed
    in `WINDOW_S`, so that a slow instance has little in its queue, which a newcomer could not
    relieve it of, and a fast one never waits."""
    share = int(processed_per_s * WINDOW_S / senders)
    return min(limits.credit_tuples, max(limits.credit_tuples_min, share))


def first_window_tuples(limits: Limits) -> int:
    """Before anything is known of the receiver's speed."""
    return min(limits.credit_tuples, max(limits.credit_tuples_min, FIRST_WINDOW_TUPLES))


def held_tuples_max(sent_per_s: float, limits: Limits) -> int:
    """How many results an instance holds for lack of credit before it stops its own intake: what
    its successors take in `HOLD_S`. More would only wait, and delay the end of the stream; much
    less would hide from the successors' policies how much there is to do."""
    least, most = limits.outbox_tuples_min, limits.outbox_tuples_max
    return min(most, max(least, int(sent_per_s * HOLD_S)))
