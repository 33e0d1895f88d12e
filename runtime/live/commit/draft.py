"""The record of the commit to come.

What changes as a whole is written as a whole, and the last word holds; only frames and the state of
keys, which are many, are written one by one. `anabranch.runtime.live.commit.recovery` reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.commit.channel_log import ChannelLog
from anabranch.runtime.live.commit.timer import CommitTimer
from anabranch.runtime.live.journal.journal import Entry, Record

Part = Callable[[], Any]
Standing = Callable[[], Iterable[Entry]]
Channels = dict[ChannelLog, Channel]


class Draft:
    """Whatever comes into it wants a commit of the `timer`. `whole`: whether the next record
    contains everything but the state of keys, as if nothing had been written before. `standing`:
    what was `note`d and still counts, as entries."""

    standing: Standing

    def __init__(self, timer: CommitTimer) -> None:
        self.whole = True
        self._timer = timer
        self._channels: Channels = {}
        self._touched: Channels = {}
        self._indices: dict[ChannelLog, int] = {}
        """By which records name a channel, once it was touched."""
        self._next_index = 0
        self._parts: dict[str, Part] = {}
        self._written: dict[str, Any] = {}
        self._entries: list[Entry] = []
        self._pieces: list[bytes] = []
        self._lasting: dict[tuple[Any, ...], bytes] = {}
        """Pieces that count until they are `dropped`, as results on their way to a target."""
        self._going: dict[tuple[str, int], bytes] = {}
        """Those that are dropped in this commit: frames that go out may end with them."""

    # -- channels ------------------------------------------------------------------------------

    def log_of(self, channel: Channel, *, keeps_batches: bool) -> ChannelLog:
        log = ChannelLog(self, keeps_batches=keeps_batches)
        self._channels[log] = channel
        return log

    def touch(self, log: ChannelLog, *, now: bool = False, at_once: bool = False) -> None:
        """There is news of a channel. One that is closed must not be written down again."""
        channel = self._channels.get(log)
        if channel is None or channel.line.ended:
            return
        self._touched[log] = channel
        if at_once:
            self._timer.end()
        else:
            self._timer.want(now=now)

    def forget(self, log: ChannelLog) -> None:
        """A channel is closed, and its totals are among those of the past."""
        self._touched.pop(log, None)
        self._channels.pop(log, None)
        index = self._indices.pop(log, None)
        if index is not None:
            self._entries.append(("closed", index))
        self._timer.want()

    # -- parts, entries and pieces -------------------------------------------------------------

    def part(self, name: str, value: Part) -> None:
        """Something that is written as a whole when it is not equal to what was written last."""
        self._parts[name] = value

    def value_of(self, name: str) -> Any:
        """A part as it is now."""
        return self._parts[name]()

    def note_written(self, name: str, value: Any) -> None:
        """A part is in the journal ahead of its commit."""
        self._written[name] = value

    def note(self, *entry: Any) -> None:
        self._entries.append(entry)
        self._timer.want()

    def change(self, kind: str, data: bytes) -> None:
        """A piece that adds to those before it, as changes to the state of keys."""
        if data:
            self._entries.append(("added", kind, self._piece(data)))
            self._timer.want()

    def keep(self, kind: str, number: int, data: bytes) -> None:
        """A piece that is to be known until it is dropped."""
        self._lasting[kind, number] = data
        self._going.pop((kind, number), None)
        self._entries.append(("kept", kind, number, self._piece(data)))
        self._timer.want()

    def drop(self, kind: str, number: int) -> None:
        data = self._lasting.pop((kind, number), None)
        if data is not None:
            self._going[kind, number] = data
            self._timer.want()

    def _piece(self, data: bytes) -> int:
        self._pieces.append(data)
        return len(self._pieces) - 1

    # -- the record ----------------------------------------------------------------------------

    def begin_anew(self) -> None:
        """The next record is to be whole."""
        self.whole = True
        self._timer.want()

    def finish(self) -> tuple[Record, Channels]:
        """The record, and the channels that it contains: what they hold may go when the record is
        in the journal."""
        if self.whole:
            record = self._whole_snapshot()
        else:
            self._add_news()
            record = Record(self._entries, self._pieces)
        self.whole = False
        touched, self._touched = self._touched, {}
        self._entries, self._pieces = [], []
        self._going.clear()
        return record, touched

    def _add_news(self) -> None:
        entries, pieces = self._entries, self._pieces
        going = {id(data): place for place, data in self._going.items()}
        for log, channel in self._touched.items():
            index = self._index(log, channel)
            for number, frame in log.record(channel):
                if (place := going.get(id(frame[-1]))) is None:
                    entries.append(("frame", index, number, len(pieces), len(frame)))
                    pieces.extend(frame)
                else:  # its end is in the journal already
                    entries.append(("frame_of", index, number, len(pieces), *place))
                    pieces.extend(frame[:-1])
            entries.append(("row", index, tuple(channel.row)))
        entries.extend(("dropped", *place) for place in self._going)
        for name, part in self._parts.items():
            value = part()
            if name not in self._written or self._written[name] != value:
                self._written[name] = value
                entries.append(("part", name, value))

    def _whole_snapshot(self) -> Record:
        entries: list[Entry] = [("snapshot",)]
        pieces: list[bytes] = []
        for log, channel in self._touched.items():
            self._index(log, channel)
            log.record(channel)
        for log, index in self._indices.items():
            channel = self._channels[log]
            entries.append(("channel", index, channel.dialing, channel.peer))
            for number, frame in log.kept(channel):
                entries.append(("frame", index, number, len(pieces), len(frame)))
                pieces.extend(frame)
            entries.append(("row", index, tuple(channel.row)))
        for name, part in self._parts.items():
            value = self._written[name] = part()
            entries.append(("part", name, value))
        for (kind, number), data in self._lasting.items():
            entries.append(("kept", kind, number, len(pieces)))
            pieces.append(data)
        entries.extend(self.standing())
        for kind, *rest in self._entries:  # since the last commit, and not contained in the above
            if kind == "added":
                name, at = rest
                entries.append((kind, name, len(pieces)))
                pieces.append(self._pieces[at])
            elif kind == "parted":
                entries.append((kind,))
        return Record(entries, pieces)

    def _index(self, log: ChannelLog, channel: Channel) -> int:
        index = self._indices.get(log)
        if index is None:
            index = self._indices[log] = self._next_index
            self._next_index += 1
            self._entries.append(("channel", index, channel.dialing, channel.peer))
        return index
