"""The gateway as a service of a run: one process for all Spark ends of the pipeline."""

from __future__ import annotations

import errno
import importlib.util
import logging
from collections.abc import Awaitable, Callable

from anabranch.runtime.plan.ends import Service, ServiceContext, Split
from anabranch.runtime.storage.patience import Patience
from anabranch.spark_bridge.errors import SparkUnavailable
from anabranch.spark_bridge.gateway_limits import GatewayLimits
from anabranch.spark_bridge.places import split_address, state_dir

_log = logging.getLogger(__name__)


class GatewayService(Service):
    """Serves until the run has ended, and then, at most `linger_s`, until all results were
    fetched and no Spark query is connected any more, or Spark's side released it."""

    name = "spark"
    linger_s = 60.0

    def __init__(self, limits: GatewayLimits | None = None) -> None:
        self._limits = limits

    async def serve(self, context: ServiceContext) -> None:
        # Here, because instances are forked without PyArrow, whose import starts threads.
        from anabranch.spark_bridge.gateway import Gateway
        from anabranch.spark_bridge.gateway_needs import gateway_needs

        needs = gateway_needs(context.ends, context.run_dir)

        async def publish(stream: str, splits: list[Split]) -> None:
            await context.publish(needs.feeds[stream], splits)

        async def ended(stream: str) -> None:
            await context.ended(needs.feeds[stream])

        gateway = Gateway(
            ended=ended,
            feeds=needs.feeds,
            collects=needs.collects,
            pipeline_run=f"{context.run_dir} {context.started_s}",
            limits=self._limits,
        )

        async def start(port: int) -> str:
            return await gateway.start(needs.host, port, needs.state, publish, context.token)

        async def begin() -> str:
            return await _where_it_was(start, needs.port, context.former_address)

        async def tell() -> None:
            if needs.state != state_dir(context.run_dir).absolute():
                gateway.tell_in(context.run_dir)

        patience = Patience("the gateway to Spark", lambda kind, detail: None, context.delayed)
        address = await patience.outlast(begin)
        try:
            await patience.outlast(tell)
            context.address(f"tcp:{address}")
            await context.closed()
            gateway.complete()
            if needs.collects and not await gateway.collected(self.linger_s):
                _log.warning("not all results were collected by Spark; they lie in %s", needs.state)
        finally:
            await gateway.close()


async def _where_it_was(
    start: Callable[[int], Awaitable[str]], wanted: int, former_address: str
) -> str:
    """Start the gateway at its former port, where Spark's side dials it. If another program has
    this port now, start it at any port, unless the user has named the port. Spark's side then finds
    it through the run's folder."""
    port = wanted
    if former_address:
        port = split_address(former_address)[1]
    try:
        return await start(port)
    except OSError as error:
        if wanted or not port or error.errno != errno.EADDRINUSE:
            raise
        _log.warning("port %d of the gateway was taken while it was down; it takes another", port)
        return await start(0)


GATEWAY = GatewayService()
"""The one that all ends name: the same object means one process in a run."""


def check_packages() -> None:
    """Raise `SparkUnavailable` if the gateway could not start."""
    if importlib.util.find_spec("pyarrow") is None:
        raise SparkUnavailable(
            "a pipeline with ab.spark.feed or ab.spark.collect needs the package pyarrow. "
            "Get it with `pip install 'anabranch[spark]'`."
        )
