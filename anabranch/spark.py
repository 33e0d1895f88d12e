"""Spark at the ends of a pipeline: `ab.spark.feed(...)`, `ab.spark.collect(...)`; and a whole
pipeline as a Spark job: `ab.spark.run(pipeline, session)`.

The names are those of `anabranch.spark_bridge` and `anabranch.spark_engine`, which are imported
when one is used, so that pipelines without Spark need neither PySpark nor its start-up time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anabranch.runtime.values.checks import PipelineError

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
    from anabranch.spark_engine import JobFailed as JobFailed
    from anabranch.spark_engine import run as run
    from anabranch.spark_engine import source as source
    from anabranch.spark_engine import table as table

_EXTRA = {"py4j", "pyarrow", "pyspark"}
_BRIDGE = "anabranch.spark_bridge"
_ENGINE = "anabranch.spark_engine"

if not TYPE_CHECKING:  # so that type checkers know which names there are

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        try:
            engine = import_module(_ENGINE)
            return getattr(engine if name in engine.__all__ else import_module(_BRIDGE), name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in _EXTRA:
                raise
            raise PipelineError(
                f"ab.spark.{name} needs the package {error.name!r}, which is not installed: "
                "pip install 'anabranch[spark]'"
            ) from None


def __dir__() -> list[str]:
    return sorted([*import_module(_BRIDGE).__all__, *import_module(_ENGINE).__all__])
