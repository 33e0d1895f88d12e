"""The table of a host about all hosts: one row for each name.

Tables of two hosts become equal when each takes the rows of the other one: of two rows for one name
the one with the larger rank counts, in whatever order they come. A digest shows whether two tables
are equal; hashes of rows show which of them differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from anabranch.runtime.hosts.frames import HASH_BYTES, HOSTS_MAX, Opinion
from anabranch.runtime.hosts.host import HostInfo, HostState, HostStatement

FORGET_S = 24 * 3600.0
"""How long hosts that are gone stay in tables."""
_FRAMING_BYTES = 32


@dataclass(frozen=True, slots=True)
class HostRow:
    """`since`: when this table took the host into that state; of one that is gone, when it went."""

    host: HostInfo
    state: HostState
    since: float
    hash: bytes

    def member(self, now: float) -> HostStatement:
        gone_s = 0 if self.state.is_live else max(0, int(now - self.since))
        return HostStatement(self.host, self.state, gone_s)


class Table:
    """Rows in the order in which they changed."""

    def __init__(self) -> None:
        self._rows: dict[str, HostRow] = {}
        self._sum = 0

    def __iter__(self) -> Iterator[HostRow]:
        return iter(list(self._rows.values()))

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, name: str) -> HostRow | None:
        return self._rows.get(name)

    @property
    def digest(self) -> bytes:
        return self._sum.to_bytes(8, "big")

    @property
    def hashes(self) -> bytes:
        return b"".join(row.hash[:HASH_BYTES] for row in self._rows.values())

    def live(self) -> list[HostRow]:
        return [row for row in self._rows.values() if row.state.is_live]

    def opinion(self, name: str) -> Opinion | None:
        row = self._rows.get(name)
        if row is None:
            return None
        return Opinion(row.host.key, row.host.incarnation, row.state)

    def put(self, member: HostStatement, now: float) -> HostRow | None:
        """The row as it is now, if this has changed it. A live host takes the place of one that is
        gone if there is no room; what there is no room for is left out."""
        host, state = member.host, member.state
        before = self._rows.get(host.name)
        if before is not None and before.member(now).rank >= member.rank:
            return None
        if before is None and not self._make_room(state):
            return None
        if not state.is_live and member.gone_s >= FORGET_S:
            return None
        row = HostRow(host, state, now - member.gone_s, _hash_of(host, state))
        self._drop(host.name)
        self._rows[host.name] = row
        self._sum = (self._sum + _number(row)) % 2**64
        return row

    def forget(self, now: float) -> None:
        """Those that have been gone for long."""
        for row in self:
            if not row.state.is_live and now - row.since >= FORGET_S:
                self._drop(row.host.name)

    def lacked_by(self, have: bytes, now: float, room: int) -> list[HostStatement]:
        """Rows that are not in a table with these hashes, the newest first, as far as they fit."""
        known = {*_cut(have)}
        lacked = (row for row in self._newest() if row.hash[:HASH_BYTES] not in known)
        return fitting((row.member(now) for row in lacked), room)

    def wanted_from(self, have: bytes) -> bytes:
        """The hashes among these that no row has."""
        own = {row.hash[:HASH_BYTES] for row in self._rows.values()}
        return b"".join(each for each in _cut(have) if each not in own)

    def with_hashes(self, wanted: bytes, now: float, room: int) -> list[HostStatement]:
        asked = {*_cut(wanted)}
        rows = (row for row in self._newest() if row.hash[:HASH_BYTES] in asked)
        return fitting((row.member(now) for row in rows), room)

    def _newest(self) -> Iterator[HostRow]:
        return reversed(self._rows.values())

    def _make_room(self, state: HostState) -> bool:
        if len(self._rows) < HOSTS_MAX:
            return True
        gone = [row for row in self._rows.values() if not row.state.is_live]
        if not gone or not state.is_live:
            return False
        self._drop(min(gone, key=lambda row: row.since).host.name)
        return True

    def _drop(self, name: str) -> None:
        if (row := self._rows.pop(name, None)) is not None:
            self._sum = (self._sum - _number(row)) % 2**64


def fitting(members: Iterable[HostStatement], room: int) -> list[HostStatement]:
    """The first of these, as many as `room` bytes take."""
    chosen = []
    room -= _FRAMING_BYTES
    for member in members:
        room -= len(msgspec.msgpack.encode(member))
        if room < 0:
            break
        chosen.append(member)
    return chosen


def _hash_of(host: HostInfo, state: HostState) -> bytes:
    text = f"{host.name} {host.key.hex()} {host.incarnation} {state:d}"
    return blake2b(text.encode(), digest_size=8).digest()


def _number(row: HostRow) -> int:
    return int.from_bytes(row.hash, "big")


def _cut(hashes: bytes) -> Iterator[bytes]:
    return (hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES))
