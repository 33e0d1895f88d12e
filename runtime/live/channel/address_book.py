"""Where instances listen: learnt from messages that name them, and from their dialling.

Of an instance that has moved to another host, the agent states where it is, and nothing else
counts: a message, or a journal, may be older.
"""

from __future__ import annotations

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.channel.frames import Addresses


class AddressBook(Addresses):
    """By instance."""

    def __init__(self) -> None:
        super().__init__()
        self._moved: dict[InstanceId, tuple[int, str]] = {}

    def __setitem__(self, instance: InstanceId, address: str) -> None:
        _, address = self._moved.get(instance, (0, address))
        super().__setitem__(instance, address)

    def learn(self, addresses: Addresses) -> None:
        for instance, address in addresses.items():
            self[instance] = address

    def move(self, instance: InstanceId, incarnation: int, address: str) -> bool:
        """From this incarnation on it listens there. Returns whether that is new."""
        newest, _ = self._moved.get(instance, (0, ""))
        if incarnation <= newest:
            return False
        self._moved[instance] = incarnation, address
        if instance in self:
            self[instance] = address
        return True

    def forget(self, instance: InstanceId) -> None:
        """It has ended, and ids are never used again."""
        self.pop(instance, None)
        self._moved.pop(instance, None)
