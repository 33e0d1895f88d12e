"""Every operator that may have several instances before every one that may depend on the order:
results are those of one instance, or the pair is refused or warned of before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.pipeline import order
from anabranch.runtime.pipeline.graph import KeyedStream, Stream
from anabranch.runtime.values.checks import PipelineError

MANY = ab.Scale(max_instances=4)
Ordered = bool | None


def key_of(one: Any) -> Any:
    return one[0]


def time_of(one: Any) -> float:
    return float(one[1])


def later(_value: Any, one: Any) -> Any:
    return one


def keep(_key: Any, *tuples: Any) -> list[Any]:
    return [*tuples]


def pair(_key: Any, left: Any, right: Any) -> Any:
    return left, right


def other(stream: Stream) -> KeyedStream:
    source = stream.pipeline.source("other", ab.items([])).event_time(time_of)
    return source.key_by(key_of)


Before = Callable[[Stream], Stream]
BEFORE: dict[str, Before] = {
    "map": lambda s: s.map("front", tuple, scale=MANY),
    "flat_map": lambda s: s.flat_map("front", list, scale=MANY),
    "filter": lambda s: s.filter("front", bool, scale=MANY),
    "batch": lambda s: s.map("front", list, batch=True, scale=MANY),
    "fold": lambda s: s.key_by(key_of).fold("front", None, later, scale=MANY),
    "reduce": lambda s: s.key_by(key_of).reduce("front", later, scale=MANY),
    "process": lambda s: s.key_by(key_of).process("front", keep, state=list, scale=MANY),
    "window": lambda s: (
        s.key_by(key_of)
        .window(ab.tumbling(10), lateness_s=9, time=time_of)
        .aggregate("front", ab.tally(), scale=MANY)
    ),
    "session": lambda s: (
        s.key_by(key_of)
        .window(ab.session(10), time=time_of)
        .aggregate("front", ab.tally(), scale=MANY)
    ),
    "join": lambda s: (
        s.key_by(key_of)
        .join(other(s), ab.tumbling(9), time=time_of)
        .apply("front", pair, scale=MANY)
    ),
    "enrich": lambda s: s.key_by(key_of).enrich(other(s)).apply("front", pair, scale=MANY),
    "merge": lambda s: s.map("one", tuple).merge(s.map("two", tuple)),
    "branch": lambda s: s.map("front", tuple, scale=MANY).map("behind", tuple),
}

Behind = Callable[[KeyedStream], Stream]
BY_ORDER: dict[str, Behind] = {
    "fold": lambda k: k.fold("back", None, later),
    "reduce": lambda k: k.reduce("back", later),
    "process": lambda k: k.process("back", keep, state=list),
    "window fold": lambda k: k.window(ab.tumbling(9), time=time_of).fold("back", None, later),
    "window reduce": lambda k: k.window(ab.sliding(9, every=3), time=time_of).reduce("back", later),
    "window apply": lambda k: k.window(ab.session(9), time=time_of).apply("back", pair),
}
"""Their functions may depend on the order."""
BY_SET: dict[str, Behind] = {
    "window": lambda k: k.window(ab.tumbling(9), time=time_of).aggregate("back", ab.tally()),
    "sliding": lambda k: k.window(ab.sliding(9, every=3), lateness_s=9, time=time_of).aggregate(
        "back", ab.tally()
    ),
    "join": lambda k: k.join(other(k.stream), ab.tumbling(9), time=time_of).apply("back", pair),
}
"""These take tuples in any order, since what is late follows from marks."""


def warned(before: Before, behind: Behind, *, ordered: Ordered) -> list[str]:
    """The warnings of a pair; raises if it is refused."""
    lines = ab.Pipeline("p").source("lines", ab.items([])).event_time(time_of)
    behind(before(lines).key_by(key_of, ordered=ordered)).sink("out", ab.discard())
    lines.pipeline.validate()
    return [w for w in order.warnings(lines.pipeline.operators) if w.startswith("operator 'back'")]


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("behind", BY_ORDER)
def test_what_may_depend_on_a_mixed_order_is_warned_of(before: str, behind: str) -> None:
    (warning, *_) = warned(BEFORE[before], BY_ORDER[behind], ordered=None)
    assert "depend on the order" in warning or "depends on the order" in warning
    assert ("come as they come" if before == "merge" else "'front'") in warning


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("behind", BY_ORDER)
def test_who_says_that_the_order_does_not_matter_is_not_warned(before: str, behind: str) -> None:
    warnings = warned(BEFORE[before], BY_ORDER[behind], ordered=False)
    assert [w for w in warnings if "which session" not in w] == []


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("behind", BY_ORDER)
def test_who_says_that_it_does_is_refused_or_warned(before: str, behind: str) -> None:
    try:
        assert warned(BEFORE[before], BY_ORDER[behind], ordered=True)
    except PipelineError as error:
        assert "'front' may have 4 instances" in str(error)  # noqa: PT017 - either will do


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("behind", BY_SET)
def test_what_takes_tuples_in_any_order_is_not_warned(before: str, behind: str) -> None:
    if not (before in ("join", "enrich") and behind == "join"):  # there is one other stream
        assert warned(BEFORE[before], BY_SET[behind], ordered=None) == []


def test_a_join_by_the_latest_is_warned_of_wherever_its_streams_come_from() -> None:
    def enriched(ordered: Ordered) -> list[str]:
        return warned(
            lambda s: s,
            lambda k: k.enrich(other(k.stream)).apply("back", pair),
            ordered=ordered,
        )

    (warning,) = enriched(None)
    assert "'lines' and 'other' come as they come" in warning
    assert "take .join(...) with a window" in warning
    assert enriched(False) == []


def test_operators_with_one_instance_each_are_not_warned_of() -> None:
    for behind in BY_ORDER.values():
        assert warned(lambda s: s.map("front", tuple), behind, ordered=None) == []
