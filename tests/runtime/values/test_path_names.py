"""What can be no path is told where it is given, before anything is looked at."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.values.checks import PipelineError

NO_PATHS: list[Any] = [None, 3, ["a"], "a\0b", b"\0", "\ud83d"]


@pytest.mark.parametrize("given", [*NO_PATHS, ""])
def test_what_can_be_no_path_is_refused_while_a_pipeline_is_built(given: Any) -> None:
    for make in (ab.jsonl, ab.parquet):
        with pytest.raises(PipelineError, match=r"expected a path|no file can have the name"):
            make(given)
    if given is not None:
        with pytest.raises(PipelineError, match="pipeline 'p': dead_letters: "):
            ab.Pipeline("p", dead_letters=given)


@pytest.mark.parametrize("given", NO_PATHS)
def test_so_is_a_pattern(given: Any) -> None:
    for make in (ab.files, ab.csv):
        with pytest.raises(PipelineError, match="files: "):
            make("in.txt", given)


def test_bytes_are_a_path() -> None:
    assert ab.jsonl(b"\xff.jsonl").path == Path("\udcff.jsonl")  # type: ignore[arg-type]
    assert ab.files(b"\xff/*").patterns == ("\udcff/*",)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [0, 1.5, "7", True, math.nan])
def test_a_part_of_a_file_has_a_whole_number_of_bytes(given: Any) -> None:
    with pytest.raises(ValueError, match="split_bytes must be 1 or more, and whole"):
        ab.files("in.txt", split_bytes=given)


@pytest.mark.parametrize("given", [3, ["scipy"], {"scipy": 1}, {1: "a"}, {"": "a"}])
def test_what_a_pipeline_requires_is_a_dict_of_texts(given: Any) -> None:
    with pytest.raises(PipelineError, match="requires must be a dict"):
        ab.Pipeline("p", requires=given)


@pytest.mark.parametrize("module", ["no_such.module", "anabranch.no.such", "a.", "."])
def test_a_module_within_a_package_that_is_missing_is_missing(module: str) -> None:
    pipeline = ab.Pipeline("p", requires={module: "install it"})
    pipeline.source("in", ab.items([])).sink("out", ab.discard())
    with pytest.raises(PipelineError, match="which is not installed: install it"):
        pipeline.validate()


@pytest.mark.parametrize("given", ["x", True, 1.5, -1])
def test_attempts_of_a_sink_are_checked_as_those_of_operators_are(given: Any) -> None:
    with pytest.raises(PipelineError, match="retry: "):
        ab.foreach(print, retry=given)
