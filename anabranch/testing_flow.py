"""How tuples and event time go through the operators of a pipeline under test.

An operator has one instance, a keyed one as many as wanted. What an instance makes goes to one
successor after the other, and there at once to the end, before the next is looked at. Event time
goes the same way, behind the tuples made before it. The processors, the gates and the encoding are
those of a run; only channels, sources and sinks are missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.protocol.ownership import founding
from anabranch.runtime.ends import DeadLetter
from anabranch.runtime.graph import Operator, Pipeline, PipelineError
from anabranch.runtime.keyed.groups import GroupCache
from anabranch.runtime.keyed.late import Late
from anabranch.runtime.keyed.payload import KeyedEncoder, decode_keyed
from anabranch.runtime.keyed.processor import KeyedProcessor
from anabranch.runtime.keyed.spec import KeyedEdge
from anabranch.runtime.keyed.watermarks import Gate, Stamper
from anabranch.runtime.operators import Processor, make_processor
from anabranch.runtime.payload import Batch, Encoder, describe
from anabranch.runtime.salvage import decode_batch
from anabranch.runtime.steps import Part
from anabranch.virtual_time import VirtualLoop

CHUNK_BYTES = 4096
"""Small, so that state of a test's size travels in several pieces."""
LATE_REASONS = ("late: ", "dropped as late")
"""How the letters of late tuples begin."""


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
            if letter.reason.startswith(LATE_REASONS):
                self.late.setdefault(operator, []).append(letter.tuple)
            else:
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
        if operator.edges:
            self._keyed = KeyedProcessor(
                operator,
                groups=flow.pipeline.groups,
                slice_s=1.0,
                emit=self._parts.append,
                turn=_no_turn,
                clock=flow.loop.time,
                wall=flow.wall,
            )
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

    async def take(self, tuples: list[Any]) -> None:
        if self._processor is None:
            self._flow.delivered[self.id.operator] += tuples
            return
        await self._processor.run(tuples)
        await self._processor.drain()
        await self._emit()

    async def take_keyed(self, keys: list[Any], tuples: list[Any], side: int) -> None:
        await self.keyed.run(keys, tuples, side)
        await self._emit()

    async def _emit(self) -> None:
        """Pass on what the processor has made."""
        results: list[Any] = []
        operator = self.id.operator
        for part in self._parts:
            results += part.results
            if part.letters:
                self._flow.bury(operator, part.letters)
        self._parts.clear()
        lates = [one.tuple for one in results if type(one) is Late]
        if lates and self._keyed is not None:
            self._flow.late.setdefault(operator, []).extend(lates)
        if results:
            await self.pass_results(results)

    async def pass_results(self, results: list[Any]) -> None:
        if self._node.operator.sink is not None:
            self._flow.delivered[self.id.operator] += results
            return
        stamper = self._stamper
        if stamper is None:
            await self._send(results)
            return
        # Event time goes on behind the very tuple that moves it.
        sent = 0
        for number, one in enumerate(results, start=1):
            stamper.note([one], self._flow.loop.now, self._flow.wall())
            watermark = stamper.watermark(self._flow.loop.now)
            if watermark > self.stated[0]:
                await self._send(results[sent:number])
                sent = number
                await self._state(watermark, idle=False)
        if sent < len(results):
            await self._send(results[sent:])

    async def _send(self, tuples: list[Any]) -> None:
        for line in self.lines:
            await line.send(tuples)

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
            self._keyed.advance(self._gate.value)
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
            self._keyed.fire_due(self._flow.wall())
            await self._emit()

    # -- ownership, and the end ------------------------------------------------------------

    async def install(self, chunk: bytes) -> None:
        await self.keyed.install(chunk)
        await self._emit()

    async def end(self) -> None:
        if self._keyed is not None:
            self._keyed.advance(math.inf)
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

    async def send(self, tuples: list[Any]) -> None:
        edge = self._edge
        if edge is None:
            for count, data in self._encoded(tuples):
                read, letters = decode_batch(data, count)
                self._flow.bury(self._node.operator.name, letters)
                for receiver in self._node.instances:
                    await receiver.take(read)
            return
        for count, data in self._encoded(self._with_keys(tuples, edge)):
            keys, read, letters = decode_keyed(data, count)
            self._flow.bury(self._node.operator.name, letters)
            await self._to_owners(keys, read, edge.side)

    def _encoded(self, tuples: list[Any]) -> list[Batch]:
        batches, letters = self._encoder.encode_batches(tuples)
        if self._edge is not None:
            letters = [replace(letter, tuple=letter.tuple[1]) for letter in letters]
        self._flow.bury(self._sender.operator, letters)
        return batches

    def _with_keys(self, tuples: list[Any], edge: KeyedEdge) -> list[Any]:
        pairs: list[Any] = []
        for one in tuples:
            try:
                key = edge.key(one)
                self._flow.group_of[key]
            except Exception as error:
                reason = f"has no key for operator {self._node.operator.name!r}: {describe(error)}"
                self._flow.bury(self._sender.operator, [DeadLetter(reason, one)])
            else:
                pairs.append((key, one))
        return pairs

    async def _to_owners(self, keys: list[Any], tuples: list[Any], side: int) -> None:
        """In the order of the tuples, whoever owns their keys."""
        node = self._node
        if len(node.instances) == 1:
            await node.instances[0].take_keyed(keys, tuples, side)
            return
        owners = [node.owner_of[self._flow.group_of[key]] for key in keys]
        at = 0
        for owner, same in groupby(owners):
            end = at + sum(1 for _ in same)
            await node.instances[owner].take_keyed(keys[at:end], tuples[at:end], side)
            at = end


async def _no_turn() -> None:
    """Nobody else wants a turn."""


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
