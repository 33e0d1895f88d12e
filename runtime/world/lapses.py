"""Broken variants of the classes that live runs consist of. Worlds must find each of them out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from anabranch.protocol.session import Session
from anabranch.runtime.keyed.processor import KeyedProcessor
from anabranch.runtime.keyed.watermarks import Gate
from anabranch.runtime.live.commit.recovery import Past
from anabranch.runtime.live.instance.counts import Counts
from anabranch.runtime.live.journal.journal import Journal, Record
from anabranch.runtime.plan.ends import Split
from anabranch.runtime.sources.generate import GenerateReader
from anabranch.runtime.storage.dead_letters import DeadLetterFile
from anabranch.runtime.storage.shared_file import SharedFile

LATE_S = 0.005


@dataclass(frozen=True)
class Lapse:
    """`what` is wrong; `scene`: in which it may show, any if empty. `make` gets the right function
    `name` of the class `of` and gives the wrong one."""

    name: str
    what: str
    of: type
    attribute: str
    make: Callable[[Callable[..., Any]], Callable[..., Any]]
    scene: str = ""


@contextmanager
def neglected(lapse: Lapse) -> Iterator[None]:
    """Meanwhile the class has it, for all worlds of this process."""
    right = lapse.of.__dict__[lapse.attribute]
    setattr(lapse.of, lapse.attribute, lapse.make(right))
    try:
        yield
    finally:
        setattr(lapse.of, lapse.attribute, right)


def _late(append: Callable[[Journal, Record], None]) -> Callable[..., None]:
    def later(journal: Journal, record: Record) -> None:
        asyncio.get_running_loop().call_later(LATE_S, write, journal, record)

    def write(journal: Journal, record: Record) -> None:
        if journal._file is not None:
            append(journal, record)

    return later


def _without_frames(take: Callable[[Past, Record], None]) -> Callable[..., None]:
    def some(past: Past, record: Record) -> None:
        take(past, Record([e for e in record.entries if e[0] != "frame"], record.pieces))

    return some


def _again(put: Callable[..., Any]) -> Callable[..., Any]:
    async def once_more(file: SharedFile, _number: int, data: bytes) -> None:
        await put(file, file.last_put() + 1, data)

    return once_more


def _most(_look: Callable[[Gate], None]) -> Callable[..., None]:
    def look(gate: Gate) -> None:
        awake = [said for pred, said in gate._said.items() if pred not in gate._idle]
        if awake:
            gate.value = max(gate.value, *awake)

    return look


def _too_far(remainder: Callable[[GenerateReader], Split | None]) -> Callable[..., Any]:
    def skipping(reader: GenerateReader) -> Split | None:
        rest = remainder(reader)
        return rest and {**rest, "next": min(rest["next"] + 1, rest["first"] + rest["count"])}

    return skipping


def _says_it_once(_resume: Callable[..., Any]) -> Callable[..., Iterable[Any]]:
    return lambda session, expected, acknowledged=None: iter(())


def _does_nothing(_right: Callable[..., Any]) -> Callable[..., None]:
    return lambda *_: None


def _put_nowhere(_put: Callable[..., Any]) -> Callable[..., Any]:
    async def nowhere(*_: Any) -> None:
        return

    return nowhere


def _all_but_the_last(export: Callable[..., Iterator[bytes]]) -> Callable[..., Iterator[bytes]]:
    def most(*args: Any) -> Iterator[bytes]:
        return iter([*export(*args)][:-1])

    return most


LAPSES = (
    Lapse("late journal", "what is sent is in the journal later", Journal, "append", _late),
    Lapse("lost frames", "a next incarnation knows no frames", Past, "take", _without_frames),
    Lapse("twice", "a piece of results is put though it is there", SharedFile, "put", _again),
    Lapse(
        "most",
        "the most of what predecessors say is the watermark",
        Gate,
        "_look",
        _most,
        "windows",
    ),
    Lapse("skips", "a split goes on one number too late", GenerateReader, "remainder", _too_far),
    Lapse(
        "says it once", "nothing is repeated on a new connection", Session, "resume", _says_it_once
    ),
    Lapse(
        "forgets counts", "a next incarnation counts from zero", Counts, "restore", _does_nothing
    ),
    Lapse(
        "no letters", "dead letters are not written", DeadLetterFile, "put", _put_nowhere, "chain"
    ),
    Lapse(
        "half a state",
        "the last piece of moved state stays behind",
        KeyedProcessor,
        "export",
        _all_but_the_last,
        "counts",
    ),
)
