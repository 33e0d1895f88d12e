"""One channel of the fake network: two shipped sessions with their handshakes, and connections
that break.

Of a connection that is cut, any prefix in either direction survives; the listener reads what
survived until it is to abandon it, or refuses what comes on it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from anabranch.protocol.credit import Allowance, Grant
from anabranch.protocol.errors import ChannelError
from anabranch.protocol.handshake import (
    Abandon,
    Action,
    Continue,
    Handshake,
    Hello,
    Progress,
    Resume,
    Step,
    Welcome,
)
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.session import Session

Frame = tuple[Any, ...]
"""Its kind, a greeting, or the number of what is sent; of the welcome also the credit."""
BYTES_WINDOW = 10**9
"""The fake network bounds tuples only."""


@dataclass
class End:
    """One side: its handshake, its half of the session, and its credit both ways."""

    me: InstanceId
    grant: Grant
    session: Session[Any] = field(init=False)
    handshake: Handshake = field(init=False)
    allowance: Allowance = field(default_factory=Allowance)
    owes: bool = False

    def __post_init__(self) -> None:
        self.session = Session(f"the peer of {self.me}")
        self.handshake = Handshake(f"the peer of {self.me}")

    @property
    def wire(self) -> int:
        """The connection that it may write on; 0: none."""
        return self.handshake.newest.number if self.handshake.connected else 0

    @property
    def progress(self) -> Progress:
        return Progress(self.session.expected, self.session.expected)


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
        self.cut_off = False
        self.number += 1
        self.to_dialer = deque()
        self.to_listener[self.number] = deque()
        dialer = self.ends[self.dialer]
        self._perform(dialer, self.number, dialer.handshake.opened())

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
        return [number for number, flowing in self.to_listener.items() if flowing]

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
            case ("GREETING", greeting, *credit):
                try:
                    self._hear(end, wire, greeting)
                except ChannelError:
                    assert wire < self.number, "the newest connection is refused"
                    self.to_listener[wire] = deque()
                for tuples in credit:
                    end.allowance.allow(tuples, BYTES_WINDOW)
        return None

    def _hear(self, end: End, wire: int, greeting: Any) -> None:
        match greeting:
            case Hello():
                self._perform(end, wire, end.handshake.greeted(greeting, end.progress))
            case Welcome():
                self._perform(end, wire, end.handshake.welcomed(greeting, end.progress))
            case Resume():
                self._perform(end, wire, end.handshake.resumed(Hello(1, wire), greeting))

    def _perform(self, end: End, wire: int, step: Step) -> None:
        end.handshake = step.handshake
        for action in step.actions:
            self._act(end, wire, action)

    def _act(self, end: End, wire: int, action: Action) -> None:
        match action:
            case Abandon(connection):
                self.to_listener[connection.number] = deque()
            case Continue(peer):
                frames = end.session.resume(*peer)
                self._write(end.me, wire, *(("FRAME", n, payload) for n, payload in frames))
                self.state(end.me)
            case Welcome():
                tuples, _ = end.grant.state()
                self._write(end.me, wire, ("GREETING", action, tuples))
            case _:
                self._write(end.me, wire, ("GREETING", action))

    @property
    def settled(self) -> bool:
        return all(end.session.settled for end in self.ends.values())
