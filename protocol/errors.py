"""Two kinds of error: ours and the peer's. Each has a story, the events before it."""

from __future__ import annotations

from collections.abc import Iterable


class AnabranchProtocolError(Exception):
    """Base of both; `story` lists what the instance did last, newest at the end."""

    def __init__(self, what: str, story: Iterable[object] = ()) -> None:
        self.what = what
        self.story = tuple(story)
        lines = "".join(f"\n    {row}" for row in self.story)
        super().__init__(what + (f"\n  what happened before:{lines}" if lines else ""))


class LocalProtocolError(AnabranchProtocolError):
    """This side did something that the protocol forbids: a bug here."""


class RemoteProtocolError(AnabranchProtocolError):
    """The peer did something that the protocol forbids: a bug there, or not one of us."""


class ChannelError(RemoteProtocolError):
    """A frame that cannot be taken. Its connection is closed with the reason and resumed;
    nothing else is touched."""
