"""What closed channels have carried, when there are too many of them to be kept one by one.

Instances come and go for weeks, so neither end of a channel can remember every neighbour that ever
was. What remains of the channels of one edge is a sum, with a **proof**: each tuple counts once
more, times a factor that only this sender and this receiver have. If both ends of every channel
agree, so do both sums and both proofs. If they do not agree, the sums may still be equal, since
what one channel lost another one doubled; that the proofs are equal too happens once in 10^18.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import msgspec

PRIME = 2**61 - 1
"""Proofs are counted modulo this, so they need eight bytes however much was carried."""


class Carried(msgspec.Struct, frozen=True, array_like=True):
    """`channels`: those that carried something."""

    tuples: int = 0
    channels: int = 0
    proof: int = 0

    def __add__(self, other: Carried) -> Carried:
        return Carried(
            self.tuples + other.tuples,
            self.channels + other.channels,
            (self.proof + other.proof) % PRIME,
        )


ByOperator = dict[str, Carried]
"""By the operator at the other end."""


def carried(sender: str, receiver: str, tuples: int) -> Carried:
    """Of one channel between instances with these ids."""
    factor = blake2b(f"{sender} {receiver}".encode(), digest_size=8).digest()
    return Carried(tuples, int(tuples > 0), tuples * int.from_bytes(factor) % PRIME)


def added(sums: Mapping[str, Carried], operator: str, more: Carried) -> ByOperator:
    """`sums` with `more` on top; nothing that carried nothing."""
    return {**sums, operator: sums.get(operator, Carried()) + more} if more.tuples else {**sums}
