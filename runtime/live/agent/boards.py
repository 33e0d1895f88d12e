"""The boards of all sources of the run, and notices to instances that wait for splits.

Claims and releases are recorded before instances get the answer. When a run is resumed, the
splits are pulled from the sources again and must be the same: the input may not change meanwhile.
Only a source that cannot be divided keeps by itself how it goes on, as standard input does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import msgspec

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.agent.run_journal import (
    AllRead,
    BoardSnapshot,
    Claimed,
    EndedEarly,
    Released,
    RunRecord,
)
from anabranch.runtime.live.link.messages import SplitAnswer, Splits
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Source, Split
from anabranch.runtime.reporting.status import id_from_wire, id_to_wire
from anabranch.runtime.sources.board import Board, HeldSplit, digest_of
from anabranch.runtime.sources.covered import Covered
from anabranch.runtime.sources.files import Files

INPUT_ADVICE = "put it back as it was, or begin anew with --fresh"


class SplitsError(Exception):
    """A source cannot give its next split. The message names the operator."""


class InputChanged(Exception):
    """The input of a resumed run is not what it was. The message names the operator."""


class Pulled(Iterator[Split]):
    """Counts the splits of a source, and keeps a digest of those that were pulled."""

    def __init__(self, source: Source) -> None:
        self._splits = source.splits()
        self._are_files = isinstance(source, Files)  # those of others may look the same
        self.count = 0
        self.digest = 0
        self.covered = Covered()

    def __next__(self) -> Split:
        split = next(self._splits)
        self.count += 1
        self.digest = digest_of(split, self.digest)
        if self._are_files:
            self.covered.note(split)
        return split


class Boards:
    """`send(instance, message)` reaches an instance over its link; `log` gets every change."""

    def __init__(
        self,
        pipeline: Pipeline,
        send: Callable[[InstanceId, Any], None],
        log: Callable[[RunRecord], None],
    ) -> None:
        self._send = send
        self._log = log
        self._sources: dict[str, Source] = {
            o.name: o.source for o in pipeline.operators.values() if o.source is not None
        }
        self._sizes = {name: source.size() for name, source in self._sources.items()}
        self._pulled = {name: Pulled(source) for name, source in self._sources.items()}
        self._boards: dict[str, Board[InstanceId]] = {
            name: Board(self._pulled[name], open=source.service is not None)
            for name, source in self._sources.items()
        }
        self._served = {n for n, source in self._sources.items() if source.service is not None}
        self._told_ended: set[str] = set()
        """Sources of which an instance has learnt that no input is left."""
        self._cut_by: dict[str, str] = {}
        """By source: what ended its input before it was read to its end."""

    def claim(self, holder: InstanceId) -> SplitAnswer:
        """Raises `SplitsError` if the source fails."""
        board = self._boards[holder.operator]
        before = board.number(holder)
        with _naming(holder.operator):
            split = board.claim(holder)
        number = board.number(holder)
        if split is not None and number != before:
            self._log(Claimed(id=id_to_wire(holder), split=split, number=number))
        ended = split is None and board.ended
        if ended and holder.operator not in self._told_ended:
            self._told_ended.add(holder.operator)
            self._log(AllRead(operator=holder.operator))
        return SplitAnswer(split=split, ended=ended, number=number)

    def release(
        self, holder: InstanceId, remainder: Split | None, progress: float, number: int
    ) -> None:
        board = self._boards[holder.operator]
        number = number or board.number(holder)
        if board.holds(holder) is not None and number == board.number(holder):
            self._log(
                Released(
                    id=id_to_wire(holder),
                    remainder=remainder,
                    progress=progress,
                    number=number,
                )
            )
        self._tell(board.release(holder, remainder, progress, number))

    def give_back(self, holder: InstanceId) -> None:
        """A holder has ended. What it still holds was claimed by an incarnation that has died, and
        no later one has received it, so nothing of it was read."""
        board = self._boards.get(holder.operator)
        split = None if board is None else board.holds(holder)
        if board is not None and split is not None:
            self.release(holder, split, 0.0, board.number(holder))

    def advance(self, holder: InstanceId, progress: float, number: int) -> None:
        """Shown, not recorded: a later incarnation reports it again."""
        self._boards[holder.operator].advance(holder, progress, number)

    def publish(self, operator: str, splits: Iterable[Split]) -> None:
        """New splits from a service. Ignored after the input was ended early."""
        board = self._boards[operator]
        for split in splits:
            if not board.input_ended_early:
                self._tell(board.publish(split))

    def end_service(self, operator: str) -> None:
        """The service publishes nothing more."""
        self._served.discard(operator)
        self._tell(self._boards[operator].close())

    def end_input(self, operator: str, by: str = "") -> None:
        """`by`: see `Report.ended_by`; empty if the program itself sets where its input ends."""
        board = self._boards[operator]
        cut_by = "" if board.ended else by
        self._log(EndedEarly(operator=operator, by=cut_by))
        self._note_cut(operator, cut_by)
        self._served.discard(operator)
        self._tell(board.end_input())

    @property
    def cut_by(self) -> str:
        """What has cut the input of a source short; empty if nothing has."""
        return next(iter(self._cut_by.values()), "")

    def _note_cut(self, operator: str, by: str) -> None:
        if by:
            self._cut_by.setdefault(operator, by)

    def refuse_if_ended(self) -> None:
        """Raises `InputChanged` if the end of an input may have had effects in an earlier part of
        the run, such as the ends of windows."""
        for name, board in self._boards.items():
            with _naming(name):
                ended = board.exhausted()
            if ended:
                raise InputChanged(
                    f"the input of source {name!r} had ended before, so windows may have ended and "
                    "timers fired because of that, and there is no consistent point any more; "
                    "finish the run with --resume alone"
                )

    # -- of a resumed run --------------------------------------------------------------------

    def claim_again(self, holder: InstanceId, split: Split, number: int) -> None:
        """What was claimed before. Raises `InputChanged`, `SplitsError`."""
        answer = self.claim(holder)
        board = self._boards[holder.operator]
        if not self._sources[holder.operator].scalable and holder in board.held:
            board.held[holder].split = split
        elif answer.number != number or not _same(answer.split, split):
            came, now = _difference(self._sources[holder.operator], split, answer.split)
            raise InputChanged(
                f"the input of source {holder.operator!r} has changed since: where "
                f"{_in_words(came)} came, there is {_in_words(now)} now; {INPUT_ADVICE}"
            )

    def snapshots(self) -> Iterator[BoardSnapshot]:
        for name, board in self._boards.items():
            yield BoardSnapshot(
                operator=name,
                pulled=self._pulled[name].count,
                digest=self._pulled[name].digest,
                returned=list(board.returned),
                unread=list(board.unread),
                held=[
                    (id_to_wire(h), s.split, s.number, s.progress) for h, s in board.held.items()
                ],
                claims=board.claims,
                progress=board.progress,
                ended_early=board.input_ended_early,
                cut_by=self._cut_by.get(name, ""),
            )

    def covered(self, operator: str) -> Covered:
        """The files of all splits that were handed out."""
        return self._pulled[operator].covered

    def restore(self, snapshot: BoardSnapshot, advice: str = INPUT_ADVICE) -> None:
        """`advice`: what to do if the input has changed. Raises `InputChanged`, `SplitsError`."""
        pulled, board = self._pulled[snapshot.operator], self._boards[snapshot.operator]
        with _naming(snapshot.operator):
            while pulled.count < snapshot.pulled and next(pulled, None) is not None:
                pass
        divided = self._sources[snapshot.operator].scalable
        if pulled.count != snapshot.pulled or (divided and pulled.digest != snapshot.digest):
            raise InputChanged(
                f"the input of source {snapshot.operator!r} has changed since: its first "
                f"{snapshot.pulled} parts are not what they were; {advice}"
            )
        board.returned.extend(snapshot.returned)
        board.unread.extend(snapshot.unread)
        board.held = {id_from_wire(h): HeldSplit(s, n, p) for h, s, n, p in snapshot.held}
        board.claims, board.progress = snapshot.claims, snapshot.progress
        if snapshot.ended_early:
            self.end_input(snapshot.operator)
            self._note_cut(snapshot.operator, snapshot.cut_by)

    def is_served(self, operator: str) -> bool:
        """Whether a service may still publish splits for this operator."""
        return operator in self._served

    def has_ended_early(self, operator: str) -> bool:
        board = self._boards.get(operator)
        return board is not None and board.input_ended_early

    def progress(self, operator: str) -> float | None:
        """The share that was read, 0 to 1; None if the size is not known."""
        size = self._sizes.get(operator)
        if not size:
            return None
        return min(1.0, self._boards[operator].progress / size)

    def _tell(self, holders: Iterable[InstanceId]) -> None:
        for holder in holders:
            self._send(holder, Splits())


@contextmanager
def _naming(operator: str) -> Iterator[None]:
    """Whatever the source raises becomes a `SplitsError`."""
    try:
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise SplitsError(f"source {operator!r} cannot go on: {reason}") from error


def _same(a: Split | None, b: Split) -> bool:
    """As they are on the wire: a tuple and a list are the same there."""
    return msgspec.msgpack.encode(a) == msgspec.msgpack.encode(b)


def _difference(source: Source, a: Split, b: Split | None) -> tuple[Split | None, Split | None]:
    """The first parts that differ; the splits themselves if no part does."""
    pairs = zip_longest(source.parts(a), [] if b is None else source.parts(b))
    return next((pair for pair in pairs if not _same(*pair)), (a, b))


def _in_words(split: Split | None) -> str:
    if split is None:
        return "nothing"
    return "(" + ", ".join(f"{key} {value!r}" for key, value in split.items()) + ")"
