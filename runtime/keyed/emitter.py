"""Results and dead letters of a keyed operator, and where they go."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.processing.steps import Part


class Emitter:
    """`emit` gets the parts. `noted` is called when there may be something to write to a journal.
    `marks_results`: parts have the marks of their results."""

    def __init__(
        self,
        held: Holdings,
        emit: Callable[[Part], None],
        noted: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self.marks_results = False
        self.noted = noted
        self._held = held
        self._emit = emit
        self._clock = clock

    def part(self) -> Part:
        part = Part(0)
        if self.marks_results:
            part.marks = []
        return part

    def done(self, part: Part, began: float) -> None:
        self.noted()
        self._held.store.event.tidy()
        part.busy_s = self._clock() - began - part.waited_s
        self._emit(part)

    def done_if_told(self, part: Part, began: float) -> None:
        """Only if there is anything in it."""
        if part.results or part.letters:
            self.done(part, began)
        else:
            self.noted()
