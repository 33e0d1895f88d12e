"""How tuples flow between neighbours: to whom a batch goes, and how much may be under way.

Pure, and the same in every driver: what is simulated is what runs.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from anabranch.protocol.credit import Allowance

COMPARED_MAX = 8
"""Above so many successors two drawn at random are compared instead of all (P28)."""
WINDOW_S = 0.25
WINDOW_TUPLES_MIN = 16


class Creditor(Protocol):
    """Somebody to whom batches may be sent as far as the allowance goes."""

    allowance: Allowance


C = TypeVar("C", bound=Creditor)


def most_credit(channels: Sequence[C], rng: random.Random) -> C | None:
    """The one with the most credit; None if none has any."""
    compared: Iterable[C] = channels
    if len(channels) > COMPARED_MAX:
        compared = rng.sample(channels, 2)
    best = max(compared, key=_credit, default=None)
    return best if best is not None and best.allowance.open else None


def _credit(channel: Creditor) -> int:
    return channel.allowance.tuples_left if channel.allowance.open else 0


def window_tuples(processed_per_s: float, senders: int, *, tuples_max: int) -> int:
    """The window of credit for each of `senders` of an instance: its share of what is worked off
    in `WINDOW_S`, so that a slow instance has little in its queue, which a newcomer could not
    relieve it of, and a fast one never waits."""
    share = int(processed_per_s * WINDOW_S / senders)
    return min(tuples_max, max(WINDOW_TUPLES_MIN, share))
