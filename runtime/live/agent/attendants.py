"""The services of a run: started before the instances, closed after them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from anabranch.runtime.live.agent.attendant import Attendant, Incarnation
from anabranch.runtime.live.agent.starter import StartOrders
from anabranch.runtime.live.process.service import services_of
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Service

LINGER_GRACE_S = 1.0


class Attendants:
    """One for each service; `make` gets what is its own: see `Attendant`."""

    def __init__(
        self, pipeline: Pipeline, make: Callable[[Service, tuple[str, ...], int], Attendant]
    ) -> None:
        found = enumerate(services_of(pipeline))
        self._all = [make(service, names, i) for i, (service, names) in found]

    def address_for(self, operator: str) -> str:
        return next((a.address for a in self._all if operator in a.operators), "")

    @property
    def all_over(self) -> bool:
        """Whether no process of a service runs, and none is to come."""
        return all(attendant.over.done() for attendant in self._all)

    @property
    def present(self) -> Iterator[Incarnation]:
        """Those that are ready, and have not ended."""
        for attendant in self._all:
            if attendant.present is not None:
                yield attendant.present

    async def start(self, orders: StartOrders) -> None:
        """Return when every service has reported its address. Raises `StartError`."""
        for attendant in self._all:
            attendant.start(orders)
            await attendant.ready

    async def close(self) -> None:
        """Report to all services that the instances have ended; return when they have, or
        lingered."""
        running = [a for a in self._all if not a.over.done()]
        for attendant in running:
            attendant.close()
        if running:
            linger_s = max(a.service.linger_s for a in running) + LINGER_GRACE_S
            await asyncio.wait([a.over for a in running], timeout=linger_s)

    def give_up(self) -> None:
        """The run ends everything now."""
        for attendant in self._all:
            attendant.give_up()
