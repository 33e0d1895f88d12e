"""Batches on the way to a keyed operator: keys and tuples together, so that nobody works out a key
twice, and the receiver files a tuple under the very key by which it was routed.

MessagePack gets them as one flat array (key, tuple, key, tuple, …), which costs no object per
pair; pickle gets pairs, so that what cannot be read of a batch is lost pair by pair. As in
`anabranch.runtime.payload`, the first byte tells which it is.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from anabranch.runtime.ends import DeadLetter
from anabranch.runtime.payload import Encoder
from anabranch.runtime.salvage import decode_batch

_PICKLE_FIRST = 0x80


class KeyedEncoder(Encoder):
    """Encodes lists of (key, tuple)."""

    def _plain(self, tuples: list[Any]) -> bytes | None:
        return super()._plain(list(chain.from_iterable(tuples)))


def decode_keyed(
    data: bytes | memoryview, count: int
) -> tuple[list[Any], list[Any], list[DeadLetter]]:
    """The keys and the tuples of a batch of `count`; what cannot be read. Never raises."""
    if data[0] == _PICKLE_FIRST:
        pairs, letters = decode_batch(data, count)
        return [k for k, _ in pairs], [t for _, t in pairs], letters
    flat, letters = decode_batch(data, 2 * count)
    if letters:  # MessagePack that is no MessagePack: nothing of it can be trusted
        return [], [], letters[:count]
    return flat[0::2], flat[1::2], []
