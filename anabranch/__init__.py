"""Anabranch: stream processing that scales itself without a master.

    import anabranch as ab

    pipeline = ab.Pipeline("headlines")
    lines = pipeline.source("lines", ab.files("texts/*.txt"))
    words = lines.flat_map("split", str.split, scale=ab.Scale(max_instances=8))
    words.filter("long", lambda w: len(w) > 3).sink("out", ab.jsonl("words.jsonl"))

Run it with `anabranch run FILE.py`, or from a program with `ab.run(pipeline)`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anabranch.runtime.graph import Pipeline, PipelineError, Retry, Scale, Step, Stream
from anabranch.steps import filter, flat_map, map

if TYPE_CHECKING:
    from anabranch import spark, testing
    from anabranch.running import run, start
    from anabranch.runtime.failure import RunFailed
    from anabranch.runtime.sinks import discard, foreach, jsonl, stdout
    from anabranch.runtime.sources import files, generate, items, stdin

__version__ = "0.1.0"

_LAZY = {
    "RunFailed": "anabranch.runtime.failure",
    "discard": "anabranch.runtime.sinks",
    "files": "anabranch.runtime.sources",
    "foreach": "anabranch.runtime.sinks",
    "generate": "anabranch.runtime.sources",
    "items": "anabranch.runtime.sources",
    "jsonl": "anabranch.runtime.sinks",
    "run": "anabranch.running",
    "spark": "anabranch",
    "start": "anabranch.running",
    "stdin": "anabranch.runtime.sources",
    "stdout": "anabranch.runtime.sinks",
    "testing": "anabranch",
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
    "Pipeline",
    "PipelineError",
    "Retry",
    "RunFailed",
    "Scale",
    "Step",
    "Stream",
    "__version__",
    "discard",
    "files",
    "filter",
    "flat_map",
    "foreach",
    "generate",
    "items",
    "jsonl",
    "map",
    "run",
    "spark",
    "start",
    "stdin",
    "stdout",
    "testing",
]
