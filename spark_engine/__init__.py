"""A whole pipeline as a Spark job: `ab.spark.run(pipeline, session)`.

Importing this imports neither PySpark nor PyArrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.spark_engine.ends import source, table
    from anabranch.spark_engine.failing import JobFailed
    from anabranch.spark_engine.running import run

__all__ = ["JobFailed", "run", "source", "table"]

_WHERE = {"JobFailed": "failing", "run": "running", "source": "ends", "table": "ends"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
