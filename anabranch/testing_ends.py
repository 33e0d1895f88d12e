"""A pipeline as a world runs it under test: sources that have their tuples in memory, sinks and a
file of dead letters that keep theirs as the objects that they are, on the disk of the world.

    tuples given ─▶ Given, Fed ─▶ … the pipeline as it is … ─▶ Kept ─▶ Outcome
                                      ╰─ late tuples, dead letters ─▶ KeptLetters ─╯

What is written of a result or a letter is its place in a list of all that was to be written. That
goes the way of the bytes of `ab.jsonl`, by pieces of shared files, so each is there as often as the
delivery of the pipeline promises, whatever dies.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.keyed.late import Late
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import (
    Chunk,
    DeadLetter,
    ExactWriter,
    Reader,
    RunContext,
    Sink,
    Source,
    Split,
    Writer,
)
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.policies.fixed import Fixed
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage.dead_letters import DeadLetterFile
from anabranch.runtime.storage.shared_file import SharedFile, sidecar_path
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.world.loop import VirtualLoop

PLACE_BYTES = 8
INSTANCES_MAX = 1024
LATE = "late: by "
"""How the reason begins for which a late tuple is a dead letter."""


@dataclass(frozen=True)
class Given(Source):
    """All tuples in order, in one split, so that one instance at a time reads them. They come at
    equal distances within `span_s` seconds of the run."""

    tuples: Sequence[Any] = field(repr=False)
    span_s: float

    def splits(self) -> Iterator[Split]:
        yield {"first": 0}

    def open(self, split: Split, context: RunContext) -> Reader:
        return _GivenReader(self, split["first"], context.started_s)


class _GivenReader(Reader):
    def __init__(self, source: Given, first: int, began_s: float) -> None:
        self._tuples = source.tuples
        self._next = first
        self._began_s = began_s
        self._step_s = source.span_s / max(1, len(source.tuples))

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        if self._next >= len(self._tuples):
            return None
        began_s = clock.monotonic()
        due_s = self._began_s + self._next * self._step_s
        await asyncio.sleep(max(0.0, due_s - began_s))
        now_s = clock.monotonic()
        due = 1 + int((now_s - self._began_s) / self._step_s)
        end = min(max(due, self._next + 1), self._next + tuples_max, len(self._tuples))
        tuples = list(self._tuples[self._next : end])
        self._next = end
        return Chunk(tuples, progress=float(len(tuples)), waited_s=now_s - began_s)

    def remainder(self) -> Split | None:
        return {"first": self._next} if self._next < len(self._tuples) else None


class Feed:
    """What a test lets a source send, bit by bit. It outlives the processes that read it.
    `one_by_one`: each tuple is a chunk of its own, so that event time goes on behind it."""

    def __init__(self, *, one_by_one: bool) -> None:
        self.tuples: list[Any] = []
        self.ended = False
        self.one_by_one = one_by_one
        self._waiting: list[asyncio.Future[None]] = []

    def send(self, tuples: Iterable[Any]) -> None:
        self.tuples += tuples
        self._wake()

    def end(self) -> None:
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            loop = one.get_loop()
            assert isinstance(loop, VirtualLoop)
            loop.post(one.set_result, None)

    async def more(self) -> None:
        one = asyncio.get_running_loop().create_future()
        self._waiting.append(one)
        await one


@dataclass(frozen=True)
class Fed(Source):
    """In one split, so that one instance at a time reads it."""

    feed: Feed = field(repr=False)

    def splits(self) -> Iterator[Split]:
        yield {"first": 0}

    def open(self, split: Split, context: RunContext) -> Reader:
        return _FedReader(self.feed, split["first"])


class _FedReader(Reader):
    def __init__(self, feed: Feed, first: int) -> None:
        self._feed, self._next = feed, first

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        feed, first = self._feed, self._next
        while first == len(feed.tuples):
            if feed.ended:
                return None
            await feed.more()
        end = first + (1 if feed.one_by_one else tuples_max)
        tuples = feed.tuples[first:end]
        self._next += len(tuples)
        return Chunk(tuples, progress=float(len(tuples)))

    def remainder(self) -> Split | None:
        return {"first": self._next}


@dataclass(frozen=True)
class Kept(Sink):
    """`only_late`: keeps late tuples and passes over everything else."""

    path: Path
    only_late: bool = False
    all: list[Any] = field(default_factory=list, repr=False, compare=False)
    """All that was to be written."""
    exact = True

    def prepare(self) -> None:
        self._make(0)

    def empty(self) -> None:
        self._make(os.O_TRUNC)

    def _make(self, flag: int) -> None:
        store().open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | flag, 0o600).close()

    def open(self, context: RunContext) -> Writer:
        return _KeptWriter(self, context)


class _KeptWriter(ExactWriter):
    def __init__(self, sink: Kept, context: RunContext) -> None:
        self._sink = sink
        self._file = SharedFile(
            sink.path,
            sidecar_path(context.lasting_dir, sink.path),
            context.instance,
            kind="results",
            durable=context.durable == "power",
        )
        self._file.open()

    def stage(self, tuples: list[Any]) -> tuple[bytes, list[DeadLetter]]:
        if self._sink.only_late:
            tuples = [one.tuple for one in tuples if type(one) is Late]
        return _added(self._sink.all, tuples), []

    async def put(self, number: int, data: bytes) -> None:
        await self._file.put(number, data)

    def last_put(self) -> int:
        return self._file.last_put()

    async def close(self) -> None:
        self._file.close()


class KeptLetters(DeadLetterFile):
    """With their operators. `all`: that were to be written."""

    all: list[tuple[str, DeadLetter]]

    def stage(self, letters: Sequence[DeadLetter]) -> bytes:
        return _added(self.all, [(self._of["operator"], letter) for letter in letters])


def _added(to: list[Any], what: Sequence[Any]) -> bytes:
    """Their places."""
    first = len(to)
    to += what
    return b"".join(n.to_bytes(PLACE_BYTES) for n in range(first, len(to)))


class TestedPipeline(Pipeline):
    """The operators of another pipeline, between such ends."""

    __test__ = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.letters: list[tuple[str, DeadLetter]] = []

    def letters_of(
        self, operator: str, instance: str, lasting_dir: Path | None, *, durable: bool
    ) -> DeadLetterFile:
        file = KeptLetters(
            self.dead_letters_path,
            pipeline=self.name,
            operator=operator,
            instance=instance,
            lasting_dir=lasting_dir,
            durable=durable,
        )
        file.all = self.letters
        return file


@dataclass
class Tested:
    """`pipeline` is what runs. `written`: gives what is in a file, nothing if it is not there."""

    pipeline: TestedPipeline
    sinks: Mapping[str, Kept]
    telling: Mapping[str, Kept]
    """What is written of late tuples, by the operators of which these are results."""

    def results(self, sink: str, written: Callable[[Path], bytes]) -> list[Any]:
        kept = self.sinks[sink]
        return _at(kept.all, written(kept.path))

    def late_and_dead(
        self, written: Callable[[Path], bytes]
    ) -> tuple[dict[str, list[Any]], dict[str, list[DeadLetter]]]:
        late: dict[str, list[Any]] = {}
        dead: dict[str, list[DeadLetter]] = {}
        for operator, kept in self.telling.items():
            if found := _at(kept.all, written(kept.path)):
                late[operator] = found
        letters = written(self.pipeline.dead_letters_path)
        for operator, letter in _at(self.pipeline.letters, letters):
            keyed = self.pipeline.operators[OperatorName(operator)].keyed
            if keyed is not None and letter.reason.startswith(LATE):
                late.setdefault(operator, []).append(letter.tuple)
            else:
                dead.setdefault(operator, []).append(letter)
        return late, dead


def _at(all_: Sequence[Any], places: bytes) -> list[Any]:
    """At most once, the last place may be half there: what was in work dies with its process."""
    whole = len(places) // PLACE_BYTES * PLACE_BYTES
    starts = range(0, whole, PLACE_BYTES)
    return [all_[int.from_bytes(places[n : n + PLACE_BYTES])] for n in starts]


def tested(
    pipeline: Pipeline,
    sources: Mapping[str, Source],
    instances: Mapping[str, int],
    folder: Path,
    *,
    may_join: bool,
) -> Tested:
    """A copy of a pipeline with `sources` in the place of its own, with sinks that keep what they
    get, and with so many `instances` of operators at the beginning.

    Late tuples are kept whatever the operator does with them: those that it drops are buried as
    others are. `may_join`: operators may have any number of instances, and begin with one where
    nothing else is given. Raises `PipelineError` for instances of an operator that is not there.
    """
    made = TestedPipeline(
        pipeline.name,
        str(folder / "letters"),
        groups=pipeline.groups,
        delivery=pipeline.delivery,
        durable=pipeline.durable,
        dead_max=1.0,
    )
    sinks, telling = dict[str, Kept](), dict[str, Kept]()
    for name, operator in pipeline.operators.items():
        ends: dict[str, Any] = {}
        if operator.source is not None:
            ends["source"] = sources[name]
        if operator.sink is not None:
            ends["sink"] = sinks[str(name)] = Kept(folder / f"kept.{name}")
        keyed = operator.keyed
        if keyed is not None and keyed.late == "drop":
            ends["keyed"] = replace(keyed, late="bury")
        made.operators[name] = replace(operator, **ends)
        if keyed is not None and keyed.late == "emit" and operator.sink is None:
            kept = telling[str(name)] = Kept(folder / f"late.{name}", only_late=True)
            sink = OperatorName(f"late.{name}")
            made.operators[sink] = Operator(sink, (name,), sink=kept)
    _begin_with(made, instances, may_join=may_join)
    return Tested(made, sinks, telling)


@dataclass(frozen=True)
class Begun(Fixed):
    """There are so many instances at the beginning."""

    instances: int = 1

    def at_start(self, scale: Scale) -> int:
        return self.instances


def _begin_with(pipeline: Pipeline, instances: Mapping[str, int], *, may_join: bool) -> None:
    if may_join:
        pipeline.durable = "process"  # no power is lost
        instances = {**dict.fromkeys(map(str, pipeline.operators), 1), **instances}
    for name, number in instances.items():
        operator = pipeline.operators.get(OperatorName(name))
        if operator is None:
            known = ", ".join(pipeline.operators)
            raise PipelineError(f"instances: the pipeline has no operator {name!r}; known: {known}")
        if type(number) is not int or number < 1:
            raise PipelineError(
                f"instances: {name!r} needs a whole number from 1 on, got {number!r}"
            )
        most = max(number, 1 if operator.scale is None else operator.scale.max_instances)
        scale = replace(
            operator.scale or Scale(),
            min_instances=1,
            max_instances=INSTANCES_MAX if may_join else most,
            policy=Begun(number),
        )
        pipeline.operators[operator.name] = replace(operator, scale=scale)


@contextmanager
def unlogged() -> Iterator[None]:
    """Keeps what instances log, such as that a disk is full, out of the output of a test."""
    logger = logging.getLogger("anabranch")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def unheard(_name: str, _line: str) -> None:
    """Whatever instances would print for a user."""
