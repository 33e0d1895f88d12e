"""A job as a DataFrame: the only place here where Spark's API is used to transform rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.runtime.plan.ends import Split
from anabranch.runtime.processing.marks import NO_MARK
from anabranch.spark_engine.job import Job
from anabranch.spark_engine.mapping import Plan, buckets_of
from anabranch.spark_engine.rows import COLUMNS, NAMES, ORDER, Kind, Row, place_of
from anabranch.spark_engine.tasks import read_rows, run_section, table_of, unpack_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TYPES = [(column.split()[0], column.split()[1]) for column in COLUMNS.split(", ")]


def begins(job: Job) -> list[Row]:
    """Each bucket that keeps state takes part, also if no tuple comes for it."""
    return [
        Row(Kind.BEGIN, station.number, bucket=bucket)
        for station in job.plan.keeping
        for bucket in range(buckets_of(station, job.groups, job.partitions))
    ]


def split_rows(
    plan: Plan, source: str, order: int, splits: Mapping[int, Split], partitions: int
) -> list[Row]:
    """`splits` by their numbers; `order`: of the source among those of the pipeline."""
    station = plan.stations[source]
    return [
        Row(
            Kind.SPLIT,
            station.number,
            place=place_of(order, number),
            bucket=number % partitions,
            data=pickle.dumps(split, 5),
        )
        for number, split in splits.items()
    ]


def frame_of_rows(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_batches([table_of(rows)]), schema=COLUMNS)


def frame_of_table(frame: DataFrame, plan: Plan, source: str, order: int) -> DataFrame:
    number = plan.stations[source].number
    return frame.mapInArrow(partial(read_rows, number, order), COLUMNS)


def frame_of_ticks(ticks: DataFrame) -> DataFrame:
    """A row that counts nothing for each row of a frame."""
    from pyspark.sql.functions import lit

    nothing = {
        "kind": lit(int(Kind.COUNTS)),
        "mark": lit(NO_MARK),
        "data": lit("{}"),
    }
    return ticks.select([nothing.get(name, lit(0)).cast(kind).alias(name) for name, kind in _TYPES])


def carried_out(job: Job, data: bytes, rows: DataFrame, *, ends: bool) -> DataFrame:
    """All sections over these rows, once: what it gives is kept by Spark."""
    from pyspark.sql.functions import col, lit, pmod

    for section in range(job.plan.sections):
        place = pmod(col("bucket"), lit(job.partitions))
        rows = rows.repartitionById(job.partitions, place).sortWithinPartitions(*ORDER)
        rows = rows.mapInArrow(partial(run_section, data, section, ends), COLUMNS)
    return rows.localCheckpoint(eager=True)


def of_kinds(done: DataFrame, *kinds: Kind, without: Sequence[int] = ()) -> DataFrame:
    """`without`: those of sinks with these numbers."""
    from pyspark.sql.functions import col

    found = done.filter(col("kind").isin([int(kind) for kind in kinds]))
    theirs = (col("kind") == int(Kind.OUT)) & col("to").isin([*without])
    return found.filter(~theirs) if without else found


def rows_in(frame: DataFrame) -> Iterator[Row]:
    for row in frame.select(*NAMES).toLocalIterator():
        values: Any = tuple(row)
        yield Row._make(values)._replace(data=bytes(row["data"]))


def table_frame(done: DataFrame, number: int, schema: str) -> DataFrame:
    """The rows of a table that a sink has handed in."""
    from pyspark.sql.functions import col

    rows = of_kinds(done, Kind.OUT).filter(col("to") == number)
    return rows.select("data").mapInArrow(partial(unpack_rows, schema), schema)
