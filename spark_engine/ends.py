"""Sources and sinks that only a Spark job has: tables, DataFrames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, overload

from anabranch.runtime.columns.schemas import SchemaError, check_schema
from anabranch.runtime.plan.ends import Reader, RunContext, Sink, Source, Split, Writer
from anabranch.runtime.values.checks import PipelineError

_ONLY_THERE = (
    "is there only on Spark: run the pipeline with `anabranch run FILE.py --on spark` or "
    "ab.spark.run(pipeline, session)"
)


@dataclass(frozen=True)
class SparkRows(Source):
    """The rows of a table or a DataFrame: text of one column as `str`, several columns as dicts."""

    name: str
    table: str = ""
    frame: Any = field(default=None, repr=False, compare=False)
    scalable = False

    @property
    def bounded(self) -> bool:  # type: ignore[override]  # an attribute there
        return self.frame is None or not self.frame.isStreaming

    def rows(self, session: Any) -> Any:
        """As a DataFrame of the session. Raises `PipelineError` if there is no such table."""
        if self.frame is not None:
            return self.frame
        try:
            rows = session.table(self.table)
            _ = rows.schema  # a session of Spark Connect looks for it only now
        except Exception as error:
            why = str(error).partition("\n")[0]  # it is told while there is a session
            raise PipelineError(f"{self.name} cannot be read: {why}") from None
        return rows

    def prepare(self) -> None:
        raise PipelineError(f"{self.name} {_ONLY_THERE}")

    def splits(self) -> Iterator[Split]:
        raise PipelineError(f"{self.name} {_ONLY_THERE}")

    def open(self, split: Split, context: RunContext) -> Reader:
        raise PipelineError(f"{self.name} {_ONLY_THERE}")


@dataclass(frozen=True)
class SparkTable(Sink):
    """A table of Spark's catalog with `schema`, a DDL text. Its rows are replaced, or with `append`
    more are added."""

    name: str
    schema: str
    append: bool = False
    exact = True

    def __post_init__(self) -> None:
        try:
            check_schema(self.schema, sparks=True)
        except SchemaError as error:
            raise PipelineError(f"table {self.name!r}: {error}") from None

    def prepare(self) -> None:
        raise PipelineError(f"table {self.name!r} {_ONLY_THERE}")

    def open(self, context: RunContext) -> Writer:
        raise PipelineError(f"table {self.name!r} {_ONLY_THERE}")


@overload
def table(name: str) -> SparkRows: ...
@overload
def table(name: str, schema: str, *, append: bool = False) -> SparkTable: ...
def table(name: str, schema: str | None = None, *, append: bool = False) -> SparkRows | SparkTable:
    """A table of Spark's catalog. Without a `schema` a source, whose tuples are its rows: dicts by
    column name, or the bare value of a single column. With one, a DDL text such as "word string, n
    long", a sink; a tuple that does not fit becomes a dead letter. What is in the table is replaced
    unless `append`. Raises `PipelineError` for a schema that cannot be understood."""
    if schema is None:
        return SparkRows(f"table {name!r}", name)
    return SparkTable(name, schema, append)


def source(frame: Any) -> SparkRows:
    """The rows of a DataFrame, also of a streaming one, such as of Kafka: dicts by column name, or
    the bare value of a single column."""
    if not hasattr(frame, "isStreaming"):
        raise PipelineError(f"source: expected a DataFrame of Spark, got {frame!r}")
    return SparkRows("a DataFrame", frame=frame)
