"""A few loops on one timeline, with a network between them."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import Any, TypeVar

from anabranch.runtime.ports.sockets import take
from anabranch.runtime.world.loop import VirtualLoop
from anabranch.runtime.world.network import Network, TransportOf
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.timeline import Timeline

T = TypeVar("T")


class Loops:
    def __init__(self, seed: int = 1, conditions: Conditions | None = None) -> None:
        self.timeline = Timeline(random.Random(seed))
        self.network = Network(str(seed), conditions or Conditions())
        self.errors: list[dict[str, Any]] = []

    def loop(self, name: str = "a") -> VirtualLoop:
        loop = VirtualLoop(self.timeline, name, lambda _, told: self.errors.append(told))
        loop.context.run(take, TransportOf(self.network, loop))
        return loop

    def run(self, work: Coroutine[Any, Any, T], *, loop: VirtualLoop | None = None) -> T:
        """In a loop of its own unless it is given."""
        loop = loop or self.loop("main")
        task = loop.create_task(work, name="work", context=loop.context)
        self.timeline.run(task.done)
        result: T = task.result()
        return result
