"""Where each numbered tuple of a keyed world comes from, and whether order is kept on its way.

Every result has an origin within which results are made one after the other: the instance that
made it or, at a keyed operator, the key, whichever instance owned it at the time. A receiver with a
fixed order, a key of a keyed operator or an operator that only ever has one instance, must take
tuples of one origin in the order in which they were made. From neighbour to neighbour this adds up
to the order from source to sink.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.keyed.timers import mark_of_end
from anabranch.runtime.simulation.models import Model, Timing

Place = InstanceId | tuple[str, int]
"""An instance, or a key of a keyed operator."""
Taken = tuple[tuple[Place, Place], int]
"""A place and an origin, and how far the place had come with tuples of it before."""


class Birth(NamedTuple):
    """`root`: the tuple of a source that it stems from. `time_s`: event time. `mark`: by what it is
    late or is not, as in `anabranch.runtime.processing.marks`."""

    root: int
    time_s: float
    mark: float
    origin: Place
    position: int


class Lineage:
    """`disorder`: the first violation at a place that is only bound to order while its operator
    has a single instance."""

    def __init__(self, models: Mapping[OperatorName, Model], timing: Timing) -> None:
        self.timing = timing
        self._models: Mapping[str, Model] = {str(name): m for name, m in models.items()}
        self._births: dict[tuple[str, int], Birth] = {}
        self._made: Counter[Place] = Counter()
        self._taken: dict[tuple[Place, Place], int] = {}
        self.disorder: dict[str, str] = {}

    # -- making ----------------------------------------------------------------------------

    def read(self, me: InstanceId, items: list[int]) -> None:
        """A source has read tuples."""
        for item in items:
            time_s, mark = self.timing.time_of(item), self.timing.mark_of(item)
            self._bear(me.operator, item, item, time_s, mark, me)

    def made(self, operator: str, maker: str, parent: int, items: list[int], origin: Place) -> None:
        """`items` were made at `operator` of a tuple that came from operator `maker`."""
        birth = self._births[maker, parent]
        for item in items:
            self._bear(operator, item, birth.root, birth.time_s, birth.mark, origin)

    def closed(self, operator: str, root: int, item: int, time_s: float, origin: Place) -> None:
        """`item` is the result of a window that ends at `time_s`: it is new to the audit."""
        self._bear(operator, item, root, time_s, mark_of_end(time_s), origin)

    def _bear(
        self, operator: str, item: int, root: int, time_s: float, mark: float, origin: Place
    ) -> None:
        self._made[origin] += 1
        self._births[operator, item] = Birth(root, time_s, mark, origin, self._made[origin])

    # -- taking ----------------------------------------------------------------------------

    def birth(self, maker: str, item: int) -> Birth:
        return self._births[maker, item]

    def group(self, operator: str, maker: str, item: int) -> int:
        """The key group at a keyed operator of a tuple that `maker` has made."""
        keys = self._models[operator].keyed
        assert keys is not None
        return keys.group_of(keys.key_of(self._births[maker, item].root))

    def take(self, place: Place, maker: str, item: int, taken: list[Taken] | None = None) -> str:
        """A place processes a tuple; a sentence if that is out of order. `taken`: of the commit."""
        birth = self._births[maker, item]
        way = (place, birth.origin)
        before = self._taken.get(way, 0)
        self._taken[way] = max(before, birth.position)
        if taken is not None:
            taken.append((way, before))
        if birth.position > before:
            return ""
        return f"{_say(place)} takes {item} of {_say(birth.origin)} after a later one"

    def take_all(
        self, me: InstanceId, maker: str, items: list[int], taken: list[Taken] | None = None
    ) -> None:
        """An instance of an operator without keys processes tuples."""
        for item in items:
            if sentence := self.take(me, maker, item, taken):
                self.disorder.setdefault(me.operator, sentence)

    def undo(self, taken: list[Taken]) -> None:
        """A commit has died with its process."""
        for way, before in reversed(taken):
            self._taken[way] = before


def _say(place: Place) -> str:
    return str(place) if isinstance(place, InstanceId) else f"key {place[1]} of {place[0]}"
