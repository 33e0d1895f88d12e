"""A host as others see it: what it states of itself, and the state in which it was last seen.

Limits are part of the types, so that what comes from outside is checked where it is decoded.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import msgspec
from msgspec import Meta

NAME_CHARS_MAX = 63
LABELS_MAX = 16
HOST_BYTES_MAX = 512
"""Of an encoded description: gossip carries many of them."""
KEY_BYTES = 8

Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")]
_HIDDEN = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""Characters that would change what a terminal shows besides, and what is no UTF-8."""
Word = Annotated[str, Meta(pattern=rf"\A[^{_HIDDEN}]*\Z", max_length=NAME_CHARS_MAX)]
_PORT = "(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[0-9]{1,4})"
_AT_BROKER = "mqtt:[A-Za-z0-9][A-Za-z0-9._-]{0,62}/agent"
Address = Annotated[str, Meta(pattern=rf"\A({_AT_BROKER}|[!-~]{{1,255}}:{_PORT})\Z")]
"""`HOST:PORT`. Port 0 is any free one, to listen at. `mqtt:NAME/agent`: at the broker."""
Labels = Annotated[dict[Word, Word], Meta(max_length=LABELS_MAX)]
Cores = Annotated[int, Meta(ge=1, le=2**16)]
MemoryMb = Annotated[int, Meta(ge=1, le=2**31)]
Incarnation = Annotated[int, Meta(ge=1, lt=2**62)]


class HostState(IntEnum):
    """Of two statements on one incarnation, the one with the larger number counts."""

    ALIVE = 0
    SUSPECTED = 1
    """It does not answer, neither this host nor those that this one has asked to try."""
    DEAD = 2
    LEFT = 3
    """It has announced it."""

    @property
    def is_live(self) -> bool:
        return self <= HostState.SUSPECTED


class HostInfo(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a host states of itself. `key`: drawn when its data folder was made, so that two hosts
    with one name are distinguished. `incarnation`: higher after each start, and after each time
    that others had taken it for dead; the rest never changes within one. `address`: where others
    reach it. `memory_mb`, `cores`: what it offers. `drained`: instances leave it, and none come."""

    name: Name
    key: Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    incarnation: Incarnation
    address: Address
    region: Word
    labels: Labels
    cores: Cores
    memory_mb: MemoryMb
    version: Word
    drained: bool = False


class HostStatement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A host in the table of another one. `gone_s`: how long it has been dead or has left, so that
    all forget it at the same time; 0 of one that is live."""

    host: HostInfo
    state: HostState
    gone_s: Annotated[int, Meta(ge=0, le=2**31)] = 0

    @property
    def rank(self) -> tuple[int, int, bytes]:
        """Of two statements on one name, the one with the larger rank counts, everywhere."""
        return self.host.incarnation, self.state, self.host.key
