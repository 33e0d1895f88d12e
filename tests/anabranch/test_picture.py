"""The picture of a run, and the lines that it is drawn from."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.panels import spread
from anabranch.picture import PictureUnavailable, draw
from anabranch.runtime.reporting.ledger import Ledger
from anabranch.runtime.reporting.report import Event, OperatorReport, Report, Samples
from anabranch.runtime.values.kinds import EventKind
from anabranch.story import Change, StoryLine, smooth, story_of

needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="extra: plot")

T = [0.0, 0.5, 1.0]


def operator(name: str, kind: str, **samples: Sequence[float | None]) -> OperatorReport:
    lists = [key for key in Samples.__struct_fields__ if key != "rate_to"]
    zeros: dict[str, object] = {key: [0, 0, 0] for key in lists}
    peak = max(n or 0 for n in samples.get("instances", [1]))
    return OperatorReport(
        name=name,
        kind=kind,
        tuples_in=9,
        tuples_out=9,
        dead=0,
        instances_peak=int(peak),
        instances_ever=2,
        joins=1,
        leaves=0,
        messages=8,
        samples=msgspec.convert(zeros | {"t": T} | samples, type=Samples),
    )


def a_report(operators: list[OperatorReport] | None = None) -> Report:
    if operators is None:
        slow = [None, 4.0, 8.0]
        operators = [
            operator("lines", "source", rate_in=[0, 10, 20]),
            operator("more", "source", rate_in=[0, 1, 2]),
            operator("split", "operator", instances=[1, 1, 2], queue=[0, 5, 7], held=[0, 1, 2]),
            operator("out", "sink", rate_in=[0, 9, 21], latency_p50_ms=slow, latency_p99_ms=slow),
            operator("copy", "sink", latency_p50_ms=[None, 6.0, 1.0], latency_p99_ms=slow),
        ]
    joined = Event(t=0.7, operator="split", kind=EventKind.JOINED, instances=2, instance="split.1")
    keeper = Event(t=0.8, operator="split", kind=EventKind.KEEPER, instances=2)
    return Report(
        pipeline="words",
        seconds=1.2,
        ended="completed",
        failure=None,
        failure_detail="",
        started_at="2026-01-01T00:00:00+00:00",
        ledger=Ledger(
            tuples_in=1234,
            tuples_out=1234,
            lost=0,
            duplicated=0,
            dead_letters=0,
            in_flight=0,
            balanced=True,
            channels=3,
            operators=[],
            faults=[],
        ),
        operators=operators,
        events=[joined, keeper],
        events_dropped=0,
        latency_ms={},
        dead_reasons={},
        sample_period_s=0.5,
        seed=1,
    )


def test_load_is_the_sum_of_all_sources_and_sinks() -> None:
    story = story_of(a_report())
    assert story.read == StoryLine(T, [0, 11, 16.5])
    assert story.results == StoryLine(T, [0, 9, 15])


def test_rates_are_smoothed_without_losing_a_tuple() -> None:
    jagged = StoryLine([i / 4 for i in range(41)], [0.0] + [0, 400] * 20)
    smoothed = smooth(jagged, over_s=1.0)
    assert smoothed.y[4:] == [200.0] * 37
    assert smooth(StoryLine([], [])) == StoryLine([], [])
    assert smooth(StoryLine([1.0], [5.0])) == StoryLine([1.0], [0.0])


def test_latency_is_that_of_the_slowest_sink_where_there_is_one() -> None:
    assert story_of(a_report()).p50 == StoryLine([0.5, 1.0], [6, 8])


def test_only_operators_that_may_scale_are_drawn() -> None:
    story = story_of(a_report())
    assert story.operators == ("split",)
    assert story.instances == {"split": StoryLine([0, 0.5, 0.7, 1], [1, 1, 2, 2])}
    assert story.waiting == {"split": StoryLine(T, [0, 6, 9])}
    assert story.changes == (Change(0.7, "split", True, 2),)


def test_instances_are_drawn_up_to_the_end_of_the_stream() -> None:
    report = a_report()
    ended = Event(t=0.9, operator="split", kind=EventKind.ENDED, instances=1, instance="split.0")
    report = msgspec.structs.replace(report, events=[*report.events, ended])
    story = story_of(report)
    assert story.instances == {"split": StoryLine([0, 0.5, 0.7, 0.9], [1, 1, 2, 2])}
    assert story.seconds == 0.9
    stopped = msgspec.structs.replace(report, ended="stopped")
    assert story_of(stopped).seconds == 1.2


def test_a_story_can_begin_later() -> None:
    late = story_of(a_report()).since(0.6)
    assert late.seconds == pytest.approx(0.6)
    assert late.instances["split"].y == [1, 2, 2]
    assert late.instances["split"].t == pytest.approx([0, 0.1, 0.4])
    assert late.changes[0].t == pytest.approx(0.1)
    assert story_of(a_report()).since(0.8).changes == ()


def test_the_title_says_what_came_of_it() -> None:
    title = story_of(a_report()).title
    assert title == "words: 1,234 tuples, 5 joins, 0 leaves, 0 lost, 0 doubled"


def test_a_report_is_read_from_all_its_forms(tmp_path: Path) -> None:
    report = a_report()
    path = tmp_path / "report.json"
    path.write_bytes(report.to_json())
    same = story_of(report)
    assert story_of(path) == same
    assert story_of(str(path)) == same
    assert story_of(msgspec.to_builtins(report)) == same


def test_what_is_no_report_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text('{"pipeline": "words"}')
    with pytest.raises(ValueError, match=r"report.json is not a report of a run"):
        story_of(path)
    with pytest.raises(ValueError, match="'words' has no samples"):
        story_of(a_report([]))
    with pytest.raises(FileNotFoundError):
        story_of(tmp_path / "none.json")


@needs_matplotlib
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture_is_written_where_it_was_asked_for(tmp_path: Path, ending: str) -> None:
    path = draw(a_report(), tmp_path / "new" / f"run.{ending}", planned=lambda t: t * 0 + 15)
    head = path.read_bytes()[:100]
    assert head.startswith(b"\x89PNG" if ending == "png" else b"<?xml")


@needs_matplotlib
def test_a_run_without_results_can_be_drawn(tmp_path: Path) -> None:
    bare = [operator("lines", "source"), operator("out", "sink", latency_p50_ms=[None] * 3)]
    none = msgspec.structs.replace(bare[1].samples, latency_p99_ms=[None] * 3)
    bare[1] = msgspec.structs.replace(bare[1], samples=none)
    assert draw(a_report(bare), tmp_path / "run.png").stat().st_size > 1000


def test_without_matplotlib_the_message_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PictureUnavailable, match=r"pip install 'anabranch\[plot\]'"):
        draw(a_report(), tmp_path / "run.png")


@given(st.lists(st.floats(0, 1), max_size=8))
def test_names_are_moved_apart_and_keep_their_order(places: list[float]) -> None:
    moved = spread(places, gap=0.1)
    ordered = sorted(range(len(places)), key=lambda i: places[i])
    for lower, upper in pairwise(ordered):
        assert moved[upper] - moved[lower] >= 0.1 - 1e-9
    assert all(-1e-9 <= m <= 1 + 1e-9 for m in moved)
