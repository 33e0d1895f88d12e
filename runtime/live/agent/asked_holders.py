"""What the agent asks of the copy keepers of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any, TypeVar

from anabranch.protocol.copies import CopyError
from anabranch.runtime.live.agent.copy_keepers import CopyKeepers
from anabranch.runtime.live.agent.roster import Member
from anabranch.runtime.live.agent.starter import StartOrders
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.live.copies import asking
from anabranch.runtime.live.link.messages import Address
from anabranch.runtime.ports.sockets import take, transport
from anabranch.runtime.values.texts import original

ASK_S = 10.0
"""For a holder to answer."""

T = TypeVar("T")


class AskedHolders:
    def __init__(self, keepers: CopyKeepers, tasks: Tasks) -> None:
        self._keepers = keepers
        self._tasks = tasks
        self._token = b""
        self._context = copy_context()

    def begin(self, orders: StartOrders) -> None:
        """The run has a token, by which copy keepers know it."""
        self._token = orders.token
        if orders.tls:
            from anabranch.runtime.live.channel.secured import SecuredTransport

            secured = SecuredTransport(transport(), Path(original(orders.tls)))
            self._context.run(take, secured)

    async def fence(self, host: str, member: Member) -> bool | None:
        """J4: whether its copy can be read; None if it is not known to refuse earlier incarnations
        of the member from now on."""
        address = self._keepers.address_of(host)
        if not address:
            return None
        fencing = asking.fence(address, self._token, member.id, member.incarnation)
        found = await self._answer(fencing, f"fence {member.text} on {host}")
        return None if found is None else found.readable

    async def silent_s(self, host: str, member: Member) -> float:
        """J8: for how long the holder there has not heard the member; 0 if it does not answer."""
        address = self._keepers.address_of(host)
        if not address:
            return 0.0
        asked = asking.silent_s(address, self._token, member.id)
        return await self._answer(asked, f"ask {host} for {member.text}") or 0.0

    def forget(self, host: str, member: Member) -> None:
        """Have the copy there removed. If that fails, it goes with the folder when the run ends."""
        if address := self._keepers.address_of(host):
            work = self._forget_at(address, member)
            self._tasks.start(f"forget {member.text} on {host}", work)

    async def _forget_at(self, address: Address, member: Member) -> None:
        await self._answer(asking.forget(address, self._token, member.id), "forget a copy")

    async def _answer(self, question: Coroutine[Any, Any, T], name: str) -> T | None:
        asked = asyncio.get_running_loop().create_task(
            question, name=name, context=self._context.copy()
        )
        with suppress(OSError, CopyError):
            async with asyncio.timeout(ASK_S):
                return await asked
        return None
