"""Ends of a pipeline that a gateway serves, as the gateway needs to know them."""

from __future__ import annotations

from pathlib import Path


class GatewayEnd:
    """`stream`: its name at the gateway. `state`, `listen`: what it wants of the gateway, None for
    the default."""

    stream: str
    state: str | Path | None
    listen: str | None


class FeedEnd(GatewayEnd):
    """A source."""


class CollectEnd(GatewayEnd):
    """A sink; `schema`: of its results, as DDL."""

    schema: str
