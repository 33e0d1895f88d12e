"""The handshake of a channel: on which of its connections it goes on, and from which frame
(H1 to H4 in `docs/protocol.md` 7).

    dialer                                              listener
      │ HELLO(incarnation, number) ──────────────────────▶ │ abandons the connection before
      │ ◀────────────────── WELCOME(incarnation, progress) │
      │ RESUME(progress) ────────────────────────────────▶ │
      │ repeats what the listener lacks                    │ repeats what the dialer lacks

A `Handshake` is what one end remembers over all connections of the channel. It is a value: each
event gives the next one and what is to be done, in order, or raises `ChannelError` with the reason
for which the connection is refused. Before that, whatever reads the frames has made sure that the
peer belongs to the run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from anabranch.protocol.errors import ChannelError


class Progress(NamedTuple):
    """What an end has of the frames of the other: all below `expected`, and below `acknowledged`
    they are safe, so that they need not be kept any more."""

    expected: int
    acknowledged: int


@dataclass(frozen=True, slots=True, order=True)
class Hello:
    """The dialer says which of its incarnations it is, and counts the connections of each from 1.
    Both together name a connection; a newer one compares greater."""

    incarnation: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Welcome:
    """The listener takes this connection; `incarnation`: its own."""

    incarnation: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class Resume:
    """The dialer has heard the welcome."""

    progress: Progress


@dataclass(frozen=True, slots=True)
class Abandon:
    """Close this connection, read and write nothing more on it: there is a newer one."""

    connection: Hello


@dataclass(frozen=True, slots=True)
class Continue:
    """Frames go over this connection from now on, those first that the peer lacks."""

    peer: Progress


Greeting = Hello | Welcome | Resume
"""What one end says and the other hears."""

Action = Greeting | Abandon | Continue
"""What an end must do on the connection of an event."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """One end. `incarnation`: its own; `peer_incarnation`: the newest of the peer that it has heard
    of; `newest`: the newest connection; `connected`: whether frames go over that one."""

    peer: str
    incarnation: int = 1
    peer_incarnation: int = 0
    newest: Hello = Hello()
    connected: bool = False

    # -- at the dialer -------------------------------------------------------------------------

    def opened(self) -> Step:
        """There is a new connection, and none before it any more."""
        hello = Hello(self.incarnation, self.newest.number + 1)
        return Step(replace(self, newest=hello, connected=False), (hello,))

    def welcomed(self, welcome: Welcome, mine: Progress) -> Step:
        """A welcome came. `mine`: what this end has."""
        self._fence(welcome.incarnation)
        after = replace(self, peer_incarnation=welcome.incarnation, connected=True)
        return Step(after, (Resume(mine), Continue(welcome.progress)))

    # -- at the listener -----------------------------------------------------------------------

    def greeted(self, hello: Hello, mine: Progress) -> Step:
        """A hello came. `mine`: what this end has."""
        self._fence(hello.incarnation)
        if hello <= self.newest:
            raise ChannelError(f"connection {hello.number} of {self.peer} comes behind a newer one")
        after = replace(self, peer_incarnation=hello.incarnation, newest=hello, connected=False)
        abandoned = (Abandon(self.newest),) if self.connected else ()
        return Step(after, (*abandoned, Welcome(self.incarnation, mine)))

    def resumed(self, connection: Hello, resume: Resume) -> Step:
        """A resume came on this connection."""
        if connection != self.newest:
            raise ChannelError(f"{self.peer} has a newer connection by now")
        return Step(replace(self, connected=True), (Continue(resume.progress),))

    # -- at both -------------------------------------------------------------------------------

    def broken(self, connection: Hello) -> Handshake:
        """A connection is lost."""
        return replace(self, connected=False) if connection == self.newest else self

    def _fence(self, incarnation: int) -> None:
        """An earlier incarnation was given up, and another has taken its place."""
        if incarnation < self.peer_incarnation:
            raise ChannelError(
                f"incarnation {incarnation} of {self.peer} is fenced out: "
                f"incarnation {self.peer_incarnation} has been here"
            )


class Step(NamedTuple):
    """What an event leads to."""

    handshake: Handshake
    actions: tuple[Action, ...]
