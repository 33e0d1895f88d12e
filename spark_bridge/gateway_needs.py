"""What the ends of a pipeline want of their gateway, checked before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from anabranch.runtime.plan.ends import Sink, Source
from anabranch.runtime.values.checks import PipelineError
from anabranch.spark_bridge.gateway_ends import CollectEnd, FeedEnd
from anabranch.spark_bridge.places import PlaceUnknown, split_address, state_dir

_LISTEN = "127.0.0.1:0"
"""Only this machine, on a port that is free."""


@dataclass(frozen=True)
class GatewayNeeds:
    """`feeds`: stream -> the source that reads it. `collects`: stream -> DDL schema."""

    feeds: dict[str, str]
    collects: dict[str, str]
    state: Path
    host: str
    port: int


def gateway_needs(ends: Mapping[str, Source | Sink], run_dir: Path) -> GatewayNeeds:
    """`ends`: operator -> its source or sink; those that have nothing to do with Spark are passed
    over. Raises `PipelineError` if two have the same stream, or want different gateways."""
    feeds: dict[str, str] = {}
    collects: dict[str, str] = {}
    ours = {name: end for name, end in ends.items() if isinstance(end, (FeedEnd, CollectEnd))}
    for name, end in ours.items():
        if end.stream in feeds or end.stream in collects:
            raise PipelineError(
                f"operator {name!r}: another one has the stream {end.stream!r} already"
            )
        if isinstance(end, FeedEnd):
            feeds[end.stream] = name
        else:
            collects[end.stream] = end.schema
    states = {name: str(state_dir(run_dir, end.state).absolute()) for name, end in ours.items()}
    listens = {name: end.listen for name, end in ours.items() if end.listen is not None}
    host, port = _address(_one(listens, "listen", _LISTEN))
    state = _one(states, "state", str(state_dir(run_dir)))
    return GatewayNeeds(feeds, collects, Path(state), host, port)


def _one(values: dict[str, str], option: str, default: str) -> str:
    if len(set(values.values())) > 1:
        names = " and ".join(map(repr, values))
        raise PipelineError(
            f"operators {names}: all ends of a pipeline share a gateway, so give them the same "
            f"`{option}`"
        )
    return next(iter(values.values()), default)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if colon and host and port == "0":
        return host, 0
    try:
        return split_address(text)
    except PlaceUnknown:
        raise PipelineError(f"listen {text!r}: expected host:port, port 0 for any") from None
