"""Tests whose time is virtual: they take the same course however busy the machine is, and what
they wait for costs nothing. Files are real."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from anabranch.runtime.ports import clock
from anabranch.runtime.ports.sockets import take
from anabranch.runtime.world.clock import VirtualClock
from anabranch.runtime.world.loop import VirtualLoop
from anabranch.runtime.world.network import Network, TransportOf
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.timeline import Timeline

P = ParamSpec("P")

SLOWNESS = 20.0
"""One loop does here what many processes do in a world: its turns are longer."""


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """The loop, the clock and the network of the test are those of a world."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_in_virtual_time(test(*args, **kwargs))

    return run


def run_in_virtual_time(work: Coroutine[Any, Any, None], seed: int = 1) -> None:
    timeline = Timeline(random.Random(seed))
    network = Network(str(seed), Conditions())
    errors: list[str] = []
    loop = VirtualLoop(timeline, "test", lambda name, told: errors.append(f"{name}: {told}"))
    loop.slowness = SLOWNESS
    loop.context.run(take, TransportOf(network, loop))
    with clock.using(VirtualClock(timeline, random.Random(seed))):
        try:
            task = loop.create_task(work, name="test", context=loop.context)
            timeline.run(task.done)
        finally:
            loop.kill()
            loop.forget()
            network.end_of(loop)
    task.result()
    assert not errors, errors
