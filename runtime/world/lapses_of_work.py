"""What may be neglected with tuples: how they are worked off, kept and buried, and event time."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Any

from anabranch.runtime.keyed.calling import Caller
from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.timers import Timers
from anabranch.runtime.keyed.watermarks import Gate
from anabranch.runtime.live.channel.channel import Channel
from anabranch.runtime.live.commit.commits import Commits
from anabranch.runtime.live.instance.outbox import Outbox
from anabranch.runtime.live.instance.poison_guard import PoisonGuard
from anabranch.runtime.live.instance.pumps import Pump, QueuePump
from anabranch.runtime.live.instance.tuple_path import TuplePath
from anabranch.runtime.live.instance.watermarks import Watermarks
from anabranch.runtime.live.journal.journal import Journal
from anabranch.runtime.processing.steps import Part
from anabranch.runtime.storage.shared_file import SharedFile
from anabranch.runtime.storage.sidecar import HEAD_BYTES, Entry, Sidecar
from anabranch.runtime.world.lapses import Lapse
from anabranch.runtime.world.lapses_of_channels import does_nothing

Method = Callable[..., Any]


# -- tuples --------------------------------------------------------------------------------------


def _one_less(account: Method) -> Method:
    def some(pump: Pump, part: Part) -> None:
        account(pump, part)
        pump.path.counts.dead -= part.dead > 0

    return some


def _settled_when_worked_off(_right: Method) -> Method:
    def at_once(_path: TuplePath, channel: Channel, *settled: int) -> None:
        channel.settle(*settled)

    return at_once


def _in_front(_keep: Method) -> Method:
    def kept_last_first(held: Holdings, group: int, kept: Any) -> None:
        _keep(held, group, kept)
        held.kept[group].rotate()

    return kept_last_first


# -- timers, event time --------------------------------------------------------------------------


def _twice(call: Method) -> Method:
    def again(*args: Any) -> None:
        call(*args)
        call(*args)

    return again


def _untold(cancel: Method) -> Method:
    def silently(timers: Timers, key: Any, name: str) -> None:
        timers._touched, touched = None, timers._touched
        cancel(timers, key, name)
        timers._touched = touched

    return silently


def _not_held(_right: property) -> property:
    return property(lambda gate: gate.value)


def _least_said(heard: Method) -> Method:
    def not_further(gate: Gate, pred: Any, watermark: float, idle: bool = False) -> None:
        heard(gate, pred, min(watermark, gate._said.get(pred, watermark)), idle)

    return not_further


def _least_stated(state: Method) -> Method:
    def not_further(watermarks: Watermarks, watermark: float, *, idle: bool) -> None:
        state(watermarks, min(watermark, watermarks._wanted[0]), idle=idle)

    return not_further


# -- poison --------------------------------------------------------------------------------------


def _without_deaths(restore: Method) -> Method:
    def forgetful(guard: PoisonGuard, *args: Any, **kwargs: Any) -> None:
        restore(guard, *args, **kwargs)
        guard._deaths.clear()

    return forgetful


# -- the disk ------------------------------------------------------------------------------------


def _given_up(_try_again: Method) -> Method:
    async def flushed(commits: Commits, _record: Any, channels: Any, waiting: Any, _: Any) -> None:
        await asyncio.sleep(0)
        commits._trying_again = False
        commits._flush(channels, waiting)

    return flushed


def _contents_only(_sync: Method) -> Method:
    return lambda _journal, file, _folders: file.sync_data()


def _torn_is_absent(fate: Method) -> Method:
    def kinder(file: SharedFile, *args: Any) -> str:
        told: str = fate(file, *args)
        return "absent" if told == "torn" else told

    return kinder


def _noted_behind(_append: Method) -> Method:
    def late(file: SharedFile, side: Sidecar, number: int, data: bytes) -> None:
        length = file._length()
        before = file._newest(side, length)
        row = side.own_row()
        last, length = file._settled(side, before, length, row)
        if number <= last:
            return
        head, tail = data[:HEAD_BYTES], zlib.crc32(data[-HEAD_BYTES:])
        of_file = file._identity[1]
        file._file.append(data)
        entry = Entry(
            before.sequence + 1, length, len(data), row, last, number, tail, of_file, head
        )
        side.write_entry(entry)
        file._mine = entry
        side.mark_whole(entry)

    return late


LAPSES = (
    Lapse(
        "counts one dead letter less",
        "of the tuples of a batch that fail, one is not counted",
        QueuePump,
        "_account",
        _one_less,
    ),
    Lapse(
        "settles before results are safe",
        "where tuples may come twice, they are acknowledged before what is made of them is",
        TuplePath,
        "settle",
        _settled_when_worked_off,
        "chain",
        crashes="all",
    ),
    Lapse(
        "forgets what it held",
        "results that a dead process had not sent are lost",
        Outbox,
        "restore",
        does_nothing,
        crashes="all",
    ),
    Lapse(
        "keeps the last first",
        "tuples of a group on its way lose their order",
        Holdings,
        "keep",
        _in_front,
        "row",
    ),
    Lapse("calls timers twice", "each timer is called twice", Caller, "call", _twice, "timers"),
    Lapse(
        "calls timers again",
        "a next incarnation calls timers that were called",
        Timers,
        "cancel",
        _untold,
        "timers",
        crashes="all",
    ),
    Lapse(
        "does not hold event time back",
        "while state is on its way, event time goes on",
        Gate,
        "output",
        _not_held,
        "row",
    ),
    Lapse(
        "hears no further event time",
        "the least that a predecessor has ever said counts",
        Gate,
        "heard",
        _least_said,
    ),
    Lapse(
        "states no further event time",
        "the least that an instance has ever known counts",
        Watermarks,
        "state",
        _least_stated,
    ),
    Lapse(
        "forgets which tuple it tried",
        "no incarnation knows how often a tuple has ended its process",
        PoisonGuard,
        "restore",
        _without_deaths,
        "poison",
    ),
    Lapse(
        "gives up what finds no room",
        "a record that a full disk refuses is left out",
        Commits,
        "_try_again",
        _given_up,
        crashes="all",
    ),
    Lapse(
        "writes behind half a record",
        "what a full disk has left of a record stays there",
        Journal,
        "_cut",
        does_nothing,
        crashes="all",
    ),
    Lapse(
        "syncs no names",
        "the power takes a whole journal",
        Journal,
        "_sync",
        _contents_only,
        crashes="all",
    ),
    Lapse(
        "leaves half a result",
        "what a dead process has written of a piece stays there",
        SharedFile,
        "_fate",
        _torn_is_absent,
        crashes="all",
    ),
    Lapse(
        "notes results behind them",
        "it is noted of a piece that it comes when it is there",
        SharedFile,
        "_append",
        _noted_behind,
        crashes="all",
    ),
)
