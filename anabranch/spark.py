"""Spark at the ends of a pipeline: `ab.spark.feed(...)`, `ab.spark.collect(...)`.

The names are those of `anabranch.spark_bridge`, which is imported when one is used, so that
pipelines without Spark need neither PySpark nor its start-up time.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from anabranch.runtime.graph import PipelineError

_EXTRA = {"pyspark", "pyarrow", "py4j"}


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    try:
        return getattr(import_module("anabranch.spark_bridge"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        raise PipelineError(
            f"ab.spark.{name} needs the package {error.name!r}, which is not installed: "
            "pip install 'anabranch[spark]'"
        ) from None


def __dir__() -> list[str]:
    return [n for n in dir(import_module("anabranch.spark_bridge")) if not n.startswith("_")]
