"""The state of one key group in a simulated world: what was folded, and which windows are open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple, TypeVar

from anabranch.runtime.simulation.channel import Channel
from anabranch.runtime.simulation.fault import Fault
from anabranch.runtime.simulation.models import Keys

T = TypeVar("T")


class Kept(NamedTuple):
    """A tuple on its way through a keyed operator. `maker`: the operator it came from. `mark`: by
    what it is late or is not. `channel`: whose credit it holds, if any."""

    group: int
    key: int
    item: int
    maker: str
    born_s: float
    time_s: float
    root: int
    mark: float
    channel: Channel | None = None


class Folded(NamedTuple):
    """`late`: it was counted as late, and is in no window."""

    key: int
    item: int
    late: bool


class Open(NamedTuple):
    """A tuple that waits for the end of its window."""

    window: int
    key: int
    item: int
    root: int
    born_s: float


class Closing(NamedTuple):
    """A window that is over: its greatest tuple stands for it."""

    key: int
    item: int
    root: int
    end_s: float
    born_s: float


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a group that moves. `closed_s` is that of the group; `kept`: tuples that were not
    processed, behind everything else, in their order. `first`: it takes the place of all that
    an earlier incarnation of the sender has sent."""

    group: int
    closed_s: float
    folded: tuple[Folded, ...] = ()
    open: tuple[Open, ...] = ()
    kept: tuple[Kept, ...] = ()
    first: bool = False

    @property
    def entries(self) -> int:
        return len(self.folded) + len(self.open) + len(self.kept)

    def as_first(self) -> Chunk:
        return replace(self, first=True)


Snapshot = tuple[float, list[Folded], int, list[Open], int]


class GroupState:
    """`closed_s`: up to this event time windows are closed; no tuple with an earlier mark may
    come."""

    __slots__ = ("closed_s", "folded", "open")

    def __init__(self, closed_s: float) -> None:
        self.closed_s = closed_s
        self.folded: list[Folded] = []
        self.open: list[Open] = []

    def fold(self, one: Kept, keys: Keys) -> None:
        """Raises `Fault` for a tuple that comes behind a watermark which its mark was before."""
        if one.mark < self.closed_s:
            raise Fault(
                f"W: {one.item} of mark {one.mark:.4f} comes too late to group {one.group}, which "
                f"is closed to {self.closed_s:.4f}"
            )
        late = self.is_late(one, keys)
        self.folded.append(Folded(one.key, one.item, late))
        if keys.window_s is not None and not late:
            window = keys.window_of(one.time_s)
            self.open.append(Open(window, one.key, one.item, one.root, one.born_s))

    def is_late(self, one: Kept, keys: Keys) -> bool:
        return keys.is_late(one.time_s, one.mark)

    def close(self, watermark: float, keys: Keys) -> list[Closing]:
        """Close the windows that are over, in the order of their ends and keys."""
        self.closed_s = max(self.closed_s, watermark)
        if not self.open:
            return []
        over = [o for o in self.open if keys.end_of(o.window) <= watermark]
        self.open = [o for o in self.open if keys.end_of(o.window) > watermark]
        windows = sorted({(o.window, o.key) for o in over})
        found = []
        for window, key in windows:
            inside = [o for o in over if (o.window, o.key) == (window, key)]
            most = max(inside, key=lambda o: o.item)
            end_s, born_s = keys.end_of(window), min(o.born_s for o in inside)
            found.append(Closing(key, most.item, most.root, end_s, born_s))
        return found

    def snapshot(self) -> Snapshot:
        """What it is now, without a copy: `folded` only grows, `open` grows or is replaced."""
        return self.closed_s, self.folded, len(self.folded), self.open, len(self.open)

    @classmethod
    def of(cls, snapshot: Snapshot) -> GroupState:
        closed_s, folded, n_folded, open_, n_open = snapshot
        state = cls(closed_s)
        state.folded, state.open = folded[:n_folded], open_[:n_open]
        return state

    def add(self, chunk: Chunk) -> None:
        self.closed_s = chunk.closed_s
        self.folded += chunk.folded
        self.open += chunk.open

    def chunks(self, group: int, kept: Iterable[Kept], most: int) -> Iterator[Chunk]:
        """All of it, at most `most` entries each, at least one chunk."""
        yield Chunk(group, self.closed_s, open=tuple(self.open[:most]))
        for part in _parts(self.open[most:], most):
            yield Chunk(group, self.closed_s, open=part)
        for folded in _parts(self.folded, most):
            yield Chunk(group, self.closed_s, folded=folded)
        for unprocessed in _parts(kept, most):
            yield Chunk(group, self.closed_s, kept=unprocessed)


def _parts(entries: Iterable[T], most: int) -> Iterator[tuple[T, ...]]:
    rest = iter(entries)
    while part := tuple(islice(rest, most)):
        yield part
