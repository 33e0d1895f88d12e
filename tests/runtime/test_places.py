"""A run refuses to read and write one file at once, and to bury where it cannot write."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.runtime.graph import Pipeline, PipelineError
from anabranch.runtime.places import check_places
from anabranch.runtime.sinks import jsonl
from anabranch.runtime.sources import files


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
