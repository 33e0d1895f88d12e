"""The demonstration: Spark feeds a pipeline of processes that scales itself, and collects from it.

    scripts/demo                    the documentation that every Python carries
    scripts/demo my.txt more.gz     text of your own

It takes text through one day, compressed to a minute, with its morning and evening
peaks, and tells what happens. At the end it counts: what Spark collected must be what a plain
loop in one process computes. Exit code 0 if so and the ledger balances, 1 if not, 2 if it could
not begin.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo_telling import Watch, first_tuple_s, print_ledger, say

import anabranch as ab
from anabranch.picture import PictureUnavailable, draw
from anabranch.runtime.plan.ends import Reader, RunContext, Split
from anabranch.runtime.reporting.report import Report
from anabranch.spark_bridge.source import SparkFeed
from anabranch.workloads.afinn import LexiconMissing, read_lexicon
from anabranch.workloads.corpus import Corpus, documentation, lines_of, stage
from anabranch.workloads.curves import Daily
from anabranch.workloads.paced import Pace, PacedReader
from anabranch.workloads.sentiment import clean, oracle, score, split
from anabranch.workloads.slow import Slowed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from anabranch.runtime.live.agent.launch import Run

ROOT = Path(__file__).resolve().parent.parent
LINES_MIN = 200_000
DAY_S = 65.0
RATE_MAX = 6_000
"""Lines or sentences per second at the evening's peak; more of them make a longer day."""
SAMPLE_LINES = 5_000
QUICK_START = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Java compiles in haste: right for a minute, where its best code would not pay any more."""
SCHEMA = "sentence string, words int, score int"


def main(arguments: Sequence[str]) -> int:
    args = parsed(arguments)
    out: Path = args.out
    try:
        read_lexicon()
        corpus = laid_out(args.files, out)
    except (LexiconMissing, OSError, ValueError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    curve = day_for(corpus)
    say(f"One day in {curve.day_s:.0f} s: at most {curve.peak:,.0f} lines/s, in the evening.")
    try:
        return demonstrate(corpus, curve, out)
    except ab.spark.SparkUnavailable as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    except (ab.RunFailed, QueryFailed) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; everything that it had started has ended", file=sys.stderr)
        return 130


def demonstrate(corpus: Corpus, curve: Daily, out: Path) -> int:
    # The pipeline first: its processes are forks of this one, which has a single thread still.
    pipeline = pipeline_for(corpus, curve, out)
    with ab.start(pipeline, report=out / "report.json", warm=3) as run:
        watch = Watch(run, curve)
        say(f"The pipeline is up, a process each: {' -> '.join(pipeline.operators)}.")
        say("Spark starts, which takes some seconds ...")
        # PySpark logs a screenful when Ctrl-C comes amid a call; the last line here says it all.
        logging.getLogger().addHandler(logging.NullHandler())
        with ab.spark.session("anabranch-demo", conf=QUICK_START) as spark:
            say(f"Spark {spark.version} is up.")
            report = through_the_day(run, watch, spark, corpus, out)
            say("The last tuple is through, and Spark has collected everything.")
            found = counted_by_spark(spark, out)
    return judged(report, watch, corpus, curve, found, out)


# --- the pipeline -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PacedFeed(SparkFeed):
    """`ab.spark.feed` with a sluice: lines wait where Spark put them until they are due."""

    pace: Pace
    scalable = False

    def open(  # type: ignore[override]  # a Reader, as every source's
        self, split: Split, context: RunContext
    ) -> Reader:
        return PacedReader(super().open(split, context), self.pace)


def pipeline_for(corpus: Corpus, curve: Daily, out: Path) -> ab.Pipeline:
    """Lines from Spark to the mood of each sentence, to Spark again.

    The operators sleep as if they ran on small machines, of which the evening needs three or
    four each; where the machine has two cores only, two busy processes would be all otherwise.
    """
    scale = ab.Scale(max_instances=6, period_s=0.5, cooldown_s=1.5)
    pipeline = ab.Pipeline("moods", dead_letters=out / "dead-letters.jsonl")
    pieces, sentences = pieces_per_line(corpus)
    feed = PacedFeed("lines", state=out / "spark", pace=Pace(curve))
    (
        pipeline.source("lines", feed)
        .flat_map("split", Slowed(split, curve.peak / 2.5), scale=scale)
        .flat_map("clean", Slowed(clean, curve.peak * pieces / 3.0), scale=scale)
        .map("score", Slowed(score, curve.peak * sentences / 3.5), scale=scale)
        .sink("moods", ab.spark.collect("moods", SCHEMA, state=out / "spark"))
    )
    return pipeline


def pieces_per_line(corpus: Corpus) -> tuple[float, float]:
    """What `split` makes of a line, and how many of these `clean` keeps; from a sample."""
    sample = list(corpus.read(every=max(1, corpus.lines // SAMPLE_LINES)))
    pieces = [piece for line in sample for piece in split(line)]
    sentences = sum(len(clean(piece)) for piece in pieces)
    lines = max(1, len(sample))
    return max(0.1, len(pieces) / lines), max(0.1, sentences / lines)


def day_for(corpus: Corpus) -> Daily:
    """A day that offers exactly the lines there are."""

    def day(peak: float, day_s: float) -> Daily:
        return Daily(peak, day_s, midday=0.3, night=0.08)

    mean = day(1.0, 1.0).due(1.0)
    busiest = corpus.lines * max(1.0, *pieces_per_line(corpus))
    day_s = max(DAY_S, busiest / mean / RATE_MAX)
    return day(corpus.lines / mean / day_s, day_s)


# --- Spark at both ends -----------------------------------------------------------------------


def through_the_day(
    run: Run, watch: Watch, spark: SparkSession, corpus: Corpus, out: Path
) -> Report:
    """Feed, watch and collect until the run has ended; its report."""
    feeding, collecting = feed(spark, corpus, out), collect(spark, out)
    say(
        f"Spark reads {corpus.parts} files in micro-batches and hands their lines over; the source "
        "lets them in as the day goes.\nBelow: + an instance has joined, - one has left."
    )
    fed = False
    while run.snapshot().phase not in ("closing", "ended"):
        watch.look()
        check(collecting)
        if not fed and not feeding.isActive:
            check(feeding)
            ab.spark.finish(out / "spark", "lines")
            fed = True
        time.sleep(0.25)
    collecting.processAllAvailable()
    collecting.stop()
    ab.spark.release(out / "spark")
    return run.wait()


def feed(spark: SparkSession, corpus: Corpus, out: Path) -> StreamingQuery:
    lines = spark.readStream.option("maxFilesPerTrigger", 4).text(str(corpus.folder))
    return (
        lines.writeStream.format("anabranch")
        .option("run", str(out / "spark"))
        .option("stream", "lines")
        .option("checkpointLocation", str(out / "feed_checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def collect(spark: SparkSession, out: Path) -> StreamingQuery:
    moods = spark.readStream.format("anabranch").option("run", str(out / "spark"))
    return (
        moods.option("stream", "moods")
        .load()
        .writeStream.format("parquet")
        .option("path", str(out / "parquet"))
        .option("checkpointLocation", str(out / "collect_checkpoint"))
        .trigger(processingTime="5 seconds")
        .start()
    )


class QueryFailed(RuntimeError):
    """Spark gave up feeding or collecting."""


def check(query: StreamingQuery) -> None:
    error = query.exception()
    if error is not None:
        raise QueryFailed(f"a query of Spark failed: {error}")


def counted_by_spark(spark: SparkSession, out: Path) -> Counter[tuple[Any, ...]]:
    """How often each result is in the Parquet files; prints the moods that Spark finds there."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    moods = spark.read.parquet(str(out / "parquet"))
    counts = moods.groupBy("sentence", "words", "score").count().cache()
    mood = F.when(F.col("score") > 0, "good").when(F.col("score") < 0, "bad").otherwise("neutral")
    print("\n  Spark's count by mood, from Parquet:")
    for row in counts.groupBy(mood.alias("mood")).agg(F.sum("count").alias("n")).collect():
        print(f"    {row.mood:8} {row.n:>9,} sentences")
    best = counts.orderBy(F.desc("score"), "sentence").first()
    if best is not None:
        print(f"    the best one ({best.score:+d}): {best.sentence[:60]!r}\n")
    return Counter({(r.sentence, r.words, r.score): r["count"] for r in counts.collect()})


