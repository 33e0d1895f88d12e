"""What is wrong with a pipeline is said while it is built, with the name of the thing."""

from __future__ import annotations

import math
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.keyed.windows import tumbling
from anabranch.runtime.pipeline.graph import Pipeline, Stream
from anabranch.runtime.plan.operator import Retry
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.sinks.discard import discard
from anabranch.runtime.sources import items
from anabranch.runtime.values.checks import PipelineError


def numbers() -> Stream:
    return Pipeline("p").source("numbers", items([1]))


@pytest.mark.parametrize("name", ["", "1a", "a b", "a.b", "a\n", "ä", "a" * 64])
def test_a_name_that_cannot_be_part_of_others_is_refused(name: str) -> None:
    with pytest.raises(PipelineError, match="expected a letter"):
        numbers().map(name, str)


def test_a_call_without_the_name_of_its_operator_shows_the_right_call() -> None:
    stream = numbers()
    keyed = stream.key_by(str)
    wrong: dict[str, Any] = {
        r"map: .* such as map\('upper', …\), got <method": lambda: stream.map(str.upper),  # type: ignore
        r"filter: .* such as filter\('name', …\)": lambda: stream.filter(lambda _: True),  # type: ignore
        r"map: .* got <class 'str'>": lambda: stream.map(str, "text"),  # type: ignore
        r"sink: .* such as sink\('name', …\)": lambda: stream.sink(discard()),  # type: ignore
        r"source: .* such as source\('name', …\)": lambda: Pipeline("p").source(items([1])),  # type: ignore
        r"fold: .* such as fold\('name', …\), got 0": lambda: keyed.fold(0, max),  # type: ignore
        r"apply: .* such as apply\('len', …\)": lambda: keyed.window(tumbling(1)).apply(len),  # type: ignore
    }
    for message, call in wrong.items():
        with pytest.raises(PipelineError, match=message):
            call()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_instances": 2.5}, "max_instances must be a whole number, got 2.5"),
        ({"max_instances": "4"}, "max_instances must be a whole number, got '4'"),
        ({"min_instances": True}, "min_instances must be a whole number, got True"),
        ({"period_s": math.nan}, "period_s must be a number, got nan"),
        ({"cooldown_s": math.inf}, "cooldown_s must be a number, got inf"),
        ({"target": None}, "target must be a number, got None"),
    ],
)
def test_scale_settings_of_the_wrong_kind_are_named(settings: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        Scale(**settings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 5}, r"operator 'work': scale must be ab\.Scale"),
        ({"retry": "3"}, "retry: attempts must be a whole number, got '3'"),
        ({"retry": 1.5}, "retry: attempts must be a whole number, got 1.5"),
        ({"in_flight": 1.5}, "operator 'work': in_flight must be a whole number, got 1.5"),
    ],
)
def test_options_of_the_wrong_kind_are_named(options: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        numbers().map("work", str, **options)


def test_pauses_of_retries_are_numbers() -> None:
    with pytest.raises(PipelineError, match="backoff_s must be a number, got nan"):
        Retry(1, math.nan)


def test_a_stream_is_not_merged_with_itself() -> None:
    stream = numbers()
    both = stream.merge(stream.map("m", str))
    for streams in ((stream, stream), (stream.map("n", str), stream, stream), (both, stream)):
        with pytest.raises(PipelineError, match="merge: operator 'numbers' is in more than one"):
            stream.pipeline.merge(*streams)


def test_only_streams_are_merged() -> None:
    with pytest.raises(PipelineError, match=r"merge: expected streams, as in merge\(a, b\), got 5"):
        numbers().merge(5)  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match=r"got \[Stream\(operators=\('numbers',\)\)\]"):
        numbers().merge([numbers()])  # type: ignore[arg-type]


def test_the_name_of_a_field_in_place_of_a_function_shows_the_function() -> None:
    with pytest.raises(
        PipelineError, match=r"got 'user'; for a field of it, lambda t: t\['user'\]"
    ):
        numbers().key_by("user")  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match=r"got 'at'; for a field of it, lambda t: t\['at'\]"):
        numbers().event_time("at")  # type: ignore[arg-type]


def test_durability_is_chosen_for_all_operators_or_by_name() -> None:
    for durable, expected in (("power", "power"), ({"a": "power"}, "process")):
        pipeline = Pipeline("p", durable=durable)  # type: ignore[arg-type]
        pipeline.source("a", items([1])).sink("b", discard())
        pipeline.validate()
        assert pipeline.durable_of("a") == "power"
        assert pipeline.durable_of("b") == expected


def test_unknown_promises_are_refused_with_what_is_known() -> None:
    with pytest.raises(PipelineError, match="delivery must be one of effectively-once, at-least"):
        Pipeline("p", delivery="exactly-once")  # type: ignore[arg-type]
    with pytest.raises(
        PipelineError, match="durable must be one of process, power, hosts, got 'disk'"
    ):
        Pipeline("p", durable={"a": "disk"})  # type: ignore[dict-item]
    pipeline = Pipeline("p", durable={"conut": "power"})
    pipeline.source("count", items([1])).sink("b", discard())
    with pytest.raises(PipelineError, match="did you mean 'count'"):
        pipeline.validate()


def of_hosts(**settings: Any) -> Pipeline:
    pipeline = Pipeline("p", **settings)
    numbers = pipeline.source("numbers", ab.items([1]))
    numbers.map("work", abs).sink("out", ab.discard())
    return pipeline


def test_copies_are_of_operators_that_outlive_hosts() -> None:
    pipeline = of_hosts(durable={"work": "hosts"}, copies=2)
    assert [pipeline.copies_of(name) for name in ("numbers", "work", "out")] == [0, 2, 0]
    assert pipeline.has_copies
    assert not of_hosts(copies=2).has_copies
    for copies in (0, 9):
        with pytest.raises(PipelineError, match=f"copies must be 1 to 8, got {copies}"):
            Pipeline("p", durable="hosts", copies=copies)


def test_a_majority_needs_two_copies_and_some_time() -> None:
    """J8."""
    assert of_hosts(durable={"work": "hosts"}, copies=2, give_up_after_s=5).give_up_after_s == 5
    assert of_hosts(durable="hosts", copies=2).give_up_after_s is None
    for settings in ({"durable": "hosts"}, {"copies": 2}, {"durable": {"work": "power"}}):
        with pytest.raises(PipelineError, match='needs durable="hosts" and copies=2 or more'):
            of_hosts(give_up_after_s=60, **settings)
    for after_s in (0, 4.9, -1):
        with pytest.raises(PipelineError, match=f"must be 5 or more, got {after_s}"):
            of_hosts(durable="hosts", copies=2, give_up_after_s=after_s)
    for endless in (float("inf"), 10**400):
        with pytest.raises(PipelineError, match="give_up_after_s must be a number"):
            of_hosts(durable="hosts", copies=2, give_up_after_s=endless)


def test_what_ends_have_beside_their_journals_is_not_in_copies() -> None:
    pipeline = Pipeline("p", durable="hosts")
    there = ab.on(labels={"camera": "north"})
    pipeline.source("numbers", ab.items([1]), place=there).sink("out", ab.discard())
    with pytest.raises(PipelineError, match="source 'numbers' has a place"):
        pipeline.validate()


def test_a_run_of_one_host_has_no_copies() -> None:
    with pytest.raises(PipelineError, match="this run has one host"):
        ab.run(of_hosts(durable="hosts"))
