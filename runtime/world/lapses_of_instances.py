"""What a process may neglect around its channels: its journal, its state, its ends, its place among
the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from anabranch.protocol import events
from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.moving import Arrival
from anabranch.runtime.keyed.processor import KeyedProcessor
from anabranch.runtime.keyed.watermarks import Gate
from anabranch.runtime.live.agent.spawner import Spawner
from anabranch.runtime.live.commit import recovery
from anabranch.runtime.live.commit.output_buffer import OutputBuffer
from anabranch.runtime.live.commit.segment_snapshot import SegmentSnapshot
from anabranch.runtime.live.instance.counts import Counts
from anabranch.runtime.live.instance.departure import Departure
from anabranch.runtime.live.instance.membership import Membership
from anabranch.runtime.live.instance.source_pump import SourcePump
from anabranch.runtime.live.journal.journal import Journal, Record
from anabranch.runtime.live.process.process import Process
from anabranch.runtime.plan.ends import Split
from anabranch.runtime.sources.generate import GenerateReader
from anabranch.runtime.sources.lines import LineCutter
from anabranch.runtime.storage.dead_letters import DeadLetterFile
from anabranch.runtime.storage.shared_file import SharedFile
from anabranch.runtime.world.lapses import Lapse
from anabranch.runtime.world.lapses_of_channels import does_nothing

Method = Callable[..., Any]
LATE_S = 0.005
REAPED_LATE_S = 1_000.0


# -- the journal -------------------------------------------------------------------------------


def _late(append: Method) -> Callable[..., None]:
    def later(journal: Journal, record: Record) -> None:
        asyncio.get_running_loop().call_later(LATE_S, write, journal, record)

    def write(journal: Journal, record: Record) -> None:
        if journal._file is not None:
            append(journal, record)

    return later


def _not_the_last(read: Method) -> Method:
    def older(*args: Any, **kwargs: Any) -> Iterator[Record]:
        records = [*read(*args, **kwargs)]
        return iter(records[:-1] or records)

    return older


def _complete_at_once(begin: Method) -> Method:
    def too_early(snapshot: SegmentSnapshot) -> None:
        begin(snapshot)
        snapshot._journal.snapshot_complete()

    return too_early


def _not_synced(_synced: Method) -> Method:
    async def at_once(_journal: Journal) -> None:
        return

    return at_once


# -- results -----------------------------------------------------------------------------------


def _noted_before(_all_done: Method) -> Method:
    async def dropped_first(buffer: OutputBuffer) -> None:
        for number, _ in [*buffer._waiting]:
            if buffer._commits is not None:
                buffer._commits.drop(buffer._kind, number)
        if buffer._commits is not None:
            await buffer._commits.committed()
        await _all_done(buffer)

    return dropped_first


def _not_committed(_all_done: Method) -> Method:
    async def at_once(buffer: OutputBuffer) -> None:
        commits, buffer._commits = buffer._commits, None
        try:
            await _all_done(buffer)
        finally:
            buffer._commits = commits

    return at_once


def _again(put: Method) -> Method:
    async def once_more(file: SharedFile, _number: int, data: bytes) -> None:
        await put(file, file.last_put() + 1, data)

    return once_more


def _put_nowhere(_put: Method) -> Method:
    async def nowhere(*_: Any) -> None:
        return

    return nowhere


def _without_the_dead(snapshot: Method) -> Method:
    def some(counts: Counts) -> tuple[Any, ...]:
        told = snapshot(counts)
        return (*told[:3], 0, *told[4:])

    return some


# -- the input ---------------------------------------------------------------------------------


def _without_claim(restore: Method) -> Method:
    def forgotten(pump: SourcePump, snapshot: dict[str, Any], past: Any) -> None:
        restore(pump, snapshot, past)
        pump._claimed = pump._safe = None

    return forgotten


def _too_far(remainder: Method) -> Method:
    def skipping(reader: GenerateReader) -> Split | None:
        rest = remainder(reader)
        return rest and {**rest, "next": min(rest["next"] + 1, rest["first"] + rest["count"])}

    return skipping


def _behind_the_line(restore: Method) -> Method:
    def skipping(cutter: LineCutter, state: dict[str, Any]) -> None:
        restore(cutter, {**state, "held": b""})

    return skipping


# -- state and event time ----------------------------------------------------------------------


def _most(_look: Method) -> Method:
    def look(gate: Gate) -> None:
        awake = [said for pred, said in gate._said.items() if pred not in gate._idle]
        if awake:
            gate.value = max(gate.value, *awake)

    return look


def _held_by_nothing(restore: Method) -> Method:
    def free(gate: Gate, state: Any) -> None:
        restore(gate, state)
        gate._holds.clear()

    return free


def _all_but_the_last(export: Method) -> Method:
    def most(*args: Any) -> Iterator[bytes]:
        return iter([*export(*args)][:-1])

    return most


def _to_the_old_part(_right: Method) -> Method:
    def arrival_for(holdings: Holdings, head: Any) -> Arrival:
        arrival = holdings.arriving.get(head.group)
        if arrival is None:
            return Arrival(head.incarnation)
        if head.incarnation > arrival.incarnation:
            arrival.incarnation, arrival.chunks = head.incarnation, 0
        return arrival

    return arrival_for


# -- among others ------------------------------------------------------------------------------


def _without_restarted(feed: Method) -> Method:
    def some(membership: Membership, event: Any, cause: str = "") -> None:
        if not isinstance(event, events.Restarted):
            feed(membership, event, cause)

    return some


def _without_asking(_decide: Method) -> Method:
    def at_once(departure: Departure, new_owner: int | None = None) -> None:
        departure._leave(new_owner)

    return at_once


def _much_later(note_exited: Method) -> Method:
    def later(process: Process, code: int) -> None:
        asyncio.get_running_loop().call_later(REAPED_LATE_S, note_exited, process, code)

    return later


LAPSES = (
    Lapse("late journal", "what is sent is in the journal later", Journal, "append", _late),
    Lapse(
        "restores an older state",
        "a next incarnation does not read the last record",
        recovery,
        "read_journal",
        _not_the_last,
        crashes="all",
    ),
    Lapse(
        "drops a segment too early",
        "a segment goes before the snapshot of the next one is whole",
        SegmentSnapshot,
        "begin",
        _complete_at_once,
        crashes="all",
    ),
    Lapse("never syncs", "what is sent may be lost with the power", Journal, "synced", _not_synced),
    Lapse(
        "commits before it writes",
        "results count as written before they are",
        OutputBuffer,
        "all_done",
        _noted_before,
        crashes="all",
    ),
    Lapse(
        "writes before the commit",
        "results are written before the journal has them",
        OutputBuffer,
        "all_done",
        _not_committed,
        crashes="all",
    ),
    Lapse("twice", "a piece of results is put though it is there", SharedFile, "put", _again),
    Lapse("no letters", "dead letters are not written", DeadLetterFile, "put", _put_nowhere),
    Lapse(
        "does not count letters",
        "a next incarnation does not know of dead letters",
        Counts,
        "snapshot",
        _without_the_dead,
        "chain",
        crashes="all",
    ),
    Lapse("forgets counts", "a next incarnation counts from zero", Counts, "restore", does_nothing),
    Lapse(
        "forgets what it had claimed",
        "a next incarnation does not read on",
        SourcePump,
        "restore",
        _without_claim,
        crashes="all",
    ),
    Lapse("skips", "a split goes on one number too late", GenerateReader, "remainder", _too_far),
    Lapse(
        "skips a line",
        "a split goes on behind the line that was read in part",
        LineCutter,
        "restore",
        _behind_the_line,
        "texts",
        crashes="all",
    ),
    Lapse("most", "the most of what predecessors say is the watermark", Gate, "_look", _most),
    Lapse(
        "says event time before Restarted",
        "a next incarnation does not hold event time back",
        Gate,
        "restore",
        _held_by_nothing,
        "row",
        crashes="all",
    ),
    Lapse(
        "half a state",
        "the last piece of moved state stays behind",
        KeyedProcessor,
        "export",
        _all_but_the_last,
    ),
    Lapse(
        "adds state sent again to its part",
        "what the last incarnation of a giver had sent counts beside what this one sends",
        Holdings,
        "_arrival_for",
        _to_the_old_part,
        "row",
        crashes="all",
    ),
    Lapse(
        "does not perform Restarted",
        "the core of a next incarnation does not know that it is one",
        Membership,
        "feed",
        _without_restarted,
        crashes="all",
    ),
    Lapse(
        "keeps children that nobody knows",
        "newcomers stay whose creator has forgotten them",
        Spawner,
        "keep_only",
        does_nothing,
        "graph",
        crashes="all",
    ),
    Lapse(
        "leaves without asking",
        "too few instances stay",
        Departure,
        "decide",
        _without_asking,
    ),
    Lapse(
        "reaps too late",
        "the agent hears of the end of a process minutes later",
        Process,
        "note_exited",
        _much_later,
        crashes="all",
    ),
)
