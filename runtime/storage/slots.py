"""A small record that is replaced again and again and never half: two slots, written in turn.

    slot = sequence, length of the body, body, checksum, …, mark

The whole slot with the higher sequence counts. A slot is what a disk writes at once, so power that
is lost while one is written leaves the other. The mark is written later, when what the record with
that sequence announces has come true.
"""

from __future__ import annotations

import struct
import zlib

from anabranch.runtime.ports.store import SECTOR_BYTES, File

SLOT_BYTES = SECTOR_BYTES
SLOTS_BYTES = 2 * SLOT_BYTES
BODY_BYTES_MAX = 480

_HEAD = struct.Struct("<QH")
_CHECK = struct.Struct("<I")
_MARK = struct.Struct("<Q")


class SlotsError(OSError):
    """Neither slot is whole, which no crash leaves behind."""


def read_slots(file: File) -> tuple[int, bytes] | None:
    """Sequence and body of the record at the beginning of a file; None if there is none yet."""
    return read_both(file)[0]


def read_both(file: File) -> tuple[tuple[int, bytes] | None, bool]:
    """The same, and whether the record before it is there, too. If not, then either that one was
    damaged later, or the next one was not written whole."""
    slots = file.read(SLOTS_BYTES, 0)
    halves = slots[:SLOT_BYTES], slots[SLOT_BYTES:]
    found = sorted(record for half in halves if (record := _record(half)) is not None)
    if not found and all(map(any, halves)):
        raise SlotsError(None, "what was noted beside the results is damaged")
    if not found:
        return None, True
    (sequence, _), *others = reversed(found)
    if sequence == 1:
        return found[-1], not any(halves[0])
    return found[-1], [number for number, _ in others] == [sequence - 1]


def write_slot(file: File, sequence: int, body: bytes) -> None:
    """One write. Sequences begin with 1 and grow by one."""
    slot = _HEAD.pack(sequence, len(body)) + body
    file.write(slot + _CHECK.pack(zlib.crc32(slot)), sequence % 2 * SLOT_BYTES)


def mark_slot(file: File, sequence: int) -> None:
    """Mark the record with this sequence, which was written last."""
    file.write(_MARK.pack(sequence), _mark_at(sequence))


def is_marked(file: File, sequence: int) -> bool:
    return file.read(_MARK.size, _mark_at(sequence)) == _MARK.pack(sequence)


def _mark_at(sequence: int) -> int:
    return sequence % 2 * SLOT_BYTES + SLOT_BYTES - _MARK.size


def _record(slot: bytes) -> tuple[int, bytes] | None:
    if len(slot) < _HEAD.size:
        return None
    sequence, length = _HEAD.unpack_from(slot)
    end = _HEAD.size + length
    if not sequence or end + _CHECK.size > len(slot):
        return None
    if _CHECK.unpack_from(slot, end)[0] != zlib.crc32(memoryview(slot)[:end]):
        return None
    return sequence, slot[_HEAD.size : end]
