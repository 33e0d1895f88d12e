"""How tuples and event time go through the operators of a pipeline under test.

An operator has one instance, a keyed one as many as wanted. What an instance makes goes to one
successor after the other, and there at once to the end, before the next is looked at. Event time
goes the same way, behind the tuples made before it. The processors, the gates and the encoding are
those of a run; only channels, sources and sinks are missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.protocol.ownership import founding
from anabranch.runtime.keyed.groups import GroupCache
from anabranch.runtime.keyed.keys import with_keys
from anabranch.runtime.keyed.late import Late
from anabranch.runtime.keyed.payload import KeyedEncoder, decode_keyed
from anabranch.runtime.keyed.processor import KeyedProcessor
from anabranch.runtime.keyed.watermarks import Gate, Stamper
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.plan.spec import KeyedEdge
from anabranch.runtime.processing.marks import NO_MARK, Marked, marked_ways, opened
from anabranch.runtime.processing.operators import Processor, make_processor
from anabranch.runtime.processing.payload import Batch, Encoder
from anabranch.runtime.processing.plain_calls import NoLoop
from anabranch.runtime.processing.salvage import decode_batch
from anabranch.runtime.processing.steps import Part
from anabranch.runtime.values.checks import PipelineError
from anabranch.virtual_time import VirtualLoop

CHUNK_BYTES = 4096
"""Small, so that state of a test's size travels in several pieces."""


class Flow:
    """A pipeline's nodes, and what has come out of them."""

    def __init__(
        self, pipeline: Pipeline, instances: Mapping[str, int], loop: VirtualLoop, start: float
    ) -> None:
        self.pipeline = pipeline
        self.loop = loop
        self.start = start
        self.delivered: dict[str, list[Any]] = {}
        self.late: dict[str, list[Any]] = {}
        self.dead: dict[str, list[DeadLetter]] = {}
        self.group_of = GroupCache(pipeline.groups)
        self.marked = marked_ways(pipeline.operators)
        _check_instances(pipeline, instances)
        self.nodes: dict[str, Node] = {}
        for operator in pipeline.operators.values():
            self.nodes[operator.name] = Node(self, operator, instances.get(operator.name, 1))
        for node in self.nodes.values():
            for upstream in node.operator.upstream:
                self.nodes[upstream].add_successor(node)

    @property
    def sources(self) -> dict[str, Node]:
        return {name: n for name, n in self.nodes.items() if n.operator.source is not None}

    @property
    def keyed(self) -> dict[str, Node]:
        return {name: n for name, n in self.nodes.items() if n.operator.edges}

    def wall(self) -> float:
        return self.start + self.loop.time()

    async def send(self, source: str, tuples: list[Any]) -> None:
        node = self.nodes[source]
        if node.ended:
            raise PipelineError(f"source {source!r} has ended and sends nothing more")
        await node.instances[0].pass_results(tuples)
        await self._call_timers()

    async def advance(self, seconds: float) -> None:
        target = self.loop.now + seconds
        while (due := self._next_due()) < self.start + target:
            self.loop.now = max(self.loop.now, due - self.start)
            if not await self._fire():
                break  # only timers of groups on the move are left
        self.loop.now = target
        await self._fire()
        for node in self.nodes.values():
            for instance in node.instances:
                await instance.state_own()

    def _next_due(self) -> float:
        return min(
            (i.next_due() for n in self.nodes.values() for i in n.instances), default=math.inf
        )

    async def _call_timers(self) -> None:
        """Time may have passed while functions were waiting."""
        if self._next_due() <= self.wall():
            await self._fire()

    async def _fire(self) -> bool:
        """Call timers that are due by now; whether there are fewer of them now."""
        before = self._next_due()
        for node in self.nodes.values():
            for instance in node.instances:
                await instance.fire_due()
        return self._next_due() != before

    async def end(self, source: str) -> None:
        await self.nodes[source].end()

    async def close(self) -> None:
        for source in self.sources.values():
            await source.end()
        for node in self.nodes.values():
            for instance in node.instances:
                await instance.close()

    async def move(self, node: Node, groups: frozenset[int], to: int) -> None:
        for instance in node.instances:
            for chunk in instance.keyed.export(instance.keyed.frozen & groups, CHUNK_BYTES):
                await node.instances[to].install(chunk)
        for group in groups:
            node.owner_of[group] = to

    def bury(self, operator: str, letters: Iterable[DeadLetter]) -> None:
        for letter in letters:
            self.dead.setdefault(operator, []).append(letter)


