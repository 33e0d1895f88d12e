"""How the tuples of a batch become bytes, and bytes become equal tuples again.

Every value comes out equal and of the same type: a tuple does not become a list, an `IntEnum` not
an `int`, a `bytearray` not `bytes`. Two formats, distinguished by their first byte, so that neither
needs an envelope and nothing is copied:

- MessagePack (an array, first byte 0x90 to 0x9f, 0xdc or 0xdd) for what it can carry exactly:
  None, bool, int of 64 bits, float, str, bytes, and lists and dicts of these.
- pickle, protocol 5 (first byte 0x80) for everything else. Tuples that share a value which can
  change are copied first, so that they share none where they arrive, as by MessagePack. Results of
  windows in which nothing can change go as columns.

Packing in strict mode refuses subclasses, tuples and everything foreign. The one thing which it
converts silently is a buffer (`bytearray`, `memoryview`) to bytes. Such a value leaves one of
three header bytes in the output, which UTF-8 of most languages does not contain: only if one is
found, the types are looked at.

**Unpickling runs code.** `decode` may only be given bytes from a process of the same run, which
has proved its membership in the handshake; the channels see to that.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgpack

from anabranch.protocol.limits import Limits
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.processing.marks import Marked, sealed
from anabranch.runtime.values.foreign import describe as describe
from anabranch.runtime.values.sharing import ATOMS, RECORDS, Swells, kinds_of, separate

_PICKLE_FIRST = 0x80
_BUFFER_HEADERS = (b"\xc4", b"\xc5", b"\xc6")
_SCALARS = frozenset((type(None), bool, int, float, str, bytes))
_REFUSED = (TypeError, ValueError, OverflowError)
_PATIENCE_MAX = 8


class _Records:
    """Of one kind. They come out as a list."""

    def __init__(self, tuples: Sequence[Any]) -> None:
        self._made = _of_columns, (type(tuples[0]), *zip(*tuples, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return self._made


def _of_columns(kind: Any, *columns: tuple[Any, ...]) -> list[Any]:
    return list(map(kind._make, zip(*columns, strict=True)))


class PayloadError(ValueError):
    """Bytes that do not decode to tuples."""


class Batch(NamedTuple):
    """So many tuples, encoded."""

    tuples: int
    data: bytes


class Encoded(NamedTuple):
    batches: list[Batch]
    dead: list[DeadLetter]
    """Tuples that cannot travel: no format takes them, or they are too long."""


class Encoder:
    """Encodes the batches of one stream, whose tuples tend to resemble the last ones.

    It remembers two things: whether MessagePack was refused lately, so that a stream of tuples
    does not pay for a failed attempt each time (the pauses between attempts double, up to 255
    batches), and how long the tuples are, so that long ones are not encoded twice.
    """

    def __init__(self, limits: Limits) -> None:
        self._pack = msgpack.Packer(strict_types=True, buf_size=64 * 1024).pack
        self._limits = limits
        self._refusals = 0
        self._skip = 0
        self._tuple_bytes = 0.0

    def encode(self, tuples: Sequence[Any], swelling_max: int | None = None) -> bytes:
        """All tuples in one piece, however long; raises whatever pickle raises, and `Swells` if
        they take more than `swelling_max` bytes without what they share."""
        if isinstance(tuples, Marked):
            return sealed(self.encode(tuples.items, swelling_max), tuples)
        if self._skip:
            self._skip -= 1
        else:
            data = self._plain(tuples)
            if data is not None:
                self._refusals = 0
                return data
            self._refusals = min(self._refusals + 1, _PATIENCE_MAX)
            self._skip = 2**self._refusals - 1
        return self._pickled(tuples, swelling_max)

    def encode_batches(self, tuples: Sequence[Any]) -> Encoded:
        """Batches of at most `batch_tuples_max` tuples and `batch_bytes_max` bytes, in order.

        A single tuple may be longer than that, up to `tuple_bytes_max`; beyond, or if it cannot
        be encoded at all, it alone becomes a dead letter.
        """
        result = Encoded([], [])
        step = self._tuples_per_batch()
        if len(tuples) <= step:
            if tuples:
                self._add(tuples, result)
            return result
        start = 0
        while start < len(tuples):
            self._add(tuples[start : start + step], result)
            start += step
            step = self._tuples_per_batch()
        return result

    def _tuples_per_batch(self) -> int:
        limits = self._limits
        if self._tuple_bytes * limits.batch_tuples_max <= limits.batch_bytes_max:
            return limits.batch_tuples_max
        return max(1, int(0.9 * limits.batch_bytes_max / self._tuple_bytes))

    def _plain(self, tuples: Sequence[Any]) -> bytes | None:
        try:
            data: bytes = self._pack(tuples)
        except _REFUSED:
            return None
        for header in _BUFFER_HEADERS:
            if header in data:
                return data if _SCALARS.issuperset(map(type, tuples)) else None
        return data

    def _pickled(self, tuples: Sequence[Any], swelling_max: int | None) -> bytes:
        records = tuples and type(tuples[0]) in RECORDS and len(kinds_of(tuples)) == 1
        if records and ATOMS.issuperset(map(type, chain.from_iterable(tuples))):
            return pickle.dumps(_Records(tuples), 5)
        return pickle.dumps(separate(tuples, swelling_max), 5)

    def _add(self, tuples: Sequence[Any], result: Encoded) -> None:
        limits, count = self._limits, len(tuples)
        try:
            data = self.encode(tuples, limits.batch_bytes_max)
        except (MemoryError, KeyboardInterrupt):  # of this process, not of the tuples
            raise
        except Swells as swells:
            return self._add_in_steps(tuples, swells.fitting, result)
        except BaseException:
            return self._add_the_sound(tuples, result)
        size = len(data)
        self._tuple_bytes = size / count
        if size <= limits.batch_bytes_max or (count == 1 and size <= limits.tuple_bytes_max):
            result.batches.append(Batch(count, data))
        elif count == 1:
            reason = f"its {size:,} encoded bytes are above the limit of {limits.tuple_bytes_max:,}"
            result.dead.append(DeadLetter(reason, tuples[0]))
        else:
            self._add_in_steps(tuples, max(1, count * limits.batch_bytes_max // size), result)

    def _add_in_steps(self, tuples: Sequence[Any], step: int, result: Encoded) -> None:
        for start in range(0, len(tuples), step):
            self._add(tuples[start : start + step], result)

    def _add_the_sound(self, tuples: Sequence[Any], result: Encoded) -> None:
        """Sort out the tuples that cannot be encoded, then encode the others together."""
        sound_at = []
        for number, one in enumerate(tuples):
            try:
                pickle.dumps([one], 5)
            except (MemoryError, KeyboardInterrupt):
                raise
            except BaseException as error:
                reason = f"cannot be sent to another process: {describe(error)}"
                result.dead.append(DeadLetter(reason, one))
            else:
                sound_at.append(number)
        if len(sound_at) < len(tuples):
            if sound_at:
                self._add(_chosen(tuples, sound_at), result)
        else:  # each alone can be, all together cannot: a value at the edge of recursion
            for number in sound_at:
                self._add(_chosen(tuples, [number]), result)


def _chosen(tuples: Sequence[Any], at: list[int]) -> Sequence[Any]:
    return tuples.chosen(at) if isinstance(tuples, Marked) else [tuples[number] for number in at]


def decode(data: bytes | memoryview) -> list[Any]:
    """The tuples of a batch; raises `PayloadError`, and `MemoryError` as it is. The
    module says whose bytes may be trusted.

    If it raises, `runtime.processing.salvage.salvage` gets the sound tuples out of the batch.
    """
    try:
        if data[0] == _PICKLE_FIRST:
            tuples = pickle.loads(data)
        else:
            tuples = msgpack.unpackb(data, strict_map_key=False)
    except (MemoryError, KeyboardInterrupt):  # of this process, not of the batch
        raise
    except BaseException as error:
        raise PayloadError(f"a batch cannot be decoded: {describe(error)}") from error
    if type(tuples) is not list:
        raise PayloadError(f"a batch holds {type(tuples).__name__}, not a list of tuples")
    return tuples
