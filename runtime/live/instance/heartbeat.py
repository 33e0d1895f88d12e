"""Heartbeats between neighbours: a frame at least every second, and a report when none comes.

An instance counts silence in ticks of its own event loop, and each tick counts at most `TICK_S`. So
an instance that could not listen, because of a long call of a function or a busy host, does not
suspect its neighbours. A suspicion ends no process: the agent looks at the process itself
(`anabranch.runtime.live.agent.watchdog`). An instance also reports itself to the agent: in each
tick if it has not begun or only waits to end, otherwise more often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from anabranch.runtime.live.channel.neighbourhood import Neighbourhood
from anabranch.runtime.live.instance.membership import Membership
from anabranch.runtime.live.link.messages import Suspect, Waits
from anabranch.runtime.reporting.status import id_to_wire

TICK_S = 1.0
SUSPECT_S = 3.0
"""After so many seconds of ticks without a frame the agent gets a report, and again after as
many."""


class Heartbeat:
    """`tell`: sends a message to the agent. `has_begun`: whether the instance processes, and
    reports how far it is: not so before its START, nor if a next incarnation finds its work
    done."""

    def __init__(
        self,
        membership: Membership,
        neighbourhood: Neighbourhood,
        tell: Callable[[Any], None],
        has_begun: Callable[[], bool],
    ) -> None:
        self._membership = membership
        self._neighbourhood = neighbourhood
        self._tell = tell
        self._has_begun = has_begun

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time()
        while True:
            await asyncio.sleep(TICK_S)
            before, at = at, loop.time()
            self.tick(min(at - before, TICK_S))

    async def while_it_parts(self) -> None:
        """It has nothing to do but to wait, perhaps for long, for what neighbours acknowledge.
        Nothing is sent before the first pause: where no time comes for what is periodic, it would
        not arrive, nor would the last words behind it."""
        while True:
            await asyncio.sleep(TICK_S)
            self._tell(Waits())

    def tick(self, seconds: float) -> None:
        if not self._has_begun():
            self._tell(Waits())
        neighbours = self._membership.neighbours
        for channel in self._neighbourhood.channels:
            if channel.peer not in neighbours:
                continue
            channel.statements.later()
            channel.silent_s += seconds
            if channel.silent_s >= SUSPECT_S:
                peer = id_to_wire(channel.peer)
                self._tell(Suspect(peer=peer, silent_s=channel.silent_s))
                channel.silent_s = 0.0
