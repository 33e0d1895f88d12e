"""What of a pipeline a Spark job cannot do, said before anything starts, and what to do instead."""

from __future__ import annotations

from collections.abc import Container, Iterator

from anabranch.runtime.mqtt.sink import MqttSink
from anabranch.runtime.mqtt.source import MqttSource
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.sinks.discard import DiscardSink
from anabranch.runtime.sinks.foreach import Foreach
from anabranch.runtime.sinks.jsonl import JsonLines
from anabranch.runtime.sinks.parquet import Parquet
from anabranch.runtime.sinks.stdout import Stdout
from anabranch.runtime.sources.files import Files
from anabranch.runtime.sources.generate import Generate
from anabranch.runtime.sources.items import Items
from anabranch.runtime.sources.stdin import Stdin
from anabranch.spark_bridge.sink import SparkCollect
from anabranch.spark_bridge.source import SparkFeed
from anabranch.spark_engine.ends import SparkRows, SparkTable

SOURCES = (Files, Items, Generate, SparkRows)
SINKS = (JsonLines, Parquet, Foreach, Stdout, DiscardSink, SparkTable, SparkCollect)


def refusals(pipeline: Pipeline, given: Container[str] = (), *, bounded: bool) -> list[str]:
    """A sentence for each thing that cannot be done, with the operator and what to do instead.
    `given`: sources whose tuples come from a DataFrame in their place. `bounded`: as one batch."""
    found = [*_of_ends(pipeline, given)]
    return [*found, *(_unbounded(pipeline, given) if bounded else _tables(pipeline))]


def over_connect() -> str:
    return (
        "as a stream, a session of Spark Connect (sc://…) has each batch done on its server, which "
        "has neither this host's files nor its state folder; use --as batch, or a session of the "
        "cluster itself, as with --on spark=spark://host:7077"
    )


def unread(pipeline: Pipeline, *, catalog_ends: bool) -> Iterator[str]:
    """Results that would be gone with a session which ends with the run: DataFrames of sinks, and
    tables, if its catalog ends, too."""
    for operator in pipeline.operators.values():
        if isinstance(operator.sink, SparkCollect):
            yield (
                f"operator {operator.name!r}: what it collects would be gone when the command "
                "ends; use ab.parquet or ab.jsonl, or ab.spark.run(pipeline, session) in a program"
            )
        elif isinstance(operator.sink, SparkTable) and catalog_ends:
            yield (
                f"operator {operator.name!r}: the tables of a Spark that the command starts on "
                "this host would be gone when it ends; use ab.parquet, a cluster with a catalog, "
                "as with --on spark=spark://host:7077, or ab.spark.run(pipeline, session)"
            )


def is_bounded(pipeline: Pipeline, given: Container[str] = ()) -> bool:
    sources = (o for o in pipeline.operators.values() if o.source is not None)
    return all(o.name in given or (o.source is not None and o.source.bounded) for o in sources)


def _of_ends(pipeline: Pipeline, given: Container[str]) -> Iterator[str]:
    for operator in pipeline.operators.values():
        why = ""
        if operator.source is not None and operator.name not in given:
            why = _why_no_source(operator)
        elif isinstance(operator.sink, MqttSink):
            why = (
                "ab.mqtt waits until its broker has confirmed a message, which a task of Spark "
                "that is done again could not tell; write a table, and publish that with a "
                "pipeline of its own"
            )
        elif operator.sink is not None and not isinstance(operator.sink, SINKS):
            why = (
                f"{type(operator.sink).__name__} is a sink of a class of your own, of which Spark "
                "knows nothing; use ab.foreach, ab.jsonl, ab.parquet or ab.spark.table"
            )
        if why:
            yield f"operator {operator.name!r}: {why}"


def _why_no_source(operator: Operator) -> str:
    source = operator.source
    if isinstance(source, Stdin):
        return (
            "standard input can be read once and by one process, and a job of Spark reads its "
            "input in many, and again when one fails; write it to a file and use ab.files"
        )
    if isinstance(source, MqttSource):
        return (
            "ab.mqtt acknowledges a message when it is in the journal of its instance, and on "
            "Spark there are none; run this part without --on, and give Spark what it writes with "
            "ab.parquet or ab.jsonl"
        )
    if isinstance(source, SparkFeed):
        return (
            "ab.spark.feed waits for what a Spark query feeds; on Spark itself give the DataFrame: "
            f"ab.spark.run(pipeline, session, inputs={{{operator.name!r}: frame}}), or use "
            "ab.spark.source(frame) or ab.spark.table(name)"
        )
    if isinstance(source, Generate) and source.count is None and source.rate is None:
        return (
            "ab.generate without a count and a rate makes as many tuples as there is time for, "
            "which is another number each time; give it a count or a rate"
        )
    if not isinstance(source, SOURCES):
        return (
            f"{type(source).__name__} is a source of a class of your own, of which Spark knows "
            "nothing; use ab.files, ab.generate, ab.spark.table or ab.spark.source"
        )
    return ""


def _unbounded(pipeline: Pipeline, given: Container[str]) -> Iterator[str]:
    for operator in pipeline.operators.values():
        source = operator.source
        if operator.name in given or not isinstance(source, SOURCES) or _why_no_source(operator):
            continue
        if not source.bounded:
            yield (
                f"operator {operator.name!r}: its input has no end, and a batch has; use "
                "--as stream, or bound it, as ab.generate with count=..."
            )


def _tables(pipeline: Pipeline) -> Iterator[str]:
    for operator in pipeline.operators.values():
        if isinstance(operator.sink, SparkTable | SparkCollect):
            yield (
                f"operator {operator.name!r}: a stream would add rows to a table twice when Spark "
                "does a batch again; use ab.parquet, or --as batch"
            )
