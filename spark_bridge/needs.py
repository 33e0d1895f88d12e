"""What a pipeline wants of a gateway: read off its operators, checked before anything starts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.graph import Operator, PipelineError
from anabranch.spark_bridge.places import state_dir
from anabranch.spark_bridge.sink import SparkCollect
from anabranch.spark_bridge.source import SparkFeed


@dataclass(frozen=True)
class GatewayNeeds:
    """`feeds`: stream -> the source that reads it. `collects`: stream -> DDL schema."""

    feeds: dict[str, OperatorName]
    collects: dict[str, str]
    state: Path


def gateway_needs(operators: Iterable[Operator], run_dir: Path) -> GatewayNeeds | None:
    """None if the pipeline has nothing to do with Spark.

    Raises `PipelineError` if two ends have the same stream, or different state folders.
    """
    feeds: dict[str, OperatorName] = {}
    collects: dict[str, str] = {}
    states: dict[Path, OperatorName] = {}
    for operator in operators:
        end = operator.source or operator.sink
        if not isinstance(end, (SparkFeed, SparkCollect)):
            continue
        states.setdefault(state_dir(run_dir, end.state).absolute(), operator.name)
        if end.stream in feeds or end.stream in collects:
            raise PipelineError(
                f"operator {operator.name!r}: another one has the stream {end.stream!r} already"
            )
        if isinstance(end, SparkFeed):
            feeds[end.stream] = operator.name
        else:
            collects[end.stream] = end.schema
    if not states:
        return None
    if len(states) > 1:
        names = " and ".join(repr(str(name)) for name in states.values())
        raise PipelineError(f"operators {names}: all ends of a pipeline need the same state folder")
    return GatewayNeeds(feeds, collects, next(iter(states)))
