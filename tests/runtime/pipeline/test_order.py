"""Pipelines that would lose an order on which their results depend are refused."""

from __future__ import annotations

from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.pipeline import order
from anabranch.runtime.pipeline.graph import Stream
from anabranch.runtime.policies.script import ScriptError, parse_script
from anabranch.runtime.values.checks import PipelineError

MANY = ab.Scale(max_instances=4)


def key_of(one: Any) -> Any:
    return one[0]


def time_of(one: Any) -> float:
    return float(one[1])


def lines(**options: Any) -> Stream:
    return ab.Pipeline("p").source("lines", ab.items([]), **options)


def timed(stream: Stream, **options: Any) -> ab.Pipeline:
    windows = stream.event_time(time_of, **options).key_by(key_of).window(ab.tumbling(10))
    windows.aggregate("sum", ab.tally()).sink("out", ab.discard())
    return stream.pipeline


def counted(stream: Stream, **options: Any) -> ab.Pipeline:
    windows = stream.key_by(key_of, **options).window(ab.count(10))
    windows.aggregate("fit", ab.tally()).sink("out", ab.discard())
    return stream.pipeline


def test_event_time_behind_several_instances_is_refused_without_a_bound_on_disorder() -> None:
    with pytest.raises(PipelineError, match="'split' may have 4 instances, but event time is read"):
        timed(lines().map("split", str.split, scale=MANY)).validate()
    timed(lines().map("split", str.split)).validate()


def test_operators_between_event_time_and_windows_may_scale() -> None:
    stream = lines().map("read", str.split).event_time(time_of).map("work", tuple, scale=MANY)
    windows = stream.key_by(key_of).window(ab.tumbling(10), time=time_of)
    windows.aggregate("sum", ab.tally(), scale=MANY).sink("out", ab.discard())
    stream.pipeline.validate()
    assert order.warnings(stream.pipeline.operators) == []


def test_event_time_that_nobody_asks_for_may_be_read_anywhere() -> None:
    stream = lines().map("split", str.split, scale=MANY).event_time(time_of)
    stream.sink("out", ab.discard())
    stream.pipeline.validate()


def test_a_bound_on_disorder_is_the_users_word_and_a_warning() -> None:
    pipeline = timed(lines().map("split", str.split, scale=MANY), disorder_s=60)
    pipeline.validate()
    (warning,) = order.warnings(pipeline.operators)
    assert "disorder_s=60" in warning


def test_windows_by_count_behind_several_instances_are_refused() -> None:
    with pytest.raises(PipelineError, match=r"'split' may have 4 .* 'fit' \(aggregate count"):
        counted(lines().map("split", str.split, scale=MANY)).validate()
    counted(lines().map("split", str.split)).validate()


def test_operators_by_the_same_key_keep_the_order_and_may_scale() -> None:
    def by_key(*, ordered: bool) -> ab.Pipeline:
        keyed = lines().key_by(key_of, ordered=ordered)
        return counted(keyed.process("read", lambda k, s, one: [one], state=list, scale=MANY))

    by_key(ordered=True).validate()
    assert order.warnings(by_key(ordered=True).operators) == []
    (warning,) = order.warnings(by_key(ordered=False).operators)
    assert "'read' keeps for each of its keys only" in warning


def test_a_fold_may_say_that_it_needs_the_order() -> None:
    def folded(*, ordered: bool) -> ab.Pipeline:
        stream = lines().map("split", str.split, scale=MANY)
        stream.key_by(key_of, ordered=ordered).fold("last", None, lambda _, one: one).sink(
            "out", ab.discard()
        )
        return stream.pipeline

    folded(ordered=False).validate()
    with pytest.raises(PipelineError, match="depend on the order"):
        folded(ordered=True).validate()


def test_a_script_does_not_duplicate_what_must_stay_alone() -> None:
    pipeline = counted(lines().map("split", str.split))
    bound = order.bound(pipeline.operators)
    names = [*pipeline.operators]
    with pytest.raises(ScriptError, match="'split' must stay at one instance"):
        parse_script("1 split duplicate").decisions(names, bound)
    everybody = parse_script("1 * duplicate").decisions(names, bound)
    assert [one.operator for one in everybody] == ["fit", "out"]


def test_operators_that_a_script_duplicates_mix_the_order() -> None:
    stream = lines().event_time(time_of, disorder_s=1).map("work", tuple)
    windows = stream.key_by(key_of).window(ab.tumbling(10), time=time_of)
    windows.fold("last", None, lambda _, one: one).sink("out", ab.discard())
    operators = stream.pipeline.operators
    assert order.warnings(operators) == []
    names = ["lines", "work"]
    for text, expected in (("1 work duplicate", {"work"}), ("1 * duplicate", {"lines", "work"})):
        duplicated = parse_script(text).duplicated(names)
        assert duplicated == expected
        told = " ".join(order.warnings(operators, duplicated))
        assert "'work' may have 2 instances, which mix it" in told
        reads = "'lines' may have 2 instances, and event time is read at 'lines'"
        assert (reads in told) == ("lines" in duplicated)
    assert parse_script("1 * duplicate; 2 work leave").duplicated(names, {"work"}) == {"lines"}
    assert parse_script("1 * leave").duplicated(names) == set()


def test_windows_that_end_with_the_stream_only_are_a_warning() -> None:
    stream = ab.Pipeline("p").source("rows", ab.generate(lambda i: (i, i)))
    windows = stream.key_by(key_of).window(ab.tumbling(60), time=time_of)
    windows.aggregate("sum", ab.tally()).sink("out", ab.discard())
    (warning,) = order.warnings(stream.pipeline.operators)
    assert "call .event_time(fn, ...)" in warning
    assert "'rows', which do not end by themselves" in warning


def sessions(*, scale: ab.Scale | None, ordered: bool | None = None) -> list[str]:
    """The warnings of sessions behind an operator; `ordered`: behind one that works by key."""
    stream = ab.Pipeline("p").source("rows", ab.items([])).event_time(time_of)
    if ordered is None:
        stream = stream.map("read", list, scale=scale)
    else:
        keyed = stream.key_by(key_of, ordered=ordered)
        stream = keyed.process("read", lambda k, s, one: [one], state=list, scale=scale)
    windows = stream.key_by(key_of).window(ab.session(5), time=time_of, lateness_s=10)
    windows.aggregate("sum", ab.tally(), scale=MANY).sink("out", ab.discard())
    return order.warnings(stream.pipeline.operators)


def test_sessions_of_tuples_whose_order_is_mixed_are_a_warning() -> None:
    for ordered in (None, False):
        (warning,) = sessions(scale=MANY, ordered=ordered)
        assert "late by more than lateness_s" in warning
        assert f"'read' may have {MANY.max_instances} instances" in warning


def test_sessions_are_no_warning_where_each_key_keeps_its_order() -> None:
    assert sessions(scale=None) == []
    assert sessions(scale=MANY, ordered=True) == []
