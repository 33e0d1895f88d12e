"""Anabranch: stream processing that scales itself without a master.

    import anabranch as ab

    pipeline = ab.Pipeline("headlines")
    lines = pipeline.source("lines", ab.files("texts/*.txt"))
    words = lines.flat_map("split", str.split, scale=ab.Scale(max_instances=8))
    words.filter("long", lambda w: len(w) > 3).sink("out", ab.jsonl("words.jsonl"))

State is kept by key, and moves with it when operators scale:

    counts = words.key_by(str.lower, ordered=False).fold("count", 0, lambda seen, word: seen + 1)

Run it with `anabranch run FILE.py`, or from a program with `ab.run(pipeline)`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anabranch.runtime.pipeline.graph import Pipeline, Stream
from anabranch.runtime.plan.operator import Retry, Step
from anabranch.runtime.plan.place import near, on
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.values.checks import PipelineError
from anabranch.steps import filter, flat_map, map

if TYPE_CHECKING:
    from anabranch import policies, spark, testing
    from anabranch.running import run, start
    from anabranch.runtime.keyed.aggregations import (
        Aggregation,
        greatest,
        least,
        mean,
        tally,
        total,
    )
    from anabranch.runtime.keyed.handler import KeyTime, Timer
    from anabranch.runtime.keyed.late import Late
    from anabranch.runtime.keyed.windows import (
        Window,
        WindowResult,
        count,
        session,
        sliding,
        tumbling,
        window_time,
    )
    from anabranch.runtime.mqtt.ends import mqtt
    from anabranch.runtime.mqtt.source import MqttMessage
    from anabranch.runtime.reporting.failure import RunFailed
    from anabranch.runtime.sinks.discard import discard
    from anabranch.runtime.sinks.foreach import foreach
    from anabranch.runtime.sinks.jsonl import jsonl
    from anabranch.runtime.sinks.parquet import parquet
    from anabranch.runtime.sinks.stdout import stdout
    from anabranch.runtime.sources import csv, files, generate, items, stdin

__version__ = "0.1.0"

_LAZY = {
    "Aggregation": "anabranch.runtime.keyed.aggregations",
    "KeyTime": "anabranch.runtime.keyed.handler",
    "KeyedStream": "anabranch.runtime.pipeline.graph",
    "MqttMessage": "anabranch.runtime.mqtt.source",
    "Late": "anabranch.runtime.keyed.late",
    "RunFailed": "anabranch.runtime.reporting.failure",
    "Timer": "anabranch.runtime.keyed.handler",
    "Window": "anabranch.runtime.keyed.windows",
    "WindowResult": "anabranch.runtime.keyed.windows",
    "count": "anabranch.runtime.keyed.windows",
    "discard": "anabranch.runtime.sinks.discard",
    "csv": "anabranch.runtime.sources",
    "files": "anabranch.runtime.sources",
    "foreach": "anabranch.runtime.sinks.foreach",
    "generate": "anabranch.runtime.sources",
    "greatest": "anabranch.runtime.keyed.aggregations",
    "items": "anabranch.runtime.sources",
    "jsonl": "anabranch.runtime.sinks.jsonl",
    "least": "anabranch.runtime.keyed.aggregations",
    "mean": "anabranch.runtime.keyed.aggregations",
    "mqtt": "anabranch.runtime.mqtt.ends",
    "parquet": "anabranch.runtime.sinks.parquet",
    "policies": "anabranch",
    "run": "anabranch.running",
    "session": "anabranch.runtime.keyed.windows",
    "sliding": "anabranch.runtime.keyed.windows",
    "spark": "anabranch",
    "start": "anabranch.running",
    "stdin": "anabranch.runtime.sources",
    "stdout": "anabranch.runtime.sinks.stdout",
    "tally": "anabranch.runtime.keyed.aggregations",
    "testing": "anabranch",
    "total": "anabranch.runtime.keyed.aggregations",
    "tumbling": "anabranch.runtime.keyed.windows",
    "window_time": "anabranch.runtime.keyed.windows",
}
"""Names and the modules that have them, imported when first used: the command line must start
fast, and a pipeline without Spark must not need it."""


if not TYPE_CHECKING:  # so that type checkers know which names there are

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(
                f"module 'anabranch' has no attribute {name!r}",
                name=name,
                obj=import_module(__name__),
            )
        home = _LAZY[name]
        if home == __name__:
            found: Any = import_module(f"{home}.{name}")
        else:
            found = getattr(import_module(home), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "Aggregation",
    "KeyTime",
    "KeyedStream",
    "Late",
    "MqttMessage",
    "Pipeline",
    "PipelineError",
    "Retry",
    "RunFailed",
    "Scale",
    "Step",
    "Stream",
    "Timer",
    "Window",
    "WindowResult",
    "__version__",
    "count",
    "csv",
    "discard",
    "files",
    "filter",
    "flat_map",
    "foreach",
    "generate",
    "greatest",
    "items",
    "jsonl",
    "least",
    "map",
    "mean",
    "mqtt",
    "near",
    "on",
    "parquet",
    "policies",
    "run",
    "session",
    "sliding",
    "spark",
    "start",
    "stdin",
    "stdout",
    "tally",
    "testing",
    "total",
    "tumbling",
    "window_time",
]
