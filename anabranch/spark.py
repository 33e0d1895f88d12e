"""Spark at the ends of a pipeline: `ab.spark.feed(...)`, `ab.spark.collect(...)`.

The names are those of `anabranch.spark_bridge`, which is imported when one is used, so that
pipelines without Spark need neither PySpark nor its start-up time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anabranch.runtime.graph import PipelineError

if TYPE_CHECKING:
    from anabranch.spark_bridge import SparkUnavailable as SparkUnavailable
    from anabranch.spark_bridge import collect as collect
    from anabranch.spark_bridge import feed as feed
    from anabranch.spark_bridge import finish as finish
    from anabranch.spark_bridge import read as read
    from anabranch.spark_bridge import release as release
    from anabranch.spark_bridge import session as session
    from anabranch.spark_bridge import wait as wait
    from anabranch.spark_bridge import write as write

_EXTRA = {"py4j", "pyarrow", "pyspark"}

if not TYPE_CHECKING:  # so that type checkers know which names there are

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
    return sorted(import_module("anabranch.spark_bridge").__all__)
