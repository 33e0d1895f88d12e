"""Batches on the way to a keyed operator: keys and tuples together, so that no key is computed
twice, and the receiver files a tuple under the very key by which it was routed.

MessagePack gets them as one flat array, first all keys, then all tuples, which costs no object per
pair; and if each tuple is its own key, as a word that is counted, only once. Pickle gets pairs, so
that what cannot be read of a batch is lost pair by pair. As in `runtime.processing.payload`, the
first byte shows which it is; how long the array is, whether the keys are in it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from operator import is_
from typing import Any, overload

from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.processing.payload import Encoder, PayloadError, decode, describe
from anabranch.runtime.processing.salvage import decode_batch
from anabranch.runtime.values.sharing import separate

_PICKLE_FIRST = b"\x80"
_CLASS = pickle.STACK_GLOBAL

Pair = tuple[Any, Any]


class Pairs(Sequence[Pair]):
    """Keys and tuples side by side, equally many; a sequence of pairs that are made when asked
    for."""

    def __init__(self, keys: list[Any], tuples: list[Any]) -> None:
        self.keys = keys
        self.tuples = tuples

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Pair]:
        return zip(self.keys, self.tuples, strict=True)

    @overload
    def __getitem__(self, at: int) -> Pair: ...
    @overload
    def __getitem__(self, at: slice) -> Pairs: ...
    def __getitem__(self, at: int | slice) -> Pair | Pairs:
        if isinstance(at, slice):
            return Pairs(self.keys[at], self.tuples[at])
        return self.keys[at], self.tuples[at]


class KeyedEncoder(Encoder):
    """Encodes `Pairs`, or lists of (key, tuple)."""

    def _plain(self, tuples: Sequence[Any]) -> bytes | None:
        if isinstance(tuples, Pairs):
            keys, items = tuples.keys, tuples.tuples
        else:
            keys, items = [k for k, _ in tuples], [t for _, t in tuples]
        if all(map(is_, keys, items)):
            return super()._plain(items)
        return super()._plain(keys + items)

    def _pickled(self, tuples: Sequence[Any], swelling_max: int | None) -> bytes:
        items = tuples.tuples if isinstance(tuples, Pairs) else [item for _, item in tuples]
        apart = separate(items, swelling_max)
        pairs = (
            list(tuples) if apart is items else [*zip((k for k, _ in tuples), apart, strict=True)]
        )
        return pickle.dumps(pairs, 5)


def decode_keyed(
    data: bytes | memoryview, count: int
) -> tuple[list[Any], list[Any], list[DeadLetter]]:
    """The keys and the tuples of a batch of `count`, in lists that may be the same one; what
    cannot be read. Never raises."""
    if data[:1] != _PICKLE_FIRST:
        try:
            flat = decode(data)
        except PayloadError:
            flat = []
        if len(flat) == count:
            return flat, flat, []
        if len(flat) == 2 * count:
            return flat[:count], flat[count:], []
    pairs, letters = decode_batch(data, count)
    if not _pickles_again(data, pairs):
        pairs, more = _sound(pairs)
        letters += more
    return [k for k, _ in pairs], [t for _, t in pairs], letters


def _pickles_again(data: bytes | memoryview, pairs: list[Pair]) -> bool:
    """Whether pairs that came of a pickle can be written once more, as what windows keep has to be.
    Only those with classes, which may have made something else of themselves, can be unable to."""
    if _CLASS not in bytes(data):
        return True
    try:
        pickle.dumps(pairs, 5)
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException:
        return False
    return True


def _sound(pairs: list[Pair]) -> tuple[list[Pair], list[DeadLetter]]:
    sound: list[Pair] = []
    letters: list[DeadLetter] = []
    for number, pair in enumerate(pairs):
        try:
            pickle.dumps(pair, 5)
        except (MemoryError, KeyboardInterrupt):
            raise
        except BaseException as error:
            reason = f"it arrived, but cannot be kept, for that it is pickled: {describe(error)}"
            letters.append(DeadLetter(reason, pair[1], f"number {number} of its batch"))
        else:
            sound.append(pair)
    return sound, letters
