"""A pipeline as a world runs it under test: sources that have their tuples in memory, sinks and a
file of dead letters that keep theirs as the objects that they are, on the disk of the world.

    tuples given ─▶ Given ─▶ … the pipeline as it is … ─▶ Kept ─▶ Outcome
                                 ╰─ late tuples, dead letters ─▶ KeptLetters ─╯

The bytes of results and letters go the way of those of `ab.jsonl`, by pieces of shared files, so
each is there as often as the delivery of the pipeline promises, whatever dies.
"""

from __future__ import annotations

import asyncio
import io
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.keyed.late import Late
from anabranch.runtime.pipeline.definition import Delivery
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
from anabranch.runtime.values.foreign import describe

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


@dataclass(frozen=True)
class Kept(Sink):
    """`only_late`: keeps late tuples and passes over everything else."""

    path: Path
    only_late: bool = False
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
        self._only_late = sink.only_late
        self._file = SharedFile(
            sink.path,
            sidecar_path(context.lasting_dir, sink.path),
            context.instance,
            kind="results",
            durable=context.durable == "power",
        )
        self._file.open()

    def stage(self, tuples: list[Any]) -> tuple[bytes, list[DeadLetter]]:
        if self._only_late:
            tuples = [one.tuple for one in tuples if type(one) is Late]
        pieces, dead = list[bytes](), list[DeadLetter]()
        for one in tuples:
            try:
                pieces.append(pickle.dumps(one, 5))
            except Exception as error:
                dead.append(DeadLetter(f"cannot be pickled: {describe(error)}", one))
        return b"".join(pieces), dead

    async def put(self, number: int, data: bytes) -> None:
        await self._file.put(number, data)

    def last_put(self) -> int:
        return self._file.last_put()

    async def close(self) -> None:
        self._file.close()


class KeptLetters(DeadLetterFile):
    """Letters as pickles: their operators, and the letters themselves."""

    def stage(self, letters: Sequence[DeadLetter]) -> bytes:
        return b"".join(self._piece(letter) for letter in letters)

    def _piece(self, letter: DeadLetter) -> bytes:
        try:
            return pickle.dumps((self._of["operator"], letter), 5)
        except Exception:  # what cannot travel is told as the file of a run tells it
            return pickle.dumps(
                (self._of["operator"], replace(letter, tuple=repr(letter.tuple))), 5
            )


class TestedPipeline(Pipeline):
    """The operators of another pipeline, between such ends."""

    __test__ = False

    def letters_of(
        self, operator: str, instance: str, lasting_dir: Path | None, *, durable: bool
    ) -> DeadLetterFile:
        path = self.dead_letters_path
        return KeptLetters(
            path,
            pipeline=self.name,
            operator=operator,
            instance=instance,
            lasting_dir=lasting_dir,
            durable=durable,
        )


@dataclass
class Tested:
    """`pipeline` is what runs. `written`: gives what is in a file, nothing if it is not there."""

    pipeline: TestedPipeline
    sinks: Mapping[str, Path]
    telling: Mapping[str, Path]
    """What is written of late tuples, by the operators of which these are results."""

    def results(self, written: Callable[[Path], bytes]) -> dict[str, list[Any]]:
        delivery = self.pipeline.delivery
        return {name: [*_pickles(written(path), delivery)] for name, path in self.sinks.items()}

    def late_and_dead(
        self, written: Callable[[Path], bytes]
    ) -> tuple[dict[str, list[Any]], dict[str, list[DeadLetter]]]:
        late: dict[str, list[Any]] = {}
        dead: dict[str, list[DeadLetter]] = {}
        for operator, path in self.telling.items():
            if found := [*_pickles(written(path), self.pipeline.delivery)]:
                late[operator] = found
        for operator, letter in _pickles(
            written(self.pipeline.dead_letters_path), self.pipeline.delivery
        ):
            keyed = self.pipeline.operators[operator].keyed
            if keyed is not None and letter.reason.startswith(LATE):
                late.setdefault(operator, []).append(letter.tuple)
            else:
                dead.setdefault(operator, []).append(letter)
        return late, dead


def tested(
    pipeline: Pipeline,
    sources: Mapping[str, Source],
    instances: Mapping[str, int],
    folder: Path,
) -> Tested:
    """A copy of a pipeline with `sources` in the place of its own, with sinks that keep what they
    get, and with so many `instances` of operators at the beginning.

    Late tuples are kept whatever the operator does with them: those that it drops are buried as
    others are. Raises `PipelineError` for instances of an operator that is not there.
    """
    made = TestedPipeline(
        pipeline.name,
        str(folder / "letters"),
        groups=pipeline.groups,
        delivery=pipeline.delivery,
        durable=pipeline.durable,
        dead_max=1.0,
    )
    sinks, telling = dict[str, Path](), dict[str, Path]()
    for name, operator in pipeline.operators.items():
        ends: dict[str, Any] = {}
        if operator.source is not None:
            ends["source"] = sources[name]
        if operator.sink is not None:
            path = sinks[str(name)] = folder / f"kept.{name}"
            ends["sink"] = Kept(path)
        keyed = operator.keyed
        if keyed is not None and keyed.late == "drop":
            ends["keyed"] = replace(keyed, late="bury")
        made.operators[name] = replace(operator, **ends)
        if keyed is not None and keyed.late == "emit" and operator.sink is None:
            path = telling[str(name)] = folder / f"late.{name}"
            sink = OperatorName(f"late.{name}")
            made.operators[sink] = Operator(sink, (name,), sink=Kept(path, only_late=True))
    for instances_of, number in instances.items():
        _begin_with(made, instances_of, number)
    return Tested(made, sinks, telling)


def _begin_with(pipeline: Pipeline, name: str, number: int) -> None:
    operator = pipeline.operators.get(OperatorName(name))
    if operator is None:
        known = ", ".join(pipeline.operators)
        raise PipelineError(f"instances: the pipeline has no operator {name!r}; known: {known}")
    if type(number) is not int or number < 1:
        raise PipelineError(f"instances: {name!r} needs a whole number from 1 on, got {number!r}")
    scale = operator.scale or Scale(max_instances=1)
    most = max(number, scale.max_instances)
    scale = replace(scale, min_instances=number, max_instances=most, policy=Fixed())
    pipeline.operators[operator.name] = replace(operator, scale=scale)


def _pickles(data: bytes, delivery: Delivery) -> Iterator[Any]:
    """At most once, the last piece may be half there: what was in work dies with its process."""
    file = io.BytesIO(data)
    while file.tell() < len(data):
        try:
            yield pickle.load(file)
        except (EOFError, pickle.UnpicklingError):
            if delivery != "at-most-once":
                raise
            return