# --- the end -------------------------------------------------------------------------------------


def judged(
    report: Report,
    watch: Watch,
    corpus: Corpus,
    curve: Daily,
    found: Counter[tuple[Any, ...]],
    out: Path,
) -> int:
    print_ledger(report)
    began = time.monotonic()
    expected = Counter((m["sentence"], m["words"], m["score"]) for m in oracle(corpus.read()))
    took_s = time.monotonic() - began
    faults = list(report.ledger.faults)
    if found == expected:
        say(
            f"Equal: the {expected.total():,} results that Spark collected ({len(expected):,} "
            f"different ones) are those of a plain loop, which took {took_s:.1f} s."
        )
    else:
        missing, extra = (expected - found).total(), (found - expected).total()
        faults.append(f"of {expected.total():,} results {missing:,} lack and {extra:,} are extra")
    came, dead = report.ledger.tuples_in, report.ledger.dead_letters
    if dead:
        say(f"{dead:,} broken lines are in {out / 'dead-letters.jsonl'}")
    if (came, dead) != (corpus.lines - corpus.broken, corpus.broken):
        faults.append(
            f"{came:,} lines came in and {dead:,} were dead letters, "
            f"of {corpus.lines:,} with {corpus.broken:,} that are no UTF-8"
        )
    if left := watch.left_over():
        faults.append(f"processes that are still there: {left}")
    else:
        say(f"None of the run's {len(watch.pids)} processes is left.")
    try:
        begin_s = first_tuple_s(report)
        picture = draw(report, out / "day.png", planned=curve, begin_s=begin_s)
        say(f"The picture of the day: {picture}")
    except PictureUnavailable as error:
        say(f"No picture: {error}")
    for fault in faults:
        print(f"demo: NOT RIGHT: {fault}", file=sys.stderr)
    return 1 if faults or not report.ok else 0


# --- the beginning ----------------------------------------------------------------------------


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo", description="Spark feeds a pipeline that scales itself."
    )
    parser.add_argument("files", nargs="*", type=Path, help="text files, plain or .gz")
    parser.add_argument("--out", type=Path, default=ROOT / ".build" / "demo", help="folder to use")
    return parser.parse_args(arguments)


def laid_out(files: Sequence[Path], out: Path) -> Corpus:
    """The text, ready for Spark to read; raises `OSError` or `ValueError` if there is none."""
    for name in ("spark", "parquet", "feed_checkpoint", "collect_checkpoint"):
        shutil.rmtree(out / name, ignore_errors=True)
    lines = (lambda: lines_of(files)) if files else documentation
    corpus = stage(lines, out / "texts", lines_min=LINES_MIN)
    what = ", ".join(f.name for f in files) or "Python's own documentation (pydoc_data.topics)"
    times = f", {corpus.repeats} times over" if corpus.repeats > 1 else ""
    say(f"Text: {what}{times}: {corpus.lines:,} lines in {corpus.folder}")
    return corpus


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
