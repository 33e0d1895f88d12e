"""Which operators choose tuples by event time, and from when until when."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.pipeline.spans import check_chosen, seconds_of, span_of, within
from anabranch.runtime.plan.spec import Span
from anabranch.runtime.values.checks import PipelineError


def timed(stream: ab.Stream, name: str) -> ab.Stream:
    return stream.map(name, float).event_time(float)


def choosing(pipeline: ab.Pipeline) -> list[str]:
    """Operators that leave out what is not in a span."""
    span = Span(1.0, 2.0)
    chosen = within(pipeline.operators, span)
    assert chosen.keys() == pipeline.operators.keys()
    return [o.name for o in chosen.values() if o.timing is not None and o.timing.span == span]


def test_the_first_to_read_event_time_choose_and_later_ones_do_not() -> None:
    pipeline = ab.Pipeline("p")
    left = timed(pipeline.source("left", ab.items([])), "left_read")
    right = pipeline.source("right", ab.items([])).event_time(float)
    both = left.merge(timed(right, "right_again"))
    counts = both.key_by(float).window(ab.tumbling(1.0)).fold("count", 0, lambda n, _: n + 1)
    counts.event_time(lambda result: result.end).sink("out", ab.discard())
    check_chosen(pipeline.operators)
    assert sorted(choosing(pipeline)) == ["left_read", "right"]
    assert within(pipeline.operators, None) == pipeline.operators


def test_tuples_that_get_to_a_state_or_a_sink_without_a_time_are_refused() -> None:
    pipeline = ab.Pipeline("p")
    lines = pipeline.source("lines", ab.items([]))
    timed(lines, "read").key_by(float).fold("n", 0, lambda n, _: n + 1).sink("out", ab.discard())
    check_chosen(pipeline.operators)
    lines.map("text", str).sink("raw", ab.discard())
    with pytest.raises(ab.PipelineError, match="'raw' gets tuples of source 'lines' whose event t"):
        check_chosen(pipeline.operators)


@pytest.mark.parametrize(
    ("moment", "iso"),
    [
        ("2026-01-31", "2026-01-31T00:00:00+00:00"),
        ("2026-01-31T12:30", "2026-01-31T12:30:00+00:00"),
        ("2026-01-31T12:30+02:00", "2026-01-31T10:30:00+00:00"),
        ("2026-01-31T12:30:00Z", "2026-01-31T12:30:00+00:00"),
        (datetime(2026, 1, 31), "2026-01-31T00:00:00+00:00"),
        (datetime(2026, 1, 31, tzinfo=timezone(timedelta(hours=-1))), "2026-01-31T01:00:00+00:00"),
        (0, "1970-01-01T00:00:00+00:00"),
    ],
)
def test_a_moment_without_a_zone_is_of_utc(moment: Any, iso: str) -> None:
    assert datetime.fromtimestamp(seconds_of(moment), UTC).isoformat() == iso


def test_a_span_begins_before_it_ends_and_goes_with_no_other_beginning(tmp_path: Path) -> None:
    with pytest.raises(ab.PipelineError, match="from 2026-01-02 00:00:00 UTC to 2026-01-02"):
        span_of("2026-01-02", "2026-01-02")
    with pytest.raises(ab.PipelineError, match="is no date: expected one such as"):
        span_of("31.01.2026", "2026-02-02")
    span: Any = ("2026-01-01", "2026-01-02")
    with pytest.raises(ab.PipelineError, match="backfill needs state"):
        Options(backfill=span)
    with pytest.raises(ab.PipelineError, match="either backfill or begin_from"):
        Options(backfill=span, state=tmp_path, begin_from=tmp_path)
    assert Options(backfill=span, state=tmp_path).until_committed


@pytest.mark.parametrize(
    "moment", [math.nan, math.inf, -math.inf, 1e300, -1e12, None, date(2026, 1, 1), "2026-01-01T25"]
)
def test_what_is_no_moment_is_told_as_one(moment: Any) -> None:
    with pytest.raises(PipelineError, match="is no date: expected one such as 2026-01-31"):
        span_of(moment, "2026-02-02")
    with pytest.raises(PipelineError, match="is no date: expected one such as 2026-01-31"):
        span_of("2026-01-01", moment)
