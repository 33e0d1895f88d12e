"""Keyed operators as they are written: what is wrong is said at once, with its name."""

from __future__ import annotations

import functools
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.runtime.pipeline.graph import KeyedStream, Pipeline, Stream
from anabranch.runtime.plan.spec import EventTime, KeyedEdge
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.sinks.discard import discard
from anabranch.runtime.sinks.stdout import stdout
from anabranch.runtime.sources import items
from anabranch.runtime.values.checks import PipelineError

Write = Callable[[KeyedStream], object]


def words(groups: int = 256) -> Stream:
    return Pipeline("p", groups=groups).source("words", items(["a"]))


def add(total: int, item: str) -> int:
    return total + len(item)


async def later(*args: Any) -> Any: ...


def test_a_keyed_operator_says_how_tuples_get_their_key() -> None:
    stream = words()
    counts = stream.key_by(len).fold("count", 0, add, scale=Scale(), retry=2)
    operator = stream.pipeline.operators[counts.operators[0]]
    assert operator.keyed is not None
    assert operator.keyed.what == "fold add"
    assert operator.edges == {"words": KeyedEdge(len, 0)}
    assert operator.steps == ()
    assert operator.can_scale
    assert operator.retry.attempts == 2
    assert pickle.loads(pickle.dumps(operator)).edges == operator.edges


def test_merged_streams_have_one_key() -> None:
    pipeline = Pipeline("p")
    one, two = (pipeline.source(name, items([])) for name in ("one", "two"))
    one.merge(two).key_by(len).reduce("longest", max).sink("out", discard())
    assert pipeline.operators["longest"].edges == {  # type: ignore[index]
        "one": KeyedEdge(len),
        "two": KeyedEdge(len),
    }
    pipeline.validate()


def test_two_streams_come_on_two_sides() -> None:
    pipeline = Pipeline("p")
    left, right = (pipeline.source(name, items([])).key_by(len) for name in ("left", "right"))
    left.enrich(right).apply("both", lambda key, item, side: (item, side))
    edges = pipeline.operators["both"].edges  # type: ignore[index]
    assert edges == {"left": KeyedEdge(len, 0), "right": KeyedEdge(len, 1)}


def test_one_operator_cannot_be_on_both_sides() -> None:
    keyed = words().key_by(len)
    with pytest.raises(PipelineError, match="'self': operator 'words' is on both sides; put an"):
        keyed.enrich(keyed).apply("self", lambda key, item, side: item)


def test_streams_of_two_pipelines_do_not_meet() -> None:
    with pytest.raises(PipelineError, match="must belong to the same pipeline"):
        words().key_by(len).enrich(words().key_by(len)).apply("both", lambda k, a, b: a)


def test_a_keyed_sink_is_an_end_and_scales() -> None:
    stream = words()
    stream.key_by(len).sink("out", discard(), scale=Scale(max_instances=4))
    operator = stream.pipeline.operators["out"]  # type: ignore[index]
    assert operator.sink is not None
    assert operator.edges == {"words": KeyedEdge(len)}
    stream.pipeline.validate()


def test_a_sink_that_cannot_be_shared_cannot_be_by_key_either() -> None:
    with pytest.raises(PipelineError, match="'out' cannot have several instances"):
        words().key_by(len).sink("out", stdout(), scale=Scale(max_instances=2))


