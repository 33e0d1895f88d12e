"""One channel of the fake network: two shipped sessions, and connections that break.

The handshake is that of the live runtime: the dialer says HELLO with the number of its
connection, the listener WELCOME with the frame it expects and its credit, the dialer RESUME with
the frame it expects. Of a connection that is cut, any prefix in either direction survives; the
listener reads what survived until it has heard HELLO on a newer one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from anabranch.protocol.credit import Allowance, Grant
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.session import Session

Frame = tuple[Any, ...]
BYTES_WINDOW = 10**9
"""The fake network bounds tuples only."""


@dataclass
class End:
    """One side: its half of the session, its credit both ways, and where it may write."""

    me: InstanceId
    grant: Grant
    session: Session[Any] = field(init=False)
    allowance: Allowance = field(default_factory=Allowance)
    wire: int = 0
    owes: bool = False

    def __post_init__(self) -> None:
        self.session = Session(f"the peer of {self.me}")


class Line:
    """`dialer` makes the connections. `window`: tuples that may be under way in one direction."""

    def __init__(self, dialer: InstanceId, listener: InstanceId, window: int) -> None:
        self.dialer, self.listener = dialer, listener
        self.ends = {me: End(me, Grant(window, BYTES_WINDOW)) for me in (dialer, listener)}
        self.number = 0
        self.cut_off = True
        self.clogged = False
        self.to_listener: dict[int, deque[Frame]] = {}
        self.to_dialer: deque[Frame] = deque()
        self.redial()

    def __str__(self) -> str:
        return f"{self.dialer}-{self.listener}"

    def peer_of(self, me: InstanceId) -> InstanceId:
        return self.listener if me == self.dialer else self.dialer

    # -- connections -------------------------------------------------------------------------

    def redial(self) -> None:
        """The dialer abandons the old connection and opens a new one."""
        self.number += 1
        self.cut_off = False
        dialer = self.ends[self.dialer]
        dialer.wire = 0
        dialer.session.connect(self.number)
        self.to_dialer = deque()
        self.to_listener[self.number] = deque([("HELLO", self.number)])

    def cut(self, to_listener: int, to_dialer: int) -> None:
        """Break the connection; this many frames still arrive in each direction."""
        self.cut_off = True
        flowing = self.to_listener[self.number]
        self.to_listener[self.number] = deque(list(flowing)[:to_listener])
        self.to_dialer = deque(list(self.to_dialer)[:to_dialer])

    def _write(self, sender: InstanceId, wire: int, *frames: Frame) -> None:
        if wire != self.number or self.cut_off:
            return  # lost; the session repeats it
        flowing = self.to_listener[wire] if sender == self.dialer else self.to_dialer
        flowing.extend(frames)

    # -- sending -----------------------------------------------------------------------------

    def send(self, sender: InstanceId, payload: Any) -> None:
        end = self.ends[sender]
        number = end.session.send(payload)
        self._write(sender, end.wire, ("FRAME", number, payload))

    def state(self, sender: InstanceId) -> None:
        """Acknowledge, and state the credit."""
        end = self.ends[sender]
        end.owes = False
        tuples, _ = end.grant.state()
        self._write(sender, end.wire, ("ACK_CREDIT", end.session.expected, tuples))

    # -- receiving ---------------------------------------------------------------------------

    def readable(self, receiver: InstanceId) -> list[int]:
        """Connections from which this end can read a frame now."""
        if receiver == self.dialer:
            return [self.number] if self.to_dialer else []
        heard = self.ends[receiver].session.connection
        return [n for n, flowing in self.to_listener.items() if flowing and n >= heard]

    def read(self, receiver: InstanceId, wire: int) -> Any:
        """Take one frame off a connection; returns its payload if that is new, or None."""
        flowing = self.to_dialer if receiver == self.dialer else self.to_listener[wire]
        frame = flowing.popleft()
        end = self.ends[receiver]
        match frame:
            case ("FRAME", number, payload):
                end.owes = True
                return payload if end.session.receive(number) else None
            case ("ACK_CREDIT", expected, tuples):
                end.session.acknowledge(expected)
                end.allowance.allow(tuples, BYTES_WINDOW)
            case ("HELLO", number):
                if end.session.connect(number):
                    end.wire = 0
                    tuples, _ = end.grant.state()
                    self._write(receiver, number, ("WELCOME", end.session.expected, tuples))
            case ("WELCOME", expected, tuples):
                end.allowance.allow(tuples, BYTES_WINDOW)
                self._write(receiver, wire, ("RESUME", end.session.expected))
                self._attach(end, wire, expected)
                self.state(receiver)  # the listener's allowance for the other direction
            case ("RESUME", expected):
                self._attach(end, wire, expected)
                self.state(receiver)
        return None

    def _attach(self, end: End, wire: int, expected: int) -> None:
        end.wire = wire
        repeated = [("FRAME", n, payload) for n, payload in end.session.resume(expected)]
        self._write(end.me, wire, *repeated)

    @property
    def settled(self) -> bool:
        return all(end.session.settled for end in self.ends.values())
