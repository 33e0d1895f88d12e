"""A connection at the copy keeper: from a writer, or from the agent of the run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol, cast

from anabranch.protocol.copies import CopyError, FencedError, Part
from anabranch.protocol.errors import ChannelError
from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.channel.frames import FrameReader
from anabranch.runtime.live.copies import messages
from anabranch.runtime.live.copies.silence import Silence
from anabranch.runtime.live.copies.stored import StoredCopy
from anabranch.runtime.ports import clock

STRANGERS, BUSY, SLOW, MALFORMED, DISK = (
    "has not proved that it belongs to the run",
    "too many connections",
    "no handshake in time",
    "sent what is no message",
    "the disk refuses",
)


class CopiesHere(Protocol):
    """What a connection must know of its keeper, and what it calls."""

    token: bytes
    refused: Counter[str]
    silence: Silence

    def opened(self, stream: KeptStream) -> bool: ...
    def lost(self, stream: KeptStream) -> None: ...
    def copy_of(self, instance: InstanceId) -> StoredCopy: ...
    def writes(self, stream: KeptStream, instance: InstanceId) -> None: ...
    def failed(self, instance: InstanceId, error: OSError) -> None: ...
    def succeeded(self, instance: InstanceId) -> None: ...
    def refuse(self, kind: str, reason: str) -> None: ...
    def forget(self, operator: str, number: int) -> None: ...


class KeptStream(asyncio.Protocol):
    def __init__(self, keeper: CopiesHere) -> None:
        self._keeper = keeper
        self._reader = FrameReader(messages.FRAME_BYTES_MAX)
        self._nonce = clock.secret(16)
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._instance: InstanceId | None = None
        """None until it has proved that it may speak of it."""
        self._incarnation: int | None = None
        """Of the writer that this is."""
        self._sending: Iterator[bytes] = iter(())
        self._full = False

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(messages.HANDSHAKE_DEADLINE_S, self._too_slow)
        if self._keeper.opened(self):
            self._write(messages.CHALLENGE, messages.VERSION, self._nonce)
        else:
            self._refuse(messages.WAITS, BUSY, BUSY)

    def data_received(self, data: bytes) -> None:
        have = False
        try:
            for body in self._reader.feed(data):
                if self._transport is None or self._transport.is_closing():
                    return
                if self._instance is None and len(body) > messages.HANDSHAKE_BYTES_MAX:
                    raise CopyError("more than a handshake before it was over")
                have = self._hear(messages.read(body)) or have
            if self._instance is None and self._reader.waiting > messages.HANDSHAKE_BYTES_MAX:
                raise CopyError("more than a handshake before it was over")
            if have and self._instance is not None:
                self._keeper.succeeded(self._instance)
                holder = self._keeper.copy_of(self._instance).holder
                self._write(messages.HAVE, *holder.position)
        except FencedError as error:
            self._refuse(messages.FENCED, "fenced", error.what)
        except (CopyError, ChannelError) as error:
            kind = MALFORMED if self._instance is not None else STRANGERS
            self._refuse(messages.WRONG, kind, error.what)
        except OSError as error:
            if self._instance is not None:
                self._keeper.failed(self._instance, error)
            self._refuse(messages.WAITS, DISK, str(error.strerror or error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._transport = None
        self._sending = iter(())
        self._keeper.lost(self)

    def pause_writing(self) -> None:
        self._full = True
        if self._transport is not None:
            self._transport.pause_reading()  # it asks for more than it takes

    def resume_writing(self) -> None:
        self._full = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._send_on()

    def _write(self, *fields: Any) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(messages.frame(*fields))

    def _refuse(self, kind: str, counted: str, reason: str) -> None:
        self._keeper.refuse(counted, reason)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(messages.refused(kind, reason))
            self._transport.close()

    def _too_slow(self) -> None:
        self._keeper.refuse(SLOW, SLOW)
        self.close()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # -- what it hears ---------------------------------------------------------------------

    def _hear(self, fields: list[Any]) -> bool:
        """Whether the writer is to be told how far its copy goes."""
        if self._instance is None:
            self._prove(fields)
            return False
        copy = self._keeper.copy_of(self._instance)
        match fields:
            case [messages.OPEN, incarnation, parts]:
                (self._incarnation,) = messages.numbers(incarnation)
                copy.opened(self._incarnation, messages.unpack_parts(parts))
                self._keeper.writes(self, self._instance)
                self._keeper.silence.heard(str(self._instance))
                return True
            case [messages.APPEND, number, author, at, bytes(data)] if data:
                number, author, at = messages.numbers(number, author, at)
                copy.append(self._writer(), Part(number, author, at + len(data)), at, data)
                self._keeper.silence.heard(str(self._instance))
                return True
            case [messages.DROP, before]:
                (before,) = messages.numbers(before)
                copy.drop(self._writer(), before)
            case [messages.LIVES]:
                copy.holder.lives(self._writer())
                self._keeper.silence.heard(str(self._instance))
            case [messages.SILENCE]:
                silent_s = self._keeper.silence.seconds(str(self._instance))
                self._write(messages.SILENT, int(1000 * silent_s))
            case [messages.FENCE, incarnation]:
                copy.fence(*messages.numbers(incarnation))
                self._tell_found(copy)
            case [messages.FETCH, incarnation]:
                copy.fence(*messages.numbers(incarnation))
                self._tell_found(copy)
                self._sending = self._all_of(copy)
                self._send_on()
            case [messages.FORGET]:
                self._keeper.forget(self._instance.operator, self._instance.number)
                self._write(messages.END)
            case _:
                raise CopyError(f"not a message to a keeper: kind {fields[0]}")
        return False

    def _writer(self) -> int:
        if self._incarnation is None:
            raise CopyError("a record before the journal was opened")
        return self._incarnation

    def _prove(self, fields: list[Any]) -> None:
        match fields:
            case [messages.HELLO, messages.VERSION, bytes(nonce), operator, number, creator, said]:
                instance = messages.instance_of(operator, number, creator)
                token = self._keeper.token
                if not messages.is_proof(said, token, "dialer", self._nonce, instance):
                    raise CopyError(f"a peer {STRANGERS}")
                self._instance = instance
                self._cancel_deadline()
                self._write(messages.WELCOME, messages.proof(token, "keeper", nonce, instance))
            case _:
                raise CopyError("no hello of this version")

    # -- what it is asked for --------------------------------------------------------------

    def _tell_found(self, copy: StoredCopy) -> None:
        holder = copy.holder
        parts = messages.pack_parts(holder.parts)
        self._write(messages.FOUND, parts, holder.readable, copy.known)

    def _all_of(self, copy: StoredCopy) -> Iterator[bytes]:
        for part in copy.holder.parts if copy.holder.readable else ():
            for at in range(0, part.size, messages.CHUNK_BYTES):
                size = min(messages.CHUNK_BYTES, part.size - at)
                data = copy.read(part, at, size)
                if len(data) < size:
                    raise OSError(None, f"part {part.number} of a copy is shorter than it was")
                yield messages.frame(messages.DATA, part.number, part.author, at, data)
        yield messages.frame(messages.END)

    def _send_on(self) -> None:
        while self._transport is not None and not self._full:
            try:
                data = next(self._sending, None)
            except OSError as error:
                self._refuse(messages.WAITS, DISK, str(error))
                return
            if data is None:
                return
            self._transport.write(data)
