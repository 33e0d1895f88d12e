"""Messages from a broker, in files, until the results of them are in a journal.

    folder/000000000000000000  000000000004194304  …     each is named by its first position

A position counts bytes from the first message on. The source acknowledges a message when it is
here, so a death loses none. The reader goes on at the position in the journal of its instance, and
removes the files before it. The last record may mean that nothing follows. A record that is not
whole was never acknowledged: it is cut off, and the broker repeats the message.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import File
from anabranch.runtime.reporting.failure import PlainError
from anabranch.runtime.storage.record_log import framed, payloads_of

PIECE_BYTES = 4 * 2**20
HEAD_BYTES = 8
_OVER = msgspec.msgpack.encode(None)


class Spooled(NamedTuple):
    """A message. `number`: its packet identifier, which repeats of it have, too; 0 at QoS 0.
    `received`: seconds since 1970."""

    topic: str
    payload: bytes
    qos: int
    retained: bool
    number: int
    received: float


class SpoolGone(PlainError, OSError):
    """Messages that must be read again are gone or damaged."""


class MessageSpool:
    """The files in `folder`, which is made if it is missing; used by one process at a time.
    `power`: messages survive a loss of power once `sync` has returned. Raises `OSError`."""

    def __init__(self, folder: Path, *, power: bool = False, piece_bytes: int = PIECE_BYTES):
        self._folder = folder
        self._power = power
        self._piece_bytes = piece_bytes
        self._store = disk = store()
        disk.make_folder(folder, 0o700)
        self._pieces = sorted(int(name) for name in disk.names(folder)) or [0]
        self._into = self._open(self._pieces[-1])
        data = disk.read(self._path(self._pieces[-1]))
        last = payloads_of(data)
        size = sum(HEAD_BYTES + len(payload) for payload in last)
        self.cut = len(data) - size
        """How many bytes were behind the last whole record."""
        self._into.truncate(size)
        self.end = self._pieces[-1] + size
        """Behind the last record."""
        self.over = bool(last) and last[-1] == _OVER
        """Whether the input has ended: nothing follows."""
        if power:
            disk.sync_folder(folder.parent)
            disk.sync_folder(folder)
        self._from: tuple[int, File] | None = None
        self._is_torn = False

    @property
    def start(self) -> int:
        """The first position that can still be read."""
        return self._pieces[0]

    def last(self) -> list[Spooled]:
        """Messages of the last two pieces, in their order."""
        found = []
        for piece in self._pieces[-2:]:
            payloads = payloads_of(self._store.read(self._path(piece)))
            found += [_message(payload) for payload in payloads if payload != _OVER]
        return found

    def append(self, messages: Iterable[Spooled]) -> None:
        """Write all of them, or none if it raises `OSError`; then it may be called again."""
        self._write(b"".join(framed(msgspec.msgpack.encode(message)) for message in messages))

    def close_input(self) -> None:
        """Nothing follows."""
        if not self.over:
            self._write(framed(_OVER))
            self.over = True

    async def sync(self) -> None:
        if self._power:
            await self._store.in_thread(self._into.sync_data)

    def read(self, position: int, bytes_max: int) -> tuple[list[Spooled], int]:
        """About `bytes_max` bytes of messages from `position` on, at least one if there is one; and
        the position behind them. Raises `SpoolGone`."""
        if not self.start <= position <= self.end:
            raise SpoolGone(
                f"messages cannot be read again from byte {position:,}: in {str(self._folder)!r} "
                f"are bytes {self.start:,} to {self.end:,}"
            )
        while position < self.end:
            start = max(piece for piece in self._pieces if piece <= position)
            data = self._file(start).read(bytes_max, position - start)
            payloads = payloads_of(data)
            if not payloads and len(data) >= HEAD_BYTES:  # a long one
                length = HEAD_BYTES + int.from_bytes(data[:4], "big")
                payloads = payloads_of(self._file(start).read(length, position - start))
            if not payloads:
                raise SpoolGone(
                    f"messages in {str(self._path(start))!r} are damaged at byte "
                    f"{position - start:,}"
                )
            position += sum(HEAD_BYTES + len(payload) for payload in payloads)
            if messages := [_message(p) for p in payloads if p != _OVER]:
                return messages, position
        return [], position

    def forget(self, position: int) -> None:
        """Nothing before this will be read again."""
        while len(self._pieces) > 1 and self._pieces[1] <= position:
            first = self._pieces.pop(0)
            if self._from is not None and self._from[0] == first:
                self._close_from()
            self._store.remove(self._path(first))

    def close(self) -> None:
        self._close_from()
        self._into.close()

    def remove(self) -> None:
        self.close()
        remove_spool(self._folder)

    def _write(self, data: bytes) -> None:
        start = self._pieces[-1]
        if self._is_torn:
            self._into.truncate(self.end - start)
            self._is_torn = False
        if self.end - start >= self._piece_bytes:
            following = self._open(self.end)
            if self._power:
                self._into.sync_data()
                self._store.sync_folder(self._folder)
            self._into.close()
            self._into = following
            self._pieces.append(self.end)
        self._is_torn = True
        self._into.append(data)
        self._is_torn = False
        self.end += len(data)

    def _file(self, start: int) -> File:
        if self._from is None or self._from[0] != start:
            self._close_from()
            self._from = start, self._store.open(self._path(start), os.O_RDONLY)
        return self._from[1]

    def _close_from(self) -> None:
        if self._from is not None:
            self._from[1].close()
            self._from = None

    def _path(self, start: int) -> Path:
        return self._folder / f"{start:018d}"

    def _open(self, start: int) -> File:
        return self._store.open(self._path(start), os.O_RDWR | os.O_CREAT | os.O_APPEND)


def remove_spool(folder: Path) -> None:
    """Harmless if it is not there."""
    if store().is_folder(folder):
        store().remove_folder(folder)


def _message(payload: bytes) -> Spooled:
    return Spooled(*msgspec.msgpack.decode(payload))
