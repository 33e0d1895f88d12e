"""What the two ends of a channel send each other of their load and plans, for policies in concert
and for arrears. Nothing of it is numbered or repeated: the next one has it
better."""

from __future__ import annotations

import math
from dataclasses import astuple, fields
from typing import Any

from anabranch.protocol.errors import ChannelError
from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.channel import frames
from anabranch.runtime.live.channel.line import ChannelLine
from anabranch.runtime.measuring.reading import Figures, Planned
from anabranch.runtime.measuring.slot_sums import SlotSums


class LoadReports:
    def __init__(self, peer: InstanceId, line: ChannelLine) -> None:
        self.peer = peer
        self.figures_told: Figures | None = None
        """What the peer has counted in its last slot, if it sends that."""
        self.sums_told: Figures | None = None
        """The same of all instances of my operator."""
        self.plan_told: Planned | None = None
        """What the peer has planned as the keeper of its operator."""
        self.keepers_plan_told: Planned | None = None
        """What the keeper of my operator has."""
        self.arrears_told = 0.0
        """How many tuples that wait before the peer will come to my operator."""
        self.arrears_said = 0.0
        """The reverse, as sent to the peer last."""
        self._line = line

    def begin_anew(self) -> None:
        """On a new connection."""
        self.arrears_told = self.arrears_said = 0.0

    # -- what is sent --------------------------------------------------------------------------

    def tell_figures(self, figures: Figures, *, of_all: bool) -> None:
        """My own, or, `of_all`, those of all instances of the peer's operator."""
        told = figures.instances if of_all else 0
        sums = astuple(figures.sums)
        self._line.say(frames.frame(frames.FIGURES, figures.slot, told, sums, figures.loads))

    def tell_plan(self, planned: Planned, *, of_keeper: bool) -> None:
        """My own, or, `of_keeper`, that of the keeper of the peer's operator."""
        self._line.say(frames.frame(frames.PLAN, planned.slot, planned.instances, of_keeper))

    def tell_arrears(self, tuples: float) -> None:
        """How many of those that wait before me will come to the peer's operator."""
        if self._line.say(frames.frame(frames.ARREARS, tuples)):
            self.arrears_said = tuples

    # -- receiving -----------------------------------------------------------------------------

    def hear(self, frame: list[Any]) -> None:
        """Raises `ChannelError` for a frame that is malformed, or of another kind."""
        match frame:
            case [frames.FIGURES, int(slot), int(siblings), list(numbers), list(loads)]:
                self._hear_figures(slot, siblings, numbers, loads)
            case [frames.PLAN, int(slot), int(instances), bool(of_keeper)] if instances >= 0:
                if of_keeper:
                    self.keepers_plan_told = Planned(slot, instances)
                else:
                    self.plan_told = Planned(slot, instances)
            case [frames.ARREARS, int() | float() as tuples] if 0 <= tuples < math.inf:
                self.arrears_told = float(tuples)
            case _:
                raise ChannelError(f"an unknown frame of kind {frame[0]!r}")

    def _hear_figures(self, slot: int, siblings: int, numbers: list[Any], loads: list[Any]) -> None:
        if len(numbers) != len(fields(SlotSums)) or not all(
            isinstance(n, int | float) for n in (*numbers, *loads)
        ):
            raise ChannelError("malformed figures")
        figures = Figures(slot, siblings or 1, SlotSums(*numbers), tuple(loads))
        if siblings:
            self.sums_told = figures
        else:
            self.figures_told = figures
