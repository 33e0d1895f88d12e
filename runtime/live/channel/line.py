"""The connection that carries a channel at present, if there is one."""

from __future__ import annotations

from typing import Protocol

from anabranch.runtime.live.channel.frames import Pieces


class Wire(Protocol):
    """What a channel needs of a connection."""

    def write(self, pieces: Pieces) -> None: ...
    def close(self, reason: str) -> None: ...
    def abort(self) -> None: ...


class ChannelLine:
    """`ended`: the last frame was sent or received on it."""

    def __init__(self) -> None:
        self.ended = False
        self._wire: Wire | None = None

    @property
    def connected(self) -> bool:
        return self._wire is not None

    def attach(self, wire: Wire) -> None:
        self._wire = wire

    def detach(self, wire: Wire | None = None) -> None:
        """The connection is lost, or, without one, abandoned for a newer one."""
        if wire is not None and wire is not self._wire:
            return
        old, self._wire = self._wire, None
        if old is not None and wire is None:
            old.close("replaced by a newer connection")

    def cut(self) -> None:
        """The other end is not there any more: what is not written yet will not be."""
        old, self._wire = self._wire, None
        if old is not None:
            old.abort()

    def write(self, pieces: Pieces) -> None:
        """A frame that is kept, and comes again on the next connection."""
        if self._wire is not None:
            self._wire.write(pieces)

    def say(self, pieces: Pieces) -> bool:
        """A frame that does not come again. Returns whether it could be sent."""
        if self._wire is None or self.ended:
            return False
        self._wire.write(pieces)
        return True
