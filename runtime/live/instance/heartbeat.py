"""Neighbours listen to each other: a word at least every second, and doubts when none comes.

Silence is counted in ticks of one's own loop, each no longer than it should be: whoever was kept
from listening, by a long call of a function or a host that is too busy, blames nobody for it. A
doubt ends nobody. It goes to the agent, which looks at the process itself and is the second
witness (`anabranch.runtime.live.agent.watchdog`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from anabranch.runtime.live.channel.neighbourhood import Neighbourhood
from anabranch.runtime.live.instance.membership import Membership
from anabranch.runtime.live.link.messages import Suspect
from anabranch.runtime.reporting.status import id_to_wire

TICK_S = 1.0
SUSPECT_S = 3.0
"""Of ticks without a word; then the agent is told, once in so many seconds."""


class Heartbeat:
    """`tell`: takes what the agent is to hear."""

    def __init__(
        self, membership: Membership, neighbourhood: Neighbourhood, tell: Callable[[Any], None]
    ) -> None:
        self._membership = membership
        self._neighbourhood = neighbourhood
        self._tell = tell

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time()
        while True:
            await asyncio.sleep(TICK_S)
            before, at = at, loop.time()
            self.tick(min(at - before, TICK_S))

    def tick(self, seconds: float) -> None:
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
