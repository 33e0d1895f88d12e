"""The copy keeper of a host: it has copies of journals whose writers are on other hosts."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path

from anabranch.protocol.copies import CopyError
from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.copies.kept_stream import KeptStream
from anabranch.runtime.live.copies.silence import Silence
from anabranch.runtime.live.copies.stored import StoredCopy
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.sockets import transport
from anabranch.runtime.ports.transport import Listening
from anabranch.runtime.values.texts import carried, original

CONNECTIONS_MAX = 4096
COPIES_MAX = 16_384
REASONS_MAX = 64
"""Different ones that are counted."""

log = logging.getLogger("anabranch.copies")


class CopyKeeper:
    """`folder`: below which copies lie. `token`: of the run, without which a peer is refused.
    `boot`: names the life of the host; if it is another one than that in the folder, the host may
    have lost its power, and no copy is read before its writer has been there. Raises `OSError`."""

    def __init__(self, folder: Path, token: bytes, *, boot: str) -> None:
        self.token = token
        self.refused: Counter[str] = Counter()
        self._waits: dict[str, str] = {}
        """Copies of which the disk has taken nothing the last time, and why."""
        self.silence = Silence()
        self._folder = folder
        self._boot = boot
        self._copies: dict[str, StoredCopy] = {}
        self._writers: dict[str, KeptStream] = {}
        self._streams: set[KeptStream] = set()
        self._place: Listening | None = None
        self._transport = transport()
        store().make_folder(folder, 0o700, parents=True)

    async def serve(self, address: str) -> str:
        """Listen at `unix:PATH` or `tcp:HOST:PORT` (port 0: any); returns the real address."""
        self._place = await self._transport.listen(original(address), lambda: KeptStream(self))
        return carried(self._place.address)

    def forget(self, operator: str, number: int) -> None:
        """Remove the copy of an instance that has ended, or whose copy is elsewhere now."""
        name = f"{operator}.{number}"
        self._waits.pop(name, None)
        if (writer := self._writers.pop(name, None)) is not None:
            writer.close()
        self._copy(name).remove()
        self._copies.pop(name, None)
        self.silence.forget(name)

    def status(self) -> dict[str, object]:
        """Figures for the agent: `copies`, `bytes`, `refused` (by reason), `waits` (why the disk
        takes nothing; empty if it does). Of the copies that were asked for since it began."""
        there = self._copies.values()
        return {
            "copies": sum(bool(copy.holder.parts) for copy in there),
            "bytes": sum(copy.size for copy in there),
            "refused": dict(self.refused),
            "waits": next(iter(self._waits.values()), ""),
        }

    def close(self) -> None:
        """Listen no more, and close all connections. Files stay."""
        if self._place is not None:
            self._place.close()
        for stream in list(self._streams):
            stream.close()
        for copy in self._copies.values():
            copy.close()
        self._copies.clear()

    # -- for connections -------------------------------------------------------------------

    def opened(self, stream: KeptStream) -> bool:
        """Whether there may be one more."""
        self._streams.add(stream)
        return len(self._streams) <= CONNECTIONS_MAX

    def lost(self, stream: KeptStream) -> None:
        self._streams.discard(stream)
        for name in [name for name, writer in self._writers.items() if writer is stream]:
            del self._writers[name]

    def copy_of(self, instance: InstanceId) -> StoredCopy:
        """Raises `CopyError`, or `OSError` if the disk refuses."""
        return self._copy(str(instance))

    def _copy(self, name: str) -> StoredCopy:
        copy = self._copies.get(name)
        if copy is None:
            if len(self._copies) >= COPIES_MAX:
                raise CopyError(f"there are {COPIES_MAX:,} copies, the most that a keeper has")
            copy = self._copies[name] = StoredCopy(self._folder / name, self._boot)
        return copy

    def writes(self, stream: KeptStream, instance: InstanceId) -> None:
        """This is the connection of the writer from now on: nothing more is read on another."""
        before = self._writers.get(str(instance))
        self._writers[str(instance)] = stream
        if before is not None and before is not stream:
            before.close()

    def failed(self, instance: InstanceId, error: OSError) -> None:
        """The disk has refused. What is there is looked at again when the writer is back."""
        self._waits[str(instance)] = f"{error.strerror or error}: {str(self._folder)!r}"
        if (copy := self._copies.pop(str(instance), None)) is not None:
            copy.close()

    def succeeded(self, instance: InstanceId) -> None:
        """The disk has what was said of this copy."""
        self._waits.pop(str(instance), None)

    def refuse(self, kind: str, reason: str) -> None:
        if kind in self.refused or len(self.refused) < REASONS_MAX:
            self.refused[kind] += 1
        if self.refused[kind] == 1:
            log.warning("a connection was refused: %s; further ones like it are not told", reason)


async def keep(keeper: CopyKeeper) -> None:
    """Until it is cancelled."""
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        keeper.close()