class Node:
    """An operator with its instances."""

    def __init__(self, flow: Flow, operator: Operator, instances: int) -> None:
        self.flow = flow
        self.operator = operator
        self.successors: list[Node] = []
        self.ended = False
        ids = [InstanceId(operator.name, n) for n in range(instances)]
        preds = {i.id for u in operator.upstream for i in flow.nodes[u].instances}
        self.instances: list[Instance] = [Instance(self, id_, preds) for id_ in ids]
        self.owner_of: list[int] = []
        """The number of the instance that owns each key group."""
        if operator.edges:
            routes = founding(operator.name, ids, flow.pipeline.groups)
            self.owner_of = [route.owner.number for route in routes]
            for instance in self.instances:
                owned = [g for g, owner in enumerate(self.owner_of) if owner == instance.id.number]
                instance.keyed.own(owned)
        if operator.sink is not None:
            flow.delivered[operator.name] = []

    def add_successor(self, node: Node) -> None:
        self.successors.append(node)
        for instance in self.instances:
            instance.lines.append(Line(instance, node))

    @property
    def watermark(self) -> float:
        return min(instance.stated[0] for instance in self.instances)

    async def end(self) -> None:
        """Nothing more comes in: make of the rest what can be made, and let successors know."""
        if self.ended:
            return
        self.ended = True
        for instance in self.instances:
            await instance.end()
        for node in self.successors:
            if all(self.flow.nodes[u].ended for u in node.operator.upstream):
                await node.end()
            else:
                for receiver in node.instances:
                    await receiver.forget([instance.id for instance in self.instances])

    def freeze(self, groups: frozenset[int], to: int) -> frozenset[int]:
        """Bring groups to rest, but for those that are there already."""
        moving = frozenset(g for g in groups if self.owner_of[g] != to)
        for instance in self.instances:
            mine = moving & instance.keyed.owned
            if mine:
                instance.keyed.freeze(mine)
        return moving


def _check_instances(pipeline: Pipeline, instances: Mapping[str, int]) -> None:
    for name, number in instances.items():
        operator = pipeline.operators.get(OperatorName(name))
        if operator is None or not operator.edges:
            keyed = [o.name for o in pipeline.operators.values() if o.edges]
            raise PipelineError(
                f"instances: {name!r} is no keyed operator of pipeline {pipeline.name!r}; "
                f"expected one of: {', '.join(keyed) or '(it has none)'}"
            )
        if number < 1:
            raise PipelineError(f"instances: {name!r} needs 1 or more, got {number}")


