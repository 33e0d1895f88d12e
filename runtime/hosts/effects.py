"""What comes into the membership of a host, and what it wants done.

The driver owes it:

1. Each effect is performed, in order, before the next event is handled.
2. An exchange is a stream. Its number is positive if this host has dialled, and negative, drawn by
   the driver, if another one has. Bodies of frames come in as they were sent. `StreamLost` comes
   once, when the stream has ended for whatever reason, unless this host hung up.
3. `Tick` comes when `next_due` has passed, as soon as the driver can.
4. `KeepIncarnation` is on the disk before the next frame goes out.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.runtime.hosts.host import HostInfo, HostState


@dataclass(frozen=True, slots=True)
class FrameCame:
    """`peer`: the name in the certificate of the other end; None without TLS."""

    number: int
    body: bytes
    peer: str | None = None


@dataclass(frozen=True, slots=True)
class StreamLost:
    number: int


@dataclass(frozen=True, slots=True)
class Tick:
    pass


@dataclass(frozen=True, slots=True)
class LeaveWanted:
    pass


@dataclass(frozen=True, slots=True)
class DrainWanted:
    """Or no longer."""

    drained: bool


@dataclass(frozen=True, slots=True)
class Dial:
    """Begin an exchange with this body."""

    number: int
    address: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Say:
    number: int
    body: bytes


@dataclass(frozen=True, slots=True)
class HangUp:
    """After what was written to it has gone out."""

    number: int


@dataclass(frozen=True, slots=True)
class KeepIncarnation:
    incarnation: int


@dataclass(frozen=True, slots=True)
class Changed:
    """`was`: None of a host that was not known."""

    host: HostInfo
    was: HostState | None
    state: HostState


@dataclass(frozen=True, slots=True)
class Joined:
    """Another host has answered, for the first time or after it had refused."""


@dataclass(frozen=True, slots=True)
class NameTaken:
    """Another live host has this one's name. None: there is no room for another host."""

    holder: str | None


Event = FrameCame | StreamLost | Tick | LeaveWanted | DrainWanted
Effect = Dial | Say | HangUp | KeepIncarnation | Changed | Joined | NameTaken
