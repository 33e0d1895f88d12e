"""Which of the siblings acts, and which changes all of them expect without a message.

Siblings that share their load evenly measure the same: the same load, the same count, the same
time. So each can compute what all of them together have to do, and only those whose turn it is do
it. The expectation is that of siblings that draw for themselves, n * p newcomers. Turns avoid the
variance, and most of the messages, since one batch of k costs 2(S + P) + k and k single joins cost
k times 2(S + P) + 1.

Beside the count n this needs the rank: the place of an instance among its siblings in the order of
their ids. A neighbour that counts the siblings of an instance has its rank too, and sends both.
An instance with another view, for example because of a load of its own, does more or less than its
share in its turn, as one that draws would.

Growth goes round: with every slot of `period_s` the turn moves on to the next rank. Leaving goes
by age: the youngest leave, so that the turn of one that may not leave, the keeper, is not lost
(a founder or the smallest id keeps an operator).
"""

from __future__ import annotations

import math

BATCH_MAX = 8
"""An instance starts no more at once if there are enough siblings to share the rest."""
COMING_PERIODS = 3.0
"""What was decided is expected to show within so many periods (or the cool-down)."""
_ROUNDING = 1e-9

Coming = tuple[tuple[float, int], ...]
"""Changes under way, oldest first: (expected until so many seconds, +joining or -leaving)."""


def slot_of(now_s: float, period_s: float) -> int:
    return math.floor(now_s / period_s + _ROUNDING)


def next_slot_s(now_s: float, period_s: float) -> float:
    return (slot_of(now_s, period_s) + 1) * period_s


def given_up_s(now_s: float, period_s: float, lasts_s: float) -> float:
    """When siblings stop to expect what they decide now: after `lasts_s` or more, in a slot that is
    the same for all of them.

    If each had a moment of its own, what they expect in vain could last for ever: the one whose
    turn it is would still count on others, which begin to count on it just then."""
    slots = max(1, math.ceil(lasts_s / period_s - _ROUNDING))
    return (math.ceil(slot_of(now_s, period_s) / slots) + 1) * slots * period_s


def share(total: int, rank: int, siblings: int, slot: int) -> int:
    """How many of `total` newcomers the sibling of that rank starts in this slot, maybe none."""
    makers = min(siblings, math.ceil(total / BATCH_MAX))
    place = (rank - slot) % siblings
    if place >= makers:
        return 0
    return (place + 1) * total // makers - place * total // makers


def is_among_the_youngest(surplus: int, rank: int, siblings: int, leaving: int) -> bool:
    """Whether it is one of `surplus` that leave now, behind `leaving` which do so already."""
    return siblings - leaving - surplus <= rank < siblings - leaving


def noted(coming: Coming, change: int, until_s: float) -> Coming:
    return (*coming, (until_s, change)) if change else coming


def settled(coming: Coming, change: int, now_s: float) -> Coming:
    """What is still to come after the count changed by `change`, and after those given up."""
    left = []
    for until_s, expected in coming:
        seen = max(min(change, expected), 0) if expected > 0 else min(max(change, expected), 0)
        change -= seen
        if expected != seen and now_s < until_s:
            left.append((until_s, expected - seen))
    return tuple(left)


def joining(coming: Coming) -> int:
    return sum(n for _, n in coming if n > 0)


def leaving(coming: Coming) -> int:
    return -sum(n for _, n in coming if n < 0)
