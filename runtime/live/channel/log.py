"""The journal, as a channel sees it."""

from __future__ import annotations

from typing import Protocol

from anabranch.runtime.live.channel.frames import Pieces


class Log(Protocol):
    """`keeps_batches`: with it they outlive this end; else what was not received when it dies is
    missing. `safe`: number of the first frame that has come in and is not settled in the journal.
    `waiting`: how many frames, the last ones of the session, are not sent because they are not in
    the journal."""

    keeps_batches: bool
    safe: int

    @property
    def waiting(self) -> int: ...

    def hold(self, pieces: Pieces, *, at_once: bool = False) -> None:
        """A frame to be sent when it is written down. `at_once`: it is one of a row of messages,
        of which each waits for the one before."""

    def changed(self) -> None:
        """What `Channel.row` returns is to be written down."""

    def restore(self, settled: int) -> None:
        """The channel is what it was in an earlier incarnation; everything below `settled` is
        settled."""

    def close(self) -> None:
        """The channel is no more."""
