"""The rows between the sections of a job: batches of tuples, and what is said about them.

    kind    what it is (`Kind`)
    to      number of the station that it is for, or that it is from
    bucket  where it is to be done; the partition is the bucket modulo their number
    mark    watermark of its first tuple; rows are processed by mark and place
    place   where its first tuple was in the input: source, split, tuple
    way     number of the station that sent it
    lane    partition in which it was made; `number` counts there
    tuples  how many are in it
    data    bytes, by kind

Sorted by their columns in this order, rows come as they are to be processed.
"""

from __future__ import annotations

import enum
import struct
from array import array
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from anabranch.runtime.processing.marks import NO_MARK

COLUMNS = (
    "kind int, to int, mark double, place long, way int, lane int, number long, "
    "bucket int, tuples int, data binary"
)
ORDER = ("kind", "to", "mark", "place", "way", "lane", "number")
NAMES = (*ORDER, "bucket", "tuples", "data")

_SPLIT_BITS = 25
_TUPLE_BITS = 32


class Kind(enum.IntEnum):
    """What a row is. Those from `OUT` on are results of the job and are passed on as they are."""

    STATE = 0
    """What a station has kept from the batches before."""
    BEGIN = 1
    """A bucket takes part in this batch, whether it has tuples or none."""
    SPLIT = 2
    TUPLES = 3
    WATERMARK = 4
    """`mark`: how far the station `way` has come, at the end of this batch."""
    OUT = 5
    LETTERS = 6
    COUNTS = 7
    KEPT = 8
    """What a station keeps for the next batch."""


class Row(NamedTuple):
    kind: int
    to: int
    mark: float = NO_MARK
    place: int = 0
    way: int = -1
    lane: int = -1
    number: int = 0
    bucket: int = 0
    tuples: int = 0
    data: bytes = b""


def place_of(source: int, split: int, position: int = 0) -> int:
    """Places grow as the input goes on: sources as they are written, their splits, the tuples."""
    position = min(position, 2**_TUPLE_BITS - 1)
    split = min(split, 2**_SPLIT_BITS - 1)
    return ((source << _SPLIT_BITS | split) << _TUPLE_BITS) | position


def split_of(place: int) -> int:
    """The same for all places of a split."""
    return place >> _TUPLE_BITS


@dataclass(slots=True)
class Block:
    """Tuples on their way. `marks`: theirs, if marks travel. `places`: of each, or one for all.
    `floor`: no tuple that came before by this way has a later place in the order."""

    tuples: list[Any]
    marks: list[float] | None
    places: list[int] | int
    floor: float = NO_MARK
    keys: list[Any] = field(default_factory=list)

    @property
    def first_place(self) -> int:
        return self.places if isinstance(self.places, int) else self.places[0]

    def place_at(self, at: int) -> int:
        return self.places if isinstance(self.places, int) else self.places[at]

    def mark_at(self, at: int) -> float:
        return NO_MARK if self.marks is None else self.marks[at]


_HEAD = struct.Struct(">II")


def with_trace(data: bytes, marks: list[float] | None, places: list[int] | None) -> bytes:
    """A batch with the marks and places of its tuples in front."""
    first = b"" if marks is None else array("d", _shortest(marks)).tobytes()
    second = b"" if places is None else array("q", places).tobytes()
    return b"".join((_HEAD.pack(len(first), len(second)), first, second, data))


def without_trace(
    data: bytes, count: int
) -> tuple[memoryview, list[float] | None, list[int] | None]:
    """The reverse."""
    marks_bytes, places_bytes = _HEAD.unpack_from(data)
    at, rest = _HEAD.size, memoryview(data)
    marks: list[float] | None = None
    places: list[int] | None = None
    if marks_bytes:
        numbers = array("d", rest[at : at + marks_bytes].tobytes()).tolist()
        marks = numbers * count if len(numbers) == 1 else numbers
    at += marks_bytes
    if places_bytes:
        places = array("q", rest[at : at + places_bytes].tobytes()).tolist()
    return rest[at + places_bytes :], marks, places


def _shortest(marks: list[float]) -> list[float]:
    alike = marks and marks[0] == marks[-1] and marks.count(marks[0]) == len(marks)
    return marks[:1] if alike else marks
