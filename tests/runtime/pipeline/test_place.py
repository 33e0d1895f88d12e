"""Where the instances of an operator may be, as a pipeline says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.pipeline import order
from anabranch.runtime.plan.place import ANYWHERE, Location


def pipeline_with(place: Any) -> ab.Pipeline:
    pipeline = ab.Pipeline("plant")
    images = pipeline.source("camera", ab.items([1, 2]))
    images.map("detect", str, place=place).sink("out", ab.discard())
    return pipeline


def windows(stream: ab.Stream) -> Any:
    return stream.key_by(len).window(ab.count(2))


OPERATORS: dict[str, Callable[[ab.Stream, Location], object]] = {
    "map": lambda stream, place: stream.map("f", str, place=place),
    "flat_map": lambda stream, place: stream.flat_map("f", str, place=place),
    "filter": lambda stream, place: stream.filter("f", bool, place=place),
    "fuse": lambda stream, place: stream.fuse("f", ab.map(str), place=place),
    "sink": lambda stream, place: stream.sink("f", ab.discard(), place=place),
    "fold": lambda stream, place: stream.key_by(len).fold("f", 0, max, place=place),
    "reduce": lambda stream, place: stream.key_by(len).reduce("f", max, place=place),
    "process": lambda stream, place: stream.key_by(len).process(
        "f", lambda key, state, one: None, state=list, place=place
    ),
    "sink by key": lambda stream, place: stream.key_by(len).sink("f", ab.discard(), place=place),
    "aggregate": lambda stream, place: windows(stream).aggregate("f", ab.tally(), place=place),
    "apply": lambda stream, place: windows(stream).apply("f", lambda *_: None, place=place),
    "fold of windows": lambda stream, place: windows(stream).fold("f", 0, max, place=place),
    "reduce of windows": lambda stream, place: windows(stream).reduce("f", max, place=place),
}


@pytest.mark.parametrize("kind", OPERATORS)
def test_every_kind_of_operator_has_a_place(kind: str) -> None:
    pipeline = ab.Pipeline("plant")
    stream = pipeline.source("camera", ab.items(["a"]), place=ab.on(region="plant-1"))
    place = ab.on(region="plant-2", labels={"rack": "7"}) & ab.near("camera")
    OPERATORS[kind](stream, place)
    places = {name: operator.place for name, operator in pipeline.operators.items()}
    assert places == {
        "camera": Location("plant-1"),
        "f": Location("plant-2", (("rack", "7"),), ("camera",)),
    }


def test_joins_have_a_place_too() -> None:
    pipeline = ab.Pipeline("plant")
    left, right = (pipeline.source(name, ab.items(["a"])).key_by(len) for name in ("a", "b"))
    left.enrich(right).apply("enriched", lambda *_: None, place=ab.near("b"))
    assert [o.place for o in pipeline.operators.values()] == [ANYWHERE, ANYWHERE, ab.near("b")]


def test_what_is_no_place_is_refused_where_it_is_given() -> None:
    message = r"operator 'detect': place must be ab.on\(...\) or ab.near\(...\), got 'plant-2'"
    with pytest.raises(ab.PipelineError, match=message):
        pipeline_with("plant-2")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("camra", "operator 'detect': near: no operator 'camra'; did you mean 'camera'?"),
        ("detect", "operator 'detect': near: it cannot be near itself"),
    ],
)
def test_an_operator_is_near_one_that_there_is(other: str, message: str) -> None:
    with pytest.raises(ab.PipelineError) as refused:
        pipeline_with(ab.near(other)).validate()
    assert str(refused.value) == message
    pipeline_with(ab.near("out")).validate()  # it may come later


def test_a_run_says_that_it_does_not_look_at_places() -> None:
    assert order.warnings(pipeline_with(ANYWHERE).operators) == []
    assert order.warnings(pipeline_with(ab.on(region="plant-2")).operators) == [
        "operator 'detect': place counts where agents run the pipeline (anabranch submit), not here"
    ]
