"""The same pipelines on Spark: `python -m benches.spark_ours FILE chain|keyed pipeline|sql`.

`pipeline`: those that `chain_ours` and `keyed_ours` run on processes. `sql`: what a user of Spark
alone would write. Prints {"results", "seconds", "balanced"}; seconds from the moment when the
session is ready until the job is done.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import anabranch as ab
from anabranch.spark_bridge.sessions import session_for
from benches.chain_functions import long_enough, upper, with_length
from benches.keyed_functions import itself, one_more

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"


def pipeline_of(file: str, shape: str) -> ab.Pipeline:
    pipeline = ab.Pipeline(shape, dead_letters=f"{shape}.dead.jsonl")
    lines = pipeline.source("lines", ab.files(file))
    if shape == "keyed":
        words = lines.flat_map("split", str.split)
        results = words.key_by(itself).fold("count", 0, one_more)
    else:
        results = lines.fuse("chain", ab.map(upper), ab.filter(long_enough), ab.map(with_length))
    results.sink("out", ab.discard())
    return pipeline


def by_sql(file: str, shape: str, spark: SparkSession) -> int:
    """How many results there are; every column is computed, since its lengths are summed."""
    from pyspark.sql import functions as f

    lines = spark.read.text(file)
    if shape == "keyed":
        words = lines.select(f.explode(f.split("value", " ")).alias("word"))
        counts = words.groupBy("word").count()
        row = counts.agg(f.sum("count"), f.sum(f.length("word"))).first()
    else:
        kept = lines.select(f.upper("value").alias("line")).where(f.length("line") > 20)
        results = kept.select(f.concat_ws(" ", f.length("line"), "line").alias("result"))
        row = results.agg(f.count("result"), f.sum(f.length("result"))).first()
    assert row is not None
    return int(row[0])


def main(file: str, shape: str, engine: str) -> None:
    with session_for(MASTER) as spark:
        spark.range(1).count()  # the first job of a session starts what all others use
        began_s = time.monotonic()
        if engine == "sql":
            results, balanced = by_sql(file, shape, spark), True
        else:
            report = ab.spark.run(pipeline_of(file, shape), spark, mode="batch").report
            results, balanced = report.count("delivered"), report.ok
        seconds = time.monotonic() - began_s
    print(json.dumps({"results": results, "seconds": seconds, "balanced": balanced}))


if __name__ == "__main__":
    main(*sys.argv[1:])
