"""Tuples on their way to another section: with keys and buckets, in batches of a good size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.keyed.groups import GroupCache
from anabranch.runtime.keyed.keys import with_keys
from anabranch.runtime.keyed.payload import KeyedEncoder, Pairs
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.plan.spec import KeyedEdge
from anabranch.runtime.processing.marks import NO_MARK, Marked, opened
from anabranch.runtime.processing.payload import Encoder
from anabranch.spark_engine.mapping import Station, bucket_of
from anabranch.spark_engine.rows import Block, Kind, Row, split_of, with_trace

BATCH_TUPLES = DEFAULT_LIMITS.batch_tuples_max

Bury = Callable[[Iterable[DeadLetter]], None]


class Piece(NamedTuple):
    """So many tuples, encoded, and which of those that were to be encoded they are."""

    tuples: int
    data: bytes
    at: range | list[int]


def pieces_of(encoder: Encoder, tuples: Any, bury: Bury) -> list[Piece]:
    """Encoded batches in order; tuples that cannot be encoded are buried."""
    batches, letters = encoder.encode_batches(tuples)
    pieces: list[Piece] = []
    if not letters:
        start = 0
        for count, data in batches:
            pieces.append(Piece(count, data, range(start, start + count)))
            start += count
        return pieces
    bury(letters)
    numbered = Marked(tuples, [float(n) for n in range(len(tuples))])
    for count, data in encoder.encode_batches(numbered).batches:
        batch = opened(data, count)
        assert batch.marks is not None
        pieces.append(Piece(count, bytes(batch.data), [int(n) for n in batch.marks]))
    return pieces


class _Heap:
    """What waits for one bucket."""

    def __init__(self) -> None:
        self.tuples: list[Any] = []
        self.keys: list[Any] = []
        self.marks: list[float] = []
        self.places: list[int] = []
        self.first = (NO_MARK, 0)


class Outbox:
    """From one station to another. `put` and `flush` give rows, which lack lane and number."""

    def __init__(
        self,
        sender: Station,
        receiver: Station,
        *,
        edge: KeyedEdge | None,
        groups: int,
        buckets: int,
        lane: int,
        bury: Bury,
    ) -> None:
        self._sender = sender
        self._receiver = receiver
        self._edge = edge
        self._group_of = GroupCache(groups)
        self._buckets = buckets
        self._lane = lane
        self._bury = bury
        self._heaps: dict[int, _Heap] = {}
        self._encoder = Encoder(DEFAULT_LIMITS) if edge is None else KeyedEncoder(DEFAULT_LIMITS)

    def put(self, block: Block) -> list[Row]:
        rows: list[Row] = []
        for bucket, part in self._dealt(block).items():
            heap = self._heaps.get(bucket)
            if heap is not None and not self._may_join(heap, part):
                rows += self._rows(bucket, heap)
                heap = None
            if heap is None:
                heap = self._heaps[bucket] = _Heap()
            if not heap.tuples:
                heap.first = (max(part.mark_at(0), part.floor), part.first_place)
            _add(heap, part, traced=self._sender.traced)
            if len(heap.tuples) >= BATCH_TUPLES:
                rows += self._rows(bucket, self._heaps.pop(bucket))
        return rows

    def _may_join(self, heap: _Heap, part: Block) -> bool:
        """Where tuples are put in order by their batches, no other partition may have tuples that
        belong between those of one: they are of one split."""
        if self._sender.traced or not self._receiver.together:
            return True
        return split_of(heap.first[1]) == split_of(part.first_place)

    def flush(self) -> list[Row]:
        heaps, self._heaps = self._heaps, {}
        return [row for bucket, heap in heaps.items() for row in self._rows(bucket, heap)]

    def _dealt(self, block: Block) -> dict[int, Block]:
        """By bucket. Without keys, tuples stay in the partition where they are, but for those
        that one task must have all."""
        if self._edge is None:
            return {0 if self._receiver.alone else self._lane: block}
        tuples, marks = block.tuples, block.marks
        places = None if isinstance(block.places, int) else block.places
        # What befalls marks shows which tuples are left; the others have no key.
        numbers = [*map(float, range(len(tuples)))]
        look_up = self._group_of.__getitem__
        found = with_keys(self._receiver.operator, self._edge.key, look_up, tuples, numbers)
        if found.dead:
            self._bury(found.dead)
        at: dict[int, list[int]] = {}
        buckets = self._buckets
        for n, group in enumerate(found.looked_up):
            at.setdefault(bucket_of(group, buckets), []).append(n)
        dealt = {}
        for bucket, mine in at.items():
            origins = [int(found.marks[n]) for n in mine]
            dealt[bucket] = Block(
                [found.tuples[n] for n in mine],
                None if marks is None else [marks[n] for n in origins],
                block.first_place if places is None else [places[n] for n in origins],
                block.floor,
                [found.keys[n] for n in mine],
            )
        return dealt

    def _rows(self, bucket: int, heap: _Heap) -> list[Row]:
        wanted: Any = heap.tuples if self._edge is None else Pairs(heap.keys, heap.tuples)
        rows = []
        for piece in pieces_of(self._encoder, wanted, self._bury_items):
            at = piece.at
            marks = [heap.marks[n] for n in at] if heap.marks else None
            places = [heap.places[n] for n in at] if heap.places else None
            mark, place = heap.first
            if marks:
                mark = max(mark, marks[0])
            if places:
                place = places[0]
            data = with_trace(piece.data, marks, places)
            rows.append(
                Row(
                    Kind.TUPLES,
                    self._receiver.number,
                    mark,
                    place,
                    self._sender.number,
                    bucket=bucket,
                    tuples=piece.tuples,
                    data=data,
                )
            )
        return rows

    def _bury_items(self, letters: Iterable[DeadLetter]) -> None:
        """Of pairs, the tuples."""
        if self._edge is not None:
            letters = [DeadLetter(one.reason, one.tuple[1], one.where, one.step) for one in letters]
        self._bury(letters)


def _add(heap: _Heap, part: Block, *, traced: bool) -> None:
    heap.tuples += part.tuples
    heap.keys += part.keys
    if part.marks is not None:
        heap.marks += part.marks
    if traced:
        one = part.places
        heap.places += [one] * len(part.tuples) if isinstance(one, int) else one