class Instance:
    def __init__(self, node: Node, id_: InstanceId, preds: set[InstanceId]) -> None:
        flow, operator = node.flow, node.operator
        self.id = id_
        self.lines: list[Line] = []
        self.stated = (-math.inf, False)
        """The watermark, and whether idle, that successors know."""
        self._node = node
        self._flow = flow
        self._parts: list[Part] = []
        self._gate = Gate()
        self._gate.set_preds(frozenset(preds))
        self._stamper = Stamper(operator.timing) if operator.timing else None
        self._processor: Processor | None = None
        self._keyed: KeyedProcessor | None = None
        self._late = 0
        if operator.edges:
            self._keyed = KeyedProcessor(
                _telling_late_tuples(operator),
                groups=flow.pipeline.groups,
                slice_s=1.0,
                emit=self._parts.append,
                turn=_no_turn,
                clock=flow.loop.time,
                wall=flow.wall,
            )
            self._keyed.be_careful()
            self._keyed.marks_results = any(operator.name == way[0] for way in flow.marked)
        elif operator.steps:
            self._processor = make_processor(
                operator,
                slice_s=1.0,
                emit=self._parts.append,
                turn=_no_turn,
                clock=flow.loop.time,
            )

    @property
    def keyed(self) -> KeyedProcessor:
        assert self._keyed is not None, f"{self.id} keeps no state by key"
        return self._keyed

    # -- tuples ----------------------------------------------------------------------------

    async def take(
        self, tuples: list[Any], read: Callable[[], list[Any]], marks: list[float] | None
    ) -> None:
        """`read` makes the tuples anew."""
        if self._processor is None:
            self._flow.delivered[self.id.operator] += tuples
            return
        await self._processor.run(tuples, None, read, marks=marks)
        await self._processor.drain()
        await self._emit()

    async def take_keyed(
        self,
        keys: list[Any],
        tuples: list[Any],
        side: int,
        read: Callable[[], list[Any]],
        marks: list[float] | None,
    ) -> None:
        await self.keyed.run(keys, tuples, side, None, read, marks=marks)
        await self._emit()

    async def _emit(self) -> None:
        """Pass on what the processor has made."""
        results: list[Any] = []
        marks: list[float] = []
        operator = self.id.operator
        for part in self._parts:
            results += part.results
            marks += part.marks or [NO_MARK] * len(part.results)
            if part.letters:
                self._flow.bury(operator, part.letters)
        self._parts.clear()
        if self._keyed is not None and self._keyed.late.total() > self._late:
            self._late = self._keyed.late.total()
            results, marks = self._sort_out_late(results, marks)
        if results:
            await self.pass_results(results, marks)

    def _sort_out_late(
        self, results: list[Any], marks: list[float]
    ) -> tuple[list[Any], list[float]]:
        """Note the late tuples, which stay among the results only if the operator wants it so."""
        operator = self._node.operator
        assert operator.keyed is not None
        lates = self._flow.late.setdefault(operator.name, [])
        lates += [one.tuple for one in results if type(one) is Late]
        if operator.keyed.late == "emit":
            return results, marks
        in_time = [n for n, one in enumerate(results) if type(one) is not Late]
        return [results[n] for n in in_time], [marks[n] for n in in_time]

    async def pass_results(self, results: list[Any], marks: list[float] | None = None) -> None:
        if self._node.operator.sink is not None:
            self._flow.delivered[self.id.operator] += results
            return
        stamper = self._stamper
        if stamper is None:
            await self._send(results, marks)
            return
        # Event time goes on behind the very tuple that moves it.
        for one in results:
            with NoLoop():
                stamped = stamper.note([one], self._flow.loop.now, self._flow.wall())
            self._flow.bury(self.id.operator, stamped.letters)
            await self._send(stamped.tuples, stamped.marks)
            watermark = stamper.watermark(self._flow.loop.now)
            if watermark > self.stated[0]:
                await self._state(watermark, idle=False)

    async def _send(self, tuples: list[Any], marks: list[float] | None) -> None:
        for line in self.lines:
            await line.send(tuples, marks)

    # -- time ------------------------------------------------------------------------------

    async def hear(self, pred: InstanceId, watermark: float, idle: bool) -> None:
        self._gate.heard(pred, watermark, idle)
        await self._advance()

    async def forget(self, preds: Iterable[InstanceId]) -> None:
        for pred in preds:
            self._gate.forget(pred)
        await self._advance()

    async def _advance(self) -> None:
        if self._keyed is not None and self._gate.value > self._keyed.watermark:
            await self._keyed.advance(self._gate.value)
            await self._emit()
        if self._stamper is None:
            await self._state(self._gate.output, idle=self._gate.idle)

    async def state_own(self) -> None:
        """A device may have been silent for too long."""
        if self._stamper is not None:
            now = self._flow.loop.now
            await self._state(self._stamper.watermark(now), idle=self._stamper.idle(now))

    async def _state(self, watermark: float, *, idle: bool) -> None:
        news = (max(watermark, self.stated[0]), idle)
        if news != self.stated:
            self.stated = news
            for node in self._node.successors:
                for receiver in node.instances:
                    await receiver.hear(self.id, *news)

    def next_due(self) -> float:
        due = self._keyed.next_due() if self._keyed is not None else None
        return math.inf if due is None else due

    async def fire_due(self) -> None:
        if self._keyed is not None:
            await self._keyed.fire_due(self._flow.wall())
            await self._emit()

    # -- ownership, and the end ------------------------------------------------------------

    async def install(self, chunk: bytes) -> None:
        await self.keyed.install(chunk)
        await self._emit()

    async def end(self) -> None:
        if self._keyed is not None:
            await self._keyed.end()
            await self._emit()
        self.stated = (math.inf, False)

    async def close(self) -> None:
        if self._keyed is not None:
            await self._keyed.close()
        if self._processor is not None:
            await self._processor.close()


