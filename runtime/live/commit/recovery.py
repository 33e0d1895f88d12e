"""The state of an instance, as the journal of its earlier incarnations has it."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.channel.frames import Addresses, Pieces
from anabranch.runtime.live.channel.row import ChannelRow
from anabranch.runtime.live.channel.totals import ChannelTotals, SummedTotals
from anabranch.runtime.live.journal.journal import (
    FIRST_SEGMENT,
    JournalError,
    Record,
    base_of,
    read_journal,
    segments,
)
from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage.replaced import replace_file


@dataclass(slots=True)
class PastChannel:
    dialing: bool
    peer: InstanceId
    row: ChannelRow | None = None
    frames: dict[int, Pieces] = field(default_factory=dict)

    @property
    def kept(self) -> list[Pieces]:
        """Frames that were not acknowledged, in their order; empty in place of those not kept."""
        assert self.row is not None
        return [self.frames.get(n, ()) for n in range(self.row.first_kept, self.row.next_number)]


@dataclass(slots=True)
class Past:
    """Everything that counts at the end of a journal. `parts`: by their names in `commits`."""

    channels: dict[int, PastChannel] = field(default_factory=dict)
    totals: list[ChannelTotals] = field(default_factory=list)
    summed: SummedTotals | None = None
    book: Addresses = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)
    lasting: dict[str, dict[int, bytes]] = field(default_factory=dict)
    """Pieces by kind and number, as results on their way to a target."""
    added: dict[str, list[bytes]] = field(default_factory=dict)
    """Changes by kind, such as those to the state of keys, oldest first."""
    owner: str = ""
    """The instance that it is of."""
    parted: bool = False
    """Whether the instance had sent everything, and all of it was acknowledged."""

    def take(self, record: Record) -> None:
        for kind, *rest in record.entries:
            match kind:
                case "frame":
                    index, number, at, n = rest
                    self.channels[index].frames[number] = tuple(record.pieces[at : at + n])
                case "frame_of":  # a kept piece has become its end
                    index, number, at, name, kept = rest
                    frame = *record.pieces[at : at + 1], self.lasting[name][kept]
                    self.channels[index].frames[number] = frame
                case "row":
                    index, values = rest
                    channel = self.channels[index]
                    channel.row = row = ChannelRow(*values)
                    for number in [n for n in channel.frames if n < row.first_kept]:
                        del channel.frames[number]
                case "part":
                    name, value = rest
                    self.parts[name] = value
                case "channel":
                    index, dialing, peer = rest
                    self.channels[index] = PastChannel(dialing, peer)
                case "closed":
                    del self.channels[rest[0]]
                case "past":
                    self._note_closed(*rest)
                case "summed":
                    (self.summed,) = rest
                case "book":
                    self.book.update(rest[0])
                case "added":
                    name, at = rest
                    self.added.setdefault(name, []).append(record.pieces[at])
                case "dropped":
                    name, number = rest
                    self.lasting[name].pop(number, None)
                case "drawn":
                    pass  # read by the search for the segments that count
                case "owner":
                    self.owner = rest[0]
                case "parted":
                    self.parted = True
                case "snapshot":
                    self._begin_anew()
                case "kept":
                    name, number, at = rest
                    self.lasting.setdefault(name, {})[number] = record.pieces[at]
                case _:
                    raise JournalError(f"a journal with an unknown entry {kind!r}")

    def _note_closed(self, totals: ChannelTotals) -> None:
        """The peer has ended, so its address is not needed."""
        self.totals.append(totals)
        for peer in [peer for peer in self.book if str(peer) == totals.peer]:
            del self.book[peer]

    def _begin_anew(self) -> None:
        """All but what is recorded by changes, which replaces the former state piece by piece."""
        self.channels.clear()
        self.totals.clear()
        self.summed = None
        self.book.clear()
        self.parts.clear()
        self.lasting.clear()


def write_base(path: Path, base: dict[str, list[bytes]]) -> None:
    """What an instance begins with, beside its journal at `path`: changes by kind, as if they were
    the first in it. To be written before its first incarnation."""
    replace_file(base_of(path), pickle.dumps(base, 5))


def read_base(path: Path) -> dict[str, list[bytes]]:
    """Empty if there is none, or if it counts no more: a journal that has lost its first segment
    contains everything by itself. Until then its changes come on top of the base."""
    there = segments(path)
    if there and there[0][0] != FIRST_SEGMENT:
        return {}
    try:
        data = store().read(base_of(path))
    except FileNotFoundError:
        return {}
    base: dict[str, list[bytes]] = pickle.loads(data)
    return base


def base_bytes(path: Path) -> int:
    """How long it is; 0 if there is none."""
    try:
        return store().status(base_of(path)).st_size
    except FileNotFoundError:
        return 0


def read_past(path: Path, *, power: bool, owner: str, must_be: bool) -> Past | None:
    """None if no earlier incarnation has committed anything there. Raises `JournalError` if there
    `must_be` a journal and it is gone, or if it is another instance's."""
    if must_be and not segments(path):
        raise JournalError(
            f"the journal {str(path)!r} is gone, and with it what {owner} was; put it back and "
            "resume the run, or begin a new one"
        )
    past, found = Past(), False
    for record in read_journal(path, power=power):
        past.take(record)
        found = True
    if past.owner not in ("", owner):
        raise JournalError(f"the journal {str(path)!r} is that of {past.owner}, not of {owner}")
    return past if found and "core" in past.parts else None
