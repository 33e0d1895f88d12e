"""Spark at both ends of a pipeline.

    lines = pipeline.source("lines", ab.spark.feed("lines"))
    ....sink("scores", ab.spark.collect("scores", "text string, score long"))

    with ab.spark.session("demo") as spark:
        ab.spark.write(spark.read.text("texts"), run, "lines", final=True)

Importing this imports neither PySpark nor PyArrow: a pipeline runs without them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.spark_bridge.errors import SparkUnavailable
    from anabranch.spark_bridge.local.session import session
    from anabranch.spark_bridge.sink import SparkCollect as collect  # noqa: N813
    from anabranch.spark_bridge.source import SparkFeed as feed  # noqa: N813
    from anabranch.spark_bridge.verbs import finish, read, release, wait, write

__all__ = [
    "SparkUnavailable",
    "collect",
    "feed",
    "finish",
    "read",
    "release",
    "session",
    "wait",
    "write",
]

_WHERE = {
    "SparkUnavailable": ("errors", "SparkUnavailable"),
    "collect": ("sink", "SparkCollect"),
    "feed": ("source", "SparkFeed"),
    "finish": ("verbs", "finish"),
    "read": ("verbs", "read"),
    "release": ("verbs", "release"),
    "wait": ("verbs", "wait"),
    "write": ("verbs", "write"),
    "session": ("local.session", "session"),
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _WHERE[name]
    value = getattr(import_module(f"{__name__}.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