class Line:
    """The way from an instance to an operator: tuples are encoded, and by key find their owner."""

    def __init__(self, sender: Instance, node: Node) -> None:
        self._flow = node.flow
        self._sender = sender.id
        self._node = node
        self._edge: KeyedEdge | None = None
        self._encoder = Encoder(DEFAULT_LIMITS)
        if node.operator.edges:
            self._edge = node.operator.edges[sender.id.operator]
            self._encoder = KeyedEncoder(DEFAULT_LIMITS)
        self._marked = (sender.id.operator, node.operator.name) in node.flow.marked

    async def send(self, tuples: list[Any], marks: list[float] | None) -> None:
        edge = self._edge
        if marks is None:
            marks = [NO_MARK] * len(tuples)
        if edge is None:
            for count, sealed in self._encoded(tuples, marks):
                batch = opened(sealed, count)
                for receiver in self._node.instances:
                    tuples, letters = decode_batch(batch.data, count)
                    self._flow.bury(self._node.operator.name, letters)
                    theirs = batch.marks_of(len(tuples))
                    await receiver.take(tuples, partial(_read, batch.data, count), theirs)
            return
        for count, sealed in self._encoded(*self._with_keys(tuples, marks, edge)):
            batch = opened(sealed, count)
            keys, tuples, letters = decode_keyed(batch.data, count)
            self._flow.bury(self._node.operator.name, letters)
            read, theirs = partial(_read_keyed, batch.data, count), batch.marks_of(len(tuples))
            await self._to_owners(keys, tuples, edge.side, read, theirs)

    def _encoded(self, tuples: list[Any], marks: list[float]) -> list[Batch]:
        whole = Marked(tuples, marks) if self._marked else tuples
        batches, letters = self._encoder.encode_batches(whole)
        if self._edge is not None:
            letters = [replace(letter, tuple=letter.tuple[1]) for letter in letters]
        self._flow.bury(self._sender.operator, letters)
        return batches

    def _with_keys(
        self, tuples: list[Any], marks: list[float], edge: KeyedEdge
    ) -> tuple[list[Any], list[float]]:
        name, group_of = self._node.operator.name, self._flow.group_of
        tuples, keys, _, marks, dead = with_keys(name, edge.key, group_of, tuples, marks)
        self._flow.bury(self._sender.operator, dead)
        return [*zip(keys, tuples, strict=True)], marks

    async def _to_owners(
        self,
        keys: list[Any],
        tuples: list[Any],
        side: int,
        read: Callable[[], list[Any]],
        marks: list[float] | None,
    ) -> None:
        """In the order of the tuples, whichever instances own their keys."""
        node = self._node
        if len(node.instances) == 1:
            await node.instances[0].take_keyed(keys, tuples, side, read, marks)
            return
        owners = [node.owner_of[self._flow.group_of[key]] for key in keys]
        at = 0
        for owner, same in groupby(owners):
            now = slice(at, at := at + sum(1 for _ in same))
            part = partial(_part, read, now.start, now.stop)
            theirs = None if marks is None else marks[now]
            await node.instances[owner].take_keyed(keys[now], tuples[now], side, part, theirs)


def _read(data: bytes | memoryview, count: int) -> list[Any]:
    return decode_batch(data, count)[0]


def _read_keyed(data: bytes | memoryview, count: int) -> list[Any]:
    return decode_keyed(data, count)[1]


def _part(read: Callable[[], list[Any]], start: int, end: int) -> list[Any]:
    return read()[start:end]


def _telling_late_tuples(operator: Operator) -> Operator:
    """The same operator, but late tuples are told, whatever is to become of them."""
    assert operator.keyed is not None
    return replace(operator, keyed=replace(operator.keyed, late="emit"))


async def _no_turn() -> None:
    """No other task waits for a turn."""
