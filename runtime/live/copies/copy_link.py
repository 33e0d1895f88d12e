"""A writer's way to one holder: it connects again and again, and sends what the copy lacks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from anabranch.protocol.copies import CopyError, FencedError, Part, Parts, Position, end_of
from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.copies import messages
from anabranch.runtime.live.copies.stream import KeeperStream, dialled
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import File

RECONNECT_FIRST_S = 0.02
RECONNECT_MAX_S = 2.0
LIVES_S = 1.0
"""So often a writer shows its holders that it is there, if they may give it up."""


class Copied(Protocol):
    """What a link must know of the journal, and what it calls."""

    me: InstanceId
    incarnation: int
    token: bytes
    shows_life: bool

    @property
    def parts(self) -> Parts: ...

    def file_of(self, part: Part) -> Path: ...
    def acknowledged(self, host: str, position: Position) -> None: ...


class CopyLink:
    """`trouble`: why there is no connection, or why nothing is taken; empty if all is well."""

    def __init__(self, copies: Copied, host: str, address: str) -> None:
        self.host = host
        self.address = address
        self.trouble = ""
        self._copies = copies
        self._store = store()
        self._stream: KeeperStream | None = None
        self._sent: Position | None = None
        """How far the holder will have come; None until it has said what it has."""
        self._file: File | None = None
        self._file_of = (0, 0)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"copy on {host}")

    def push(self, written: Sequence[bytes] = ()) -> None:
        """Send what there is, as much as goes. `written`: the end of it, in pieces; it is read from
        the disk only if more than that is to be sent."""
        stream = self._stream
        end, size = end_of(self._copies.parts), sum(map(len, written))
        try:
            while (
                stream is not None
                and not stream.full
                and not stream.lost.done()
                and (following := self._following()) is not None
            ):
                part, at = following
                is_here = 0 < size <= messages.CHUNK_BYTES and end == (part.number, at + size)
                pieces = written if is_here else [self._read(part, at)]
                stream.write_pieces(messages.append_frame(part, at, pieces))
                self._sent = Position(part.number, at + sum(map(len, pieces)))
        except OSError as error:
            assert stream is not None
            stream.close(error)

    def drop(self, before: int) -> None:
        """The parts before this one are not needed any more."""
        if self._stream is not None:  # it has opened the journal with these parts
            self._stream.write(messages.DROP, before)

    def close(self) -> None:
        self._task.cancel()
        self._lose()

    # -- connections -----------------------------------------------------------------------

    async def _run(self) -> None:
        delay_s = RECONNECT_FIRST_S
        while True:
            try:
                self._stream = stream = await dialled(
                    self.address, self._copies.token, self._copies.me, self._heard, self.push
                )
                parts = messages.pack_parts(self._copies.parts)
                stream.write(messages.OPEN, self._copies.incarnation, parts)
                await self._while_open(stream)
                if self._sent is not None:
                    delay_s = RECONNECT_FIRST_S
                raise stream.lost.result()
            except (OSError, CopyError) as error:
                self.trouble = _told(error)
            finally:
                self._lose()
            await asyncio.sleep(delay_s * clock.chance().uniform(0.5, 1.0))
            delay_s = min(2 * delay_s, RECONNECT_MAX_S)

    async def _while_open(self, stream: KeeperStream) -> None:
        timeout_s = LIVES_S if self._copies.shows_life else None
        while not (await asyncio.wait([stream.lost], timeout=timeout_s))[0]:
            if not stream.full:
                stream.write(messages.LIVES)

    def _lose(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = self._sent = None
        self._close_file()

    def _heard(self, fields: list[Any]) -> None:
        match fields:
            case [messages.HAVE, number, size]:
                position = Position(*messages.numbers(number, size))
            case _:
                raise CopyError(f"not an answer to a writer: kind {fields[0]}")
        if self._sent is None:
            self._sent = position
            self.trouble = ""
        elif position > self._sent:
            raise CopyError(f"{self.host} has {position}, and only {self._sent} was sent")
        self._copies.acknowledged(self.host, position)
        self.push()

    # -- what is sent ----------------------------------------------------------------------

    def _following(self) -> tuple[Part, int] | None:
        sent = self._sent
        for part in self._copies.parts if sent is not None else ():
            assert sent is not None
            if part.number == sent.number and part.size > sent.size:
                return part, sent.size
            if part.number > sent.number and part.size:
                return part, 0
        return None

    def _read(self, part: Part, at: int) -> bytes:
        """Raises `OSError`."""
        if self._file is None or self._file_of != part[:2]:
            self._close_file()
            self._file = self._store.open(self._copies.file_of(part), os.O_RDONLY)
            self._file_of = part[:2]
        size = min(messages.CHUNK_BYTES, part.size - at)
        data = self._file.read(size, at)
        if len(data) < size:
            raise OSError(None, f"the journal is shorter than it was, at byte {at + len(data):,}")
        return data

    def _close_file(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        self._file = None


def _told(error: Exception) -> str:
    if isinstance(error, FencedError):
        return "it has fenced this incarnation, which was given up"
    if isinstance(error, TimeoutError):
        return "no answer"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
