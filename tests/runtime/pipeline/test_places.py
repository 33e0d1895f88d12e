"""A run refuses to read and write one file at once, and to bury where it cannot write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.places import check_places, check_report, check_targets
from anabranch.runtime.plan.ends import Sink
from anabranch.runtime.sinks.discard import discard
from anabranch.runtime.sinks.jsonl import jsonl
from anabranch.runtime.sinks.parquet import parquet
from anabranch.runtime.sources import files, items
from anabranch.runtime.values.checks import PipelineError


def pipeline(source: Path, sink: Path, dead: Path) -> Pipeline:
    made = Pipeline("p", dead_letters=dead)
    made.source("in", files(str(source))).sink("out", jsonl(sink))
    return made


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("a\n")
    return path


def test_a_file_that_is_read_is_not_written_to(text: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(text)
    for target in (text, link):
        with pytest.raises(PipelineError, match=r"source 'in' reads .* sink 'out' would write"):
            check_places(pipeline(text, target, tmp_path / "dead"))
    assert text.read_text() == "a\n"


def test_a_pattern_that_also_matches_the_results_is_refused(text: Path, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("1\n")
    with pytest.raises(PipelineError, match="sink 'out' would write"):
        check_places(pipeline(tmp_path / "*", tmp_path / "out.jsonl", tmp_path / "dead"))


def test_input_is_not_buried_in(text: Path, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="the dead letters would write"):
        check_places(pipeline(text, tmp_path / "out", text))


def test_dead_letters_need_a_folder(text: Path, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no folder"):
        check_places(pipeline(text, tmp_path / "out", tmp_path / "nowhere" / "dead"))
    with pytest.raises(PipelineError, match="is a folder"):
        check_places(pipeline(text, tmp_path / "out", tmp_path))


def test_separate_files_are_fine(text: Path, tmp_path: Path) -> None:
    check_places(pipeline(text, tmp_path / "out", tmp_path / "dead"))


def two_sinks(one: Sink, other: Sink, dead: Path | None = None) -> Pipeline:
    made = Pipeline("p", dead_letters=dead)
    numbers = made.source("in", items([1]))
    numbers.sink("one", one)
    numbers.sink("other", other)
    return made


def test_two_sinks_do_not_write_to_one_file_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("")
    os.link("a", "hard")
    os.symlink("a", "soft")
    os.symlink("new", "soft_new")
    os.symlink(".", "here")
    pairs = [("a", name) for name in ("a", "./a", str(tmp_path / "a"), "hard", "soft", "here/a")]
    for one, other in [*pairs, ("new", "new"), ("new", "here/new"), ("new", "soft_new")]:
        with pytest.raises(PipelineError, match="sink 'one' and sink 'other' would both write"):
            check_targets(two_sinks(jsonl(one), jsonl(other)))
    check_targets(two_sinks(jsonl("a"), jsonl("b")))
    check_targets(two_sinks(jsonl("/dev/null"), jsonl("/dev/null")))
    check_targets(two_sinks(discard(), discard()))


def test_a_sink_does_not_write_into_the_folder_of_another(tmp_path: Path) -> None:
    same: list[tuple[Sink, Sink]] = [
        (parquet(tmp_path / "a"), parquet(tmp_path / "a")),
        (parquet(tmp_path / "a"), jsonl(tmp_path / "a")),
    ]
    for one, other in same:
        with pytest.raises(PipelineError, match="would both write"):
            check_targets(two_sinks(one, other))
    inside: list[tuple[Sink, Sink]] = [
        (parquet(tmp_path / "a"), parquet(tmp_path / "a" / "b")),
        (parquet(tmp_path / "a" / "b"), parquet(tmp_path / "a")),
        (jsonl(tmp_path / "a" / "b.jsonl"), parquet(tmp_path / "a")),
    ]
    for one, other in inside:
        with pytest.raises(PipelineError, match="one of these is a folder that the other is in"):
            check_targets(two_sinks(one, other))
    check_targets(two_sinks(parquet(tmp_path / "a"), parquet(tmp_path / "ab")))


def test_dead_letters_and_results_do_not_share_a_file(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="sink 'one' and the dead letters would both write"):
        check_targets(two_sinks(jsonl(tmp_path / "a"), discard(), tmp_path / "a"))
    with pytest.raises(PipelineError, match="a folder that the other is in"):
        check_targets(two_sinks(parquet(tmp_path / "a"), discard(), tmp_path / "a" / "dead"))
    with pytest.raises(PipelineError, match="a folder that the other is in"):
        check_targets(two_sinks(jsonl(tmp_path), discard(), tmp_path / "dead"))


def test_a_folder_that_is_read_is_not_written_to(text: Path, tmp_path: Path) -> None:
    made = Pipeline("p", dead_letters=tmp_path / ".." / "dead")
    made.source("in", files(str(text))).sink("out", parquet(tmp_path, append=True))
    with pytest.raises(PipelineError, match=r"source 'in' reads .* sink 'out' would write"):
        check_places(made)


def test_the_program_is_not_written_to(text: Path, tmp_path: Path) -> None:
    for sink, dead in ((Path(__file__), tmp_path / "dead"), (tmp_path / "out", Path(__file__))):
        with pytest.raises(PipelineError, match="part of this program"):
            check_places(pipeline(text, sink, dead))


def test_a_report_destroys_nothing(text: Path, tmp_path: Path) -> None:
    made = pipeline(text, tmp_path / "out", tmp_path / "dead")
    for taken in (tmp_path / "out", tmp_path / "dead"):
        with pytest.raises(PipelineError, match="writes there"):
            check_report(made, taken)
    with pytest.raises(PipelineError, match="which is no report"):
        check_report(made, text)


def test_a_report_that_is_read_is_not_written_anew(text: Path, tmp_path: Path) -> None:
    text.write_text('{"pipeline": "former"}')
    (tmp_path / "hard").hardlink_to(text)
    made = pipeline(text, tmp_path / "out", tmp_path / "dead")
    for report in (text, tmp_path / "hard"):
        check_report(made, report)
        with pytest.raises(PipelineError, match=r"source 'in' reads .* the report would write"):
            check_places(made, report)
    check_places(made, tmp_path / "other")


def test_a_report_does_not_wait_for_the_reader_of_a_named_pipe(text: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for report in (tmp_path / "pipe", tmp_path / "link"):
        with pytest.raises(PipelineError, match="a named pipe"):
            check_report(pipeline(text, tmp_path / "out", tmp_path / "dead"), report)


def test_a_name_that_is_too_long_is_told(text: Path, tmp_path: Path) -> None:
    long = tmp_path / ("x" * 300)
    for sink, dead in ((long, tmp_path / "dead"), (tmp_path / "out", long)):
        with pytest.raises(PipelineError, match=r"nothing can be written to .*File name too long"):
            check_places(pipeline(text, sink, dead))


def test_a_report_replaces_a_report(text: Path, tmp_path: Path) -> None:
    made = pipeline(text, tmp_path / "out", tmp_path / "dead")
    report = tmp_path / "report.json"
    for before in (b"", b'{\n  "pipeline": "p"}'):
        report.write_bytes(before)
        check_report(made, report)
    check_report(made, tmp_path / "new.json")
