"""Faults of the gateway to Spark, of the source and sink that it serves, and of its agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from anabranch.runtime.plan.ends import Chunk
from anabranch.runtime.world.lapses import Lapse
from anabranch.runtime.world.lapses_of_the_agent import SERVICES_NOT_WATCHED
from anabranch.spark_bridge.collecting import _CollectedStream
from anabranch.spark_bridge.feed_register import Committed, FeedRegister, Record
from anabranch.spark_bridge.feeding import Feed
from anabranch.spark_bridge.part_folders import PartFolders
from anabranch.spark_bridge.part_writer import PartWriter
from anabranch.spark_bridge.source import SpoolReader
from anabranch.spark_bridge.world.gateway_link import SPARK

Method = Callable[..., Any]


def _not_stored(_right: Method) -> Method:
    async def write(feed: Feed, record: Record) -> None:
        feed._register.apply(record)

    return write


def _as_if_not_yet(commit: Method) -> Method:
    def wrong(register: FeedRegister, record: Committed) -> None:
        commit(register, record)
        register.queries[record.query].last_epoch -= 1

    return wrong


def _lets_anyone(_right: Method) -> Method:
    return lambda register, query, run: None


def _finds_none(_right: Method) -> Method:
    def staged(folders: PartFolders, committed: Any) -> Iterator[Any]:
        return iter(())

    return staged


def _whatever_was_served(_right: Method) -> Method:
    return lambda stream: {**stream.log.ends(), **stream.served}


def _appends_all(append: Method) -> Method:
    def wrong(part: PartWriter, frames: bytes) -> None:
        part._last = part._last._replace(start=part._segment_bytes)
        append(part, frames)

    return wrong


def _removed_at_once(read: Method) -> Method:
    async def wrong(reader: SpoolReader, tuples_max: int, bytes_max: int) -> Chunk | None:
        chunk: Chunk | None = await read(reader, tuples_max, bytes_max)
        if reader._left <= 0:
            reader.done()
        return chunk

    return wrong


_OF_BOTH_ENDS = tuple(
    Lapse(name, what, of, attribute, make, SPARK, "all")
    for name, what, of, attribute, make in (
        (
            "gateway stores nothing",
            "a batch is acknowledged that is only in memory",
            Feed,
            "_write",
            _not_stored,
        ),
        (
            "batch taken twice",
            "a batch that is committed again is a new one",
            FeedRegister,
            "_commit",
            _as_if_not_yet,
        ),
        (
            "driver not shut out",
            "a driver of Spark that was replaced may commit",
            FeedRegister,
            "check_living",
            _lets_anyone,
        ),
        (
            "forgets staged parts",
            "what tasks have staged is gone with the process of the gateway",
            PartFolders,
            "staged",
            _finds_none,
        ),
        (
            "deletes what was served",
            "results are deleted before Spark acknowledges them",
            _CollectedStream,
            "_low",
            _whatever_was_served,
        ),
        (
            "appends results again",
            "the next incarnation appends what lies there already",
            PartWriter,
            "_append",
            _appends_all,
        ),
        (
            "spool removed at once",
            "a file of the spool is deleted before it is recorded that it was read",
            SpoolReader,
            "read",
            _removed_at_once,
        ),
    )
)
LAPSES = (*_OF_BOTH_ENDS, replace(SERVICES_NOT_WATCHED, scene=SPARK, crashes="all"))
