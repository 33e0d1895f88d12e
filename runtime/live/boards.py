"""The boards of all sources of the run, and the news about them for instances that wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.board import Board
from anabranch.runtime.ends import Source, Split
from anabranch.runtime.graph import Pipeline
from anabranch.runtime.live.messages import SplitAnswer, Splits


class SplitsError(Exception):
    """A source cannot say its next split. The message names the operator."""


class Boards:
    """`send(instance, message)` reaches an instance over its link."""

    def __init__(self, pipeline: Pipeline, send: Callable[[InstanceId, Any], None]) -> None:
        self._send = send
        self._sources: dict[str, Source] = {
            o.name: o.source for o in pipeline.operators.values() if o.source is not None
        }
        self._sizes = {name: source.size() for name, source in self._sources.items()}
        self._boards: dict[str, Board[InstanceId]] = {
            name: Board(source.splits(), open=source.service is not None)
            for name, source in self._sources.items()
        }
        self._served = {n for n, source in self._sources.items() if source.service is not None}

    def claim(self, holder: InstanceId) -> SplitAnswer:
        """Raises `SplitsError` if the source fails."""
        board = self._boards[holder.operator]
        try:
            split = board.claim(holder)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise SplitsError(f"source {holder.operator!r} cannot go on: {reason}") from error
        ended = split is None and board.ended
        return SplitAnswer(split=split, ended=ended, number=board.number(holder))

    def release(
        self, holder: InstanceId, remainder: Split | None, progress: float, number: int
    ) -> None:
        board = self._boards[holder.operator]
        self._tell(board.release(holder, remainder, progress, number))

    def advance(self, holder: InstanceId, amount: float) -> None:
        self._boards[holder.operator].advance(holder, amount)

    def publish(self, operator: str, splits: Iterable[Split]) -> None:
        """New splits from a service. Ignored once the input was told to end."""
        board = self._boards[operator]
        for split in splits:
            if not board.input_ended_early:
                self._tell(board.publish(split))

    def end_service(self, operator: str) -> None:
        """The service publishes nothing more."""
        self._served.discard(operator)
        self._tell(self._boards[operator].close())

    def end_input(self, operator: str) -> None:
        self._served.discard(operator)
        self._tell(self._boards[operator].end_input())

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
