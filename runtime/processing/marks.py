"""The watermark as a part of the stream: each tuple has a mark, by which it is late or is not.

The **mark** of a tuple is the watermark of the instance that read its event time, at the moment
before the tuple went out. It travels with the tuple, and with what is made of it, to the operators
that keep windows and timers. So which tuples are late follows from the order of tuples where event
time is read, and from nothing else: neither from a clock nor from how many instances lie between.
`NO_MARK` is that of a tuple which no such instance has seen.

Marks travel only where an operator further down needs event time (`marked_ways`): a batch begins
with them then, eight bytes each, or eight for all if they are alike.

    0xC1, flags, bytes of marks (4), marks, the batch as in `anabranch.runtime.processing.payload`

To pack and read marks takes 0.05 microseconds a tuple; reading event time takes 0.23 with marks,
and took 0.45 before there were any (batches of 2,048, one core of an AMD EPYC).

MessagePack never begins with 0xC1, nor does a pickle. A batch that **follows** its marks states
that the watermark of its sender does: no tuple will come that has an earlier mark. One that does so
**by key** states it for each key: none of that key will.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

if TYPE_CHECKING:
    from anabranch.protocol.ids import OperatorName
    from anabranch.runtime.plan.operator import Operator

NO_MARK = -math.inf

_FIRST = 0xC1
_HEAD = struct.Struct(">BBI")
_FOLLOWS = 1
_BY_KEY = 2
_MARK_BYTES = 8

Way = tuple["OperatorName", "OperatorName"]


class Marked(Sequence[Any]):
    """Tuples (or pairs of keys and tuples) with their marks, equally many."""

    def __init__(
        self,
        items: Sequence[Any],
        marks: list[float],
        *,
        follows: bool = False,
        by_key: bool = False,
    ) -> None:
        self.items = items
        self.marks = marks
        self.follows = follows
        self.by_key = by_key

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> Marked: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return self._with(self.items[at], self.marks[at])
        return self.items[at]

    def chosen(self, at: Iterable[int]) -> Marked:
        """Some of them, by their places."""
        places = list(at)
        items = [self.items[n] for n in places]
        return self._with(items, [self.marks[n] for n in places])

    def _with(self, items: Sequence[Any], marks: list[float]) -> Marked:
        return Marked(items, marks, follows=self.follows, by_key=self.by_key)


class Opened(NamedTuple):
    """A batch without its marks; these are None if it has none."""

    data: bytes | memoryview
    marks: list[float] | None = None
    follows: bool = False
    by_key: bool = False

    def marks_of(self, tuples: int) -> list[float] | None:
        """Those of so many tuples: where some could not be read, all have the earliest."""
        if self.marks is None or len(self.marks) == tuples:
            return self.marks
        return [min(self.marks, default=NO_MARK)] * tuples


def sealed(data: bytes, marked: Marked) -> bytes:
    """A batch with its marks in front."""
    marks = marked.marks
    alike = marks[0] == marks[-1] and marks.count(marks[0]) == len(marks)
    packed = _packed(marks[:1] if alike else marks)
    flags = _FOLLOWS * marked.follows | _BY_KEY * marked.by_key
    head = _HEAD.pack(_FIRST, flags, len(packed))
    return b"".join((head, packed, data))


def opened(data: bytes, tuples: int) -> Opened:
    """The reverse, for a batch of so many tuples, whether it has marks or none."""
    if not data or data[0] != _FIRST or len(data) < _HEAD.size:
        return Opened(data)
    _, flags, size = _HEAD.unpack_from(data)
    end = _HEAD.size + size
    marks = _unpacked(data[_HEAD.size : end - size % _MARK_BYTES])
    if len(marks) == 1:
        marks *= tuples
    return Opened(memoryview(data)[end:], marks, bool(flags & _FOLLOWS), bool(flags & _BY_KEY))


def _packed(marks: list[float]) -> bytes:
    numbers = array("d", marks)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _unpacked(data: bytes) -> list[float]:
    numbers = array("d", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def marked_ways(operators: Mapping[OperatorName, Operator]) -> frozenset[Way]:
    """From which operator to which marks travel: event time was read, and is asked for behind."""
    marked: set[str] = set()
    for operator in operators.values():  # each is behind those from which its tuples come
        if operator.timing is not None or not marked.isdisjoint(operator.upstream):
            marked.add(operator.name)
    asking: set[str] = set()
    for operator in reversed([*operators.values()]):
        behind = (o.name for o in operators.values() if operator.name in o.upstream)
        passes_on = operator.timing is None and not asking.isdisjoint(behind)
        if passes_on or (operator.keyed is not None and operator.keyed.asks_for_time):
            asking.add(operator.name)
    return frozenset(
        (upstream, operator.name)
        for operator in operators.values()
        for upstream in operator.upstream
        if upstream in marked and operator.name in asking
    )