def test_keyed_results_lead_somewhere() -> None:
    stream = words()
    stream.key_by(len).fold("count", 0, add)
    with pytest.raises(PipelineError, match="'count' of pipeline 'p' leads nowhere"):
        stream.pipeline.validate()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda k: k.fold("w", 0, 5), "fold 'w': expected a function, got 5"),
        (lambda k: k.fold("w", 0, later), "fold 'w': expected a plain function; state is"),
        (lambda k: k.reduce("w", later), "reduce 'w': expected a plain function"),
        (lambda k: k.process("w", later, state=list), "process 'w': expected a plain function"),
        (lambda k: k.process("w", int, state=list), r"class int has no on_tuple\(key, state"),
        (lambda k: k.process("w", print, state=[]), r"'w': state must be a function .* got \[\]"),
        (lambda k: k.process("w", print, state={"n": 0}), "state 'n': expected a function, got 0"),
        (lambda k: k.process("w", print, state={"a b": int}), "'a b' cannot name a state"),
        (lambda k: k.sink("w", "out.jsonl"), "sink 'w': expected a sink such as"),
        (lambda k: k.fold("words", 0, add), "'words' is defined twice"),
        (lambda k: k.fold("a b", 0, add), "operator name 'a b': expected a letter"),
        (lambda k: k.fold("w", 0, add, scale=5), r"'w': scale must be ab\.Scale"),
        (lambda k: k.fold("w", 0, add, retry="x"), "retry: attempts must be a whole number"),
    ],
)
def test_mistakes_are_named(write: Write, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        write(words().key_by(len))


def test_methods_of_objects_may_not_wait_either() -> None:
    class Waits:
        async def on_tuple(self, key: Any, state: Any, item: Any, time: Any) -> None: ...

    with pytest.raises(PipelineError, match="process 'w': on_tuple: expected a plain function"):
        words().key_by(len).process("w", Waits, state=list)


@pytest.mark.parametrize("key", [5, None, "name", later])
def test_a_key_is_a_function(key: Any) -> None:
    with pytest.raises(PipelineError, match="key_by: expected a "):
        words().key_by(key)


def test_functions_without_a_name_have_one_in_lists() -> None:
    keyed = words().key_by(len)
    keyed.fold("partly", 0, functools.partial(add))
    operator = keyed.stream.pipeline.operators["partly"]  # type: ignore[index]
    assert operator.keyed is not None
    assert operator.keyed.what == "fold add"


# -- key groups --------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [0, -1, 32_769])
def test_the_number_of_key_groups_has_bounds(groups: int) -> None:
    with pytest.raises(PipelineError, match=f"'p': groups must be 1 to 32,768, got {groups}"):
        Pipeline("p", groups=groups)


@pytest.mark.parametrize("groups", [2.5, "8", True, None])
def test_the_number_of_key_groups_is_a_number(groups: Any) -> None:
    with pytest.raises(PipelineError, match="groups must be a whole number"):
        Pipeline("p", groups=groups)


def test_more_instances_than_key_groups_are_refused() -> None:
    stream = words(groups=4)
    stream.map("upper", str.upper, scale=Scale(max_instances=8))
    keyed = stream.key_by(len)
    keyed.fold("fits", 0, add, scale=Scale(max_instances=4))
    with pytest.raises(PipelineError, match=r"'w': 5 instances .* groups=4"):
        keyed.fold("w", 0, add, scale=Scale(max_instances=5))
    with pytest.raises(PipelineError, match=r"'fits': 8 instances .* groups=4"):
        stream.pipeline.with_scale("fits", "max_instances", 8)


# -- event time --------------------------------------------------------------------------------


def test_event_time_is_noted_where_the_stream_is_made() -> None:
    pipeline = Pipeline("p")
    one, two = (pipeline.source(name, items([])) for name in ("one", "two"))
    both = one.merge(two)
    assert both.event_time(float, disorder_s=2, device=len, idle_s=None, ahead_s=5.0) is both
    timing = EventTime(float, 2, len, None, 5.0)
    assert [o.timing for o in pipeline.operators.values()] == [timing, timing]


def test_event_time_is_given_once() -> None:
    stream = words().event_time(float)
    with pytest.raises(PipelineError, match="operator 'words' has it already"):
        stream.event_time(float)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fn": 5}, "expected a function of a tuple, got 5"),
        ({"fn": None}, "expected a function of a tuple, got None"),
        ({"device": "d"}, "expected device: a function, got 'd'"),
        ({"disorder_s": -1}, "disorder_s must be 0 or more, got -1"),
        ({"disorder_s": None}, "disorder_s must be a number, got None"),
        ({"disorder_s": math.nan}, "disorder_s must be a number, got nan"),
        ({"idle_s": 0}, "idle_s must be above 0, got 0"),
        ({"ahead_s": -0.5}, "ahead_s must be 0 or more"),
    ],
)
def test_mistakes_about_event_time_are_named(arguments: dict[str, Any], message: str) -> None:
    stream = words()
    with pytest.raises(PipelineError, match=f"event_time: {message}"):
        stream.event_time(**{"fn": float} | arguments)
    assert stream.pipeline.operators["words"].timing is None  # type: ignore[index]
