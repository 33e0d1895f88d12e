"""The writer's end of the copies of its journal."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from anabranch.protocol.copies import (
    CopyError,
    CopyWriter,
    FencedError,
    Part,
    Parts,
    Position,
    contains,
)
from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.copies.asking import CopyFound, fence, fetch
from anabranch.runtime.live.copies.copy_link import CopyLink
from anabranch.runtime.live.journal.journal import (
    FIRST_SEGMENT,
    base_of,
    boot_of,
    intact_segments,
    segment_at,
    segments,
)
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage.replaced import replace_file

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 2.0
NOTE_S = 3.0
"""So long may copies take before that is told."""

log = logging.getLogger("anabranch.copies")


class JournalCopies:
    """`holders`: by host, the address of its copy keeper; `complete`: those of them with complete
    copies, as home has recorded; `order`: number of the order that has this. `note`: gets, when it
    has changed, for what the copies wait; empty if for nothing. `completed`: gets the number of the
    newest order, and each host whose copy is complete; to be sent to home (`CopyComplete`). `boot`:
    names the life of this host, as that of a `CopyKeeper` does; empty: that is not known. An
    address may be empty: there is no keeper for now.

    A `Journal` is given it, and sends it what it writes. Connections have the transport of the
    context in which it was made, also if an order of home comes in another one."""

    def __init__(
        self,
        me: InstanceId,
        incarnation: int,
        token: bytes,
        *,
        order: int,
        holders: Mapping[str, str],
        complete: Collection[str],
        boot: str = "",
        shows_life: bool = False,
        completed: Callable[[int, str], None],
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.me = me
        self.incarnation = incarnation
        self.token = token
        self.shows_life = shows_life
        """To holders, also while there is nothing to copy."""
        self._boot = boot
        self._completed = completed
        self._note = note
        self._noted = ""
        self._addresses = dict(holders)
        self._writer = CopyWriter.begun(incarnation, (), order, holders, complete)
        self._links: dict[str, CopyLink] = {}
        self._context = contextvars.copy_context()
        self._path = Path()
        self._drop: Callable[[int], None] | None = None
        """None until the journal is written."""
        self._counted: asyncio.Future[None] | None = None
        self._closed = False

    # -- before the journal is read ------------------------------------------------------------

    async def prepare(self, path: Path, *, was_ready: bool = True) -> None:
        """Before the journal at this path is read. If this host may have lost its power, or the
        journal is damaged: ask the holders with complete copies how long these are, until one has
        reported it, and fetch what is missing here. Raises `FencedError` if this incarnation was
        given up. `was_ready`: whether an incarnation has been; else nothing has counted yet."""
        self._path = path
        pause_s, began = RETRY_FIRST_S, clock.monotonic()
        trusted = self.incarnation == 1 or not was_ready or self._is_as_it_was(path)
        while not (trusted or await self._compared(path)):
            if clock.monotonic() - began > NOTE_S:
                hosts = ", ".join(sorted(self._writer.waited)) or "home"
                self._tell(f"waits for a copy of its journal on {hosts}")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)
        self._tell("")
        self._begin_from(parts_of(path))

    async def fetch(self, path: Path, address: str) -> None:
        """The same, where the journal is on another host: take it from this keeper, in place of
        what is here. Raises as `prepare` does."""
        self._path = path
        pause_s = RETRY_FIRST_S
        while True:
            try:
                await fetch(address, self.token, self.me, self.incarnation, path)
                break
            except FencedError:
                raise
            except (CopyError, OSError) as error:
                self._tell(f"waits for its journal from {address}: {error}")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)
        self._tell("")
        self._begin_from(parts_of(path))

    def _is_as_it_was(self, path: Path) -> bool:
        """Whether the last incarnation has left it, and no power was lost since it began."""
        try:
            same = store().read(boot_of(path)) == self._boot.encode()
        except FileNotFoundError:
            return False
        return bool(self._boot) and same and bool(parts_of(path) or not segments(path))

    async def _compared(self, path: Path) -> bool:
        """Whether a holder has said what it has, and all of that is here now."""
        for host in sorted(self._writer.waited):
            if not (address := self._addresses[host]):
                continue
            try:
                found = await fence(address, self.token, self.me, self.incarnation)
                if not found.known or (found.readable and await self._taken(path, address, found)):
                    return True
            except FencedError:
                raise
            except (CopyError, OSError) as error:
                log.debug("%s: cannot ask %s: %s", self.me, host, error)
        return False

    async def _taken(self, path: Path, address: str, found: CopyFound) -> bool:
        if not contains(parts_of(path), found.parts):
            log.warning("%s: its journal lacks what a copy has, which is fetched", self.me)
            await fetch(address, self.token, self.me, self.incarnation, path)
        return contains(parts_of(path), found.parts)

    def _begin_from(self, parts: Parts) -> None:
        writer = self._writer
        holders, complete = writer.holders, writer.waited
        self._writer = CopyWriter.begun(self.incarnation, parts, writer.order, holders, complete)

    # -- what the journal says -----------------------------------------------------------------

    def begin(self, journal: Path, drop: Callable[[int], None]) -> None:
        replace_file(boot_of(journal), self._boot.encode())
        self._path, self._drop = journal, drop
        self._link()

    def wrote(self, number: int, size: int, pieces: Sequence[bytes]) -> None:
        self._writer = self._writer.wrote(number, size)
        for link in self._links.values():
            link.push(pieces)

    def drew(self) -> None:
        self._change(self._writer.drew())

    async def copied(self) -> None:
        """Return when all that the journal has now counts."""
        end = self._writer.end
        while self._writer.counted < end:
            if self._counted is None or self._counted.done():
                self._counted = asyncio.get_running_loop().create_future()
            done, _ = await asyncio.wait([self._counted], timeout=NOTE_S)
            if not done:
                self._tell(self.waits_for)
        self._tell("")

    # -- what home says ------------------------------------------------------------------------

    def set_holders(self, order: int, holders: Mapping[str, str]) -> None:
        """Home has ordered: from now on these."""
        if order <= self._writer.order:
            return
        self._addresses = dict(holders)
        self._change(self._writer.ordered(order, holders), told=True)
        self._link()

    def _link(self) -> None:
        """Have a connection to each holder, at its present address, and to no other."""
        if self._drop is None or self._closed:
            return
        for host, link in list(self._links.items()):
            if self._addresses.get(host) != link.address:
                link.close()
                del self._links[host]
        for host, address in self._addresses.items():
            if address and host not in self._links:
                self._links[host] = self._context.copy().run(CopyLink, self, host, address)

    # -- for connections -----------------------------------------------------------------------

    @property
    def parts(self) -> Parts:
        return self._writer.parts

    def file_of(self, part: Part) -> Path:
        return segment_at(self._path, part.number) if part.number else base_of(self._path)

    def acknowledged(self, host: str, position: Position) -> None:
        self._change(self._writer.acknowledged(host, position))

    def _change(self, after: CopyWriter, *, told: bool = False) -> None:
        """`told`: home is told of all complete copies, not only of new ones."""
        before, self._writer = self._writer, after
        waiting = self._counted
        if after.counted != before.counted and waiting is not None and not waiting.done():
            waiting.set_result(None)
        for host in sorted(after.complete if told else after.complete - before.complete):
            self._completed(after.order, host)
        if self._drop is not None and after.dropped().parts != after.parts:
            self._remove_parts(after.droppable)

    def _remove_parts(self, before: int) -> None:
        assert self._drop is not None
        self._writer = self._writer.dropped()
        for link in self._links.values():
            link.drop(before)
        with suppress(OSError):  # they go later, with others
            self._drop(before)

    # -- what it waits for ---------------------------------------------------------------------

    @property
    def waits_for(self) -> str:
        """For the status: which holders have not acknowledged, and why; empty if all have."""
        writer = self._writer
        if writer.counted >= writer.end:
            return ""
        if not writer.waited:
            return "no other host has a copy of its journal"
        behind = [
            host for host in sorted(writer.waited)
            if (writer.position_of(host) or Position()) < writer.end
        ]  # fmt: skip
        troubles = {host: link.trouble for host, link in self._links.items()}
        whys = {host: troubles.get(host, "it has no copy keeper for now") for host in behind}
        told = (f"{host} ({why})" if why else host for host, why in whys.items())
        return f"waits until its journal is copied to {', '.join(told)}"

    def _tell(self, waits_for: str) -> None:
        if waits_for != self._noted:
            self._noted = waits_for
            self._note(waits_for)

    def close(self) -> None:
        self._closed = True
        for link in self._links.values():
            link.close()
        self._links.clear()


def parts_of(journal: Path) -> Parts:
    """What there is of it, with that on which it builds; nothing if anything is damaged."""
    parts = tuple(Part(*each) for each in intact_segments(journal))
    base = base_of(journal)
    if (parts[0].number if parts else FIRST_SEGMENT) != FIRST_SEGMENT or not store().exists(base):
        return parts
    if not parts and segments(journal):  # they are damaged
        return ()
    return (Part(0, 0, store().status(base).st_size), *parts)
