"""Calls of the methods of streams that lack something are refused, and say what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.values.checks import PipelineError

CALLS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda s: s.map("m"), "map m: fn is missing; write map('m', fn)"),
    (lambda s: s.map(name="m"), "map m: fn is missing; write map('m', fn)"),
    (lambda s: s.filter("f"), "filter f: fn is missing; write filter('f', fn)"),
    (lambda s: s.sink("out"), "sink out: sink is missing; write sink('out', sink)"),
    (lambda s: s.map(), "map: name and fn are missing; write map(name, fn)"),
    (lambda s: s.key_by(), "key_by: fn is missing; write key_by(fn)"),
    (
        lambda s: s.key_by(str).fold("sum"),
        "fold sum: initial and fn are missing; write fold('sum', initial, fn)",
    ),
    (
        lambda s: s.key_by(str).process("p", print),
        "process p: state is missing; write process('p', fn, state=…)",
    ),
    (
        lambda s: s.key_by(str).window(ab.tumbling(1)).fold("sum"),
        "fold sum: initial and fn are missing; write fold('sum', initial, fn)",
    ),
]


@pytest.mark.parametrize(("call", "told"), CALLS)
def test_a_call_that_lacks_something_says_what_to_write(
    call: Callable[[Any], Any], told: str
) -> None:
    stream = ab.Pipeline("p").source("numbers", ab.items([1]))
    with pytest.raises(PipelineError) as refused:
        call(stream)
    assert str(refused.value) == told


def test_a_source_that_is_missing_is_told() -> None:
    with pytest.raises(PipelineError, match=r"^source lines: source is missing; write source\("):
        ab.Pipeline("p").source("lines")  # type: ignore[call-arg]


def test_what_is_given_by_name_is_not_missing() -> None:
    stream = ab.Pipeline("p").source(name="numbers", source=ab.items([1]))
    stream.map(fn=str, name="texts").sink(sink=ab.discard(), name="out")
