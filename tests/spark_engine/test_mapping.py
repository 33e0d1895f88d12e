"""Which operator is done in which section, and in what order tuples are put. Needs no Spark."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.protocol.ids import OperatorName
from anabranch.runtime.processing.marks import NO_MARK
from anabranch.spark_engine.mapping import TIME, mapped
from anabranch.spark_engine.merging import Merger
from anabranch.spark_engine.outbox import Outbox
from anabranch.spark_engine.refusing import refusals
from anabranch.spark_engine.rows import Block, place_of, with_trace, without_trace
from anabranch.spark_engine.state import Commit, JobRecord, StateFolder, check_same


def first(one: Any) -> Any:
    return one[0]


def sections(pipeline: ab.Pipeline) -> dict[str, int]:
    return {name: s.section for name, s in mapped(pipeline.operators).stations.items()}


def test_operators_without_keys_are_one_section_and_keys_begin_a_new_one() -> None:
    pipeline = ab.Pipeline("p")
    words = pipeline.source("lines", ab.items(["a"])).flat_map("split", str.split)
    counts = words.filter("long", len).key_by(str).fold("count", 0, max).map("pair", first)
    counts.sink("out", ab.discard())
    words.sink("words", ab.discard())
    together = dict.fromkeys(["lines", "split", "long", "words"], 0)
    assert sections(pipeline) == together | dict.fromkeys(["count", "pair", "out"], 1)


def test_event_time_is_read_by_one_task_where_windows_are_behind_it() -> None:
    pipeline = ab.Pipeline("p")
    timed = pipeline.source("lines", ab.items([(1, 2)])).map("map", first).event_time(first)
    timed.key_by(first).window(ab.tumbling(5)).aggregate("count", ab.tally()).sink(
        "out", ab.discard()
    )
    plan = mapped(pipeline.operators)
    time = plan.stations["map" + TIME]
    assert (time.section, time.alone, time.together) == (1, True, True)
    assert plan.stations["count"].section == 2
    assert plan.marked == {("map" + TIME, "count")}
    assert time.traced
    assert not plan.stations["map"].traced


def test_event_time_that_nobody_asks_for_needs_no_section() -> None:
    pipeline = ab.Pipeline("p")
    timed = pipeline.source("lines", ab.items([(1, 2)])).event_time(first)
    timed.key_by(first).fold("count", 0, max).sink("out", ab.discard())
    assert sections(pipeline) == {"lines": 0, "lines" + TIME: 0, "count": 1, "out": 1}


def test_places_of_tuples_are_known_only_where_ways_join_before_keys() -> None:
    pipeline = ab.Pipeline("p")
    lines = pipeline.source("lines", ab.items(["a"]))
    one, two = lines.map("one", str), lines.map("two", str)
    one.merge(two).map("both", str).key_by(str).fold("count", 0, max).sink("out", ab.discard())
    lines.map("alone", str).key_by(str).fold("single", 0, max).sink("o2", ab.discard())
    stations = mapped(pipeline.operators).stations
    traced = {name for name, station in stations.items() if station.traced}
    assert traced == {"lines", "one", "two", "both"}


# -- order ---------------------------------------------------------------------------------------


def put_in_order(batches: list[tuple[int, Block]]) -> list[Any]:
    """As a task does: batches come by the mark and place of their first tuples."""
    merger, found = Merger(), []
    for way, block in sorted(batches, key=lambda b: (b[1].mark_at(0), b[1].place_at(0), b[0])):
        first_key = block.mark_at(0), block.place_at(0)
        runs = [*merger.push(way, block, first_key)]
        found += [(r.way, one) for r in runs for one in r.block.tuples[r.start : r.end]]
    return found + [(r.way, one) for r in merger.rest() for one in r.block.tuples[r.start : r.end]]


@pytest.mark.parametrize("seed", range(20))
def test_tuples_of_several_ways_come_by_mark_and_place_and_none_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    batches: list[tuple[int, Block]] = []
    for way in range(3):
        keys = sorted((float(rng.randrange(6)), rng.randrange(50)) for _ in range(30))
        while keys:
            n = rng.randrange(1, 8)
            now, keys = keys[:n], keys[n:]
            marks, places = [mark for mark, _ in now], [place for _, place in now]
            batches.append((way, Block([*now], marks, places)))
    found = put_in_order(batches)
    assert len(found) == 90
    assert [one for _, one in found] == sorted(one for _, one in found)


def test_a_batch_whose_marks_go_back_keeps_its_own_order() -> None:
    other = Block(["a", "d"], [1.0, 7.0], 0)
    results = Block(["b", "c", "e"], [6.0, 2.0, 8.0], 0)
    found = [one for _, one in put_in_order([(0, results), (1, other)])]
    assert found == ["a", "b", "c", "d", "e"]


def test_batches_bear_marks_and_places() -> None:
    for marks, places in ((None, None), ([1.0, 1.0], [3, 4]), ([1.0, 2.0], None)):
        data, *found = without_trace(with_trace(b"tuples", marks, places), 2)
        assert (bytes(data), *found) == (b"tuples", marks, places)


def outbox(pipeline: ab.Pipeline, receiver: str, buried: list[Any]) -> Outbox:
    plan = mapped(pipeline.operators)
    station = plan.stations[receiver]
    (sender,) = station.inputs
    operator = pipeline.operators[OperatorName(receiver)]
    edge = operator.edges[OperatorName(sender)]
    return Outbox(
        plan.stations[sender], station, edge=edge, groups=256, buckets=2, lane=0, bury=buried.extend
    )


def test_no_batch_spans_two_splits_since_others_read_those_between() -> None:
    pipeline = ab.Pipeline("p")
    lines = pipeline.source("lines", ab.items(["a"]))
    lines.key_by(str).fold("count", 0, max).sink("out", ab.discard())
    box = outbox(pipeline, "count", [])
    rows = box.put(Block(["a"], None, place_of(0, 0)))
    rows += box.put(Block(["a"], None, place_of(0, 0, 1)))
    rows += box.put(Block(["a"], None, place_of(0, 2)))
    rows += box.flush()
    assert [(row.tuples, row.place) for row in rows] == [(2, 0), (1, place_of(0, 2))]


def test_tuples_without_a_key_are_buried_and_the_others_keep_their_marks() -> None:
    pipeline = ab.Pipeline("p")
    lines = pipeline.source("lines", ab.items([[1]]))
    lines.key_by(first).fold("count", 0, max).sink("out", ab.discard())
    buried: list[Any] = []
    box = outbox(pipeline, "count", buried)
    block = Block([[1], [], [1]], [1.0, 2.0, 3.0], 0)
    (row,) = [*box.put(block), *box.flush()]
    assert [letter.tuple for letter in buried] == [[]]
    assert without_trace(row.data, 2)[1] == [1.0, 3.0]
    assert row.mark == 1.0
    assert row.mark > NO_MARK


# -- a stream that is there ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "another version of Anabranch"),
        ({"groups": 128}, "this one is another"),
        ({"stations": ["lines", "out"]}, "this one is another"),
    ],
)
def test_a_state_that_cannot_be_gone_on_with_is_refused(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    folder = StateFolder(tmp_path)
    folder.begin(JobRecord(1, "p", ["lines", "count", "out"], 256, 2, 0.0, "tag"), {}, {}, {})
    check_same(folder.job(), folder.job(), tmp_path)
    with pytest.raises(ab.PipelineError, match=said):
        check_same(folder.job(), replace(folder.job(), **change), tmp_path)


def test_the_last_commit_is_the_one_that_counts(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.begin(JobRecord(1, "p", ["lines"], 256, 2, 0.0, "tag"), {"lines": [{"n": 1}]}, {}, {})
    assert folder.last() == Commit()
    for batch in range(12):
        Path(folder.kept(batch)).mkdir(parents=True)
        folder.commit(Commit(batch, {"a": batch}, {"lines": batch}, ended=batch == 11))
    assert folder.last() == Commit(11, {"a": 11}, {"lines": 11}, ended=True)
    assert folder.ended
    assert folder.splits() == {"lines": [{"n": 1}]}
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["11"]


# -- what cannot be done -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (ab.stdin(), "write it to a file and use ab.files"),
        (ab.spark.feed("lines"), r"inputs=\{'in': frame\}"),
        (ab.generate(str, duration_s=1.0), "give it a count or a rate"),
        (ab.generate(str, rate=1.0), "its input has no end"),
    ],
)
def test_a_source_that_spark_cannot_have_is_refused_with_what_to_do(source: Any, said: str) -> None:
    pipeline = ab.Pipeline("p")
    pipeline.source("in", source).sink("out", ab.discard())
    (found,) = refusals(pipeline, bounded=True)
    assert found.startswith("operator 'in': ")
    assert re.search(said, found)


def test_what_is_given_as_a_frame_is_not_refused() -> None:
    pipeline = ab.Pipeline("p")
    pipeline.source("in", ab.spark.feed("lines")).sink("out", ab.discard())
    assert refusals(pipeline, {"in"}, bounded=True) == []
