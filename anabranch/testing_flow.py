"""How tuples and event time go through the operators of a pipeline under test.

An operator has one instance, a keyed one as many as wanted. What an instance makes goes to one
successor after the other, and there at once to the end, before the next is looked at. Event time
goes the same way, behind the tuples made before it. The processors, the gates and the encoding are
those of a run; only channels, sources and sinks are missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.ownership import founding
from anabranch.runtime.keyed.groups import GroupCache
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.processing.marks import marked_ways
from anabranch.runtime.values.checks import PipelineError
from anabranch.testing_instance import Instance, Line
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
