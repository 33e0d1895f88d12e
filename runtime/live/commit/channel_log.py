"""What the commits of an instance have to do with one of its channels: frames that go out when they
are in the journal, and how far what came in is settled there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.channel.frames import Pieces

Numbered = list[tuple[int, Pieces]]
"""Frames with their numbers."""


class Touched(Protocol):
    """Takes the news of channels: the record of the commit to come."""

    def touch(self, log: ChannelLog, *, now: bool = False, at_once: bool = False) -> None:
        """There is something to be written down. `now`: something waits for it; `at_once`: this
        commit must not be made longer meanwhile."""

    def forget(self, log: ChannelLog) -> None:
        """The channel is closed."""


class ChannelLog:
    """It does not hold its channel, which holds it: a channel that is closed goes at once."""

    def __init__(self, draft: Touched, *, keeps_batches: bool) -> None:
        self.keeps_batches = keeps_batches
        self.safe = 1
        self._safe_soon = 1
        """What `safe` will be when what is recorded is in the journal."""
        self._draft = draft
        self._held: deque[Pieces] = deque()
        self._recorded = 0
        """How many of them are in the record of the present commit."""

    # -- what the channel reports -----------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return len(self._held)

    def hold(self, pieces: Pieces, *, at_once: bool = False) -> None:
        self._held.append(pieces)
        self._draft.touch(self, now=True, at_once=at_once)

    def changed(self) -> None:
        self._draft.touch(self)

    def restore(self, settled: int) -> None:
        self.safe = self._safe_soon = settled
        self._draft.touch(self)

    def close(self) -> None:
        self._draft.forget(self)

    # -- the commit ----------------------------------------------------------------------------

    def record(self, channel: Channel) -> Numbered:
        """Frames that are to be written down now; `flush` when that is done."""
        new = list(self._held)[self._recorded :]
        self._recorded = len(self._held)
        self._safe_soon = channel.incoming.settled
        return self._to_keep(new, channel.session.next_number - len(new))

    def kept(self, channel: Channel) -> Numbered:
        """All frames that are not acknowledged and outlive this end."""
        return self._to_keep(channel.session.kept, channel.session.first_kept)

    def _to_keep(self, frames: Iterable[Pieces], first: int) -> Numbered:
        numbered = enumerate(frames, first)
        if self.keeps_batches:
            return list(numbered)
        return [(number, pieces) for number, pieces in numbered if len(pieces) == 1]

    def flush(self, channel: Channel) -> None:
        """What was recorded is safe: send it."""
        for _ in range(self._recorded):
            channel.line.write(self._held.popleft())
        self._recorded = 0
        if self._safe_soon > self.safe:
            self.safe = self._safe_soon
            channel.statements.later()
