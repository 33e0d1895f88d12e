"""Policies are values with checked settings, chosen by the scale and found by name."""

from __future__ import annotations

import pickle
import random
import re
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.policies.decider import Decider, PolicyError
from anabranch.runtime.policies.decision import (
    Decision,
    Duplicate,
    Explanation,
    Hold,
    Leave,
    Move,
    Resize,
    Why,
)
from anabranch.runtime.policies.fixed import Fixed
from anabranch.runtime.policies.policy import Heritage, Policy, Scale, policy_named, policy_of
from anabranch.runtime.policies.probabilistic import Probabilistic
from anabranch.runtime.policies.settings import setting
from anabranch.runtime.sinks.discard import discard
from anabranch.runtime.sources.items import items
from anabranch.runtime.values.checks import PipelineError


def _any(value: Any) -> Any:
    """What types do not allow, and users do."""
    return value


@dataclass(frozen=True)
class ByBacklog(Policy[float]):
    """For tests: remembers when it last looked."""

    wait_s: float = setting(1.0, "seconds of work that may wait", unit="s", above=0, most=60)
    step: int = setting(1, "instances at once", least=1)
    way: str = setting("up", "where to", one_of=("up", "down"))
    calm: bool = False
    limit: float | None = None

    def decide(
        self, reading: Reading, scale: Scale, memory: float, rng: random.Random
    ) -> tuple[Decision, float]:
        return Hold("nothing to do"), reading.now_s

    def begin(self) -> float:
        return 0.0

    def heritage(self, memory: float, now_s: float) -> Heritage:
        return {"ago_s": now_s - memory}

    def born(self, heritage: Heritage, now_s: float) -> float:
        return now_s - heritage.get("ago_s", 0.0)


READING = Reading(now_s=7.0, instances=1, instances_changed_s=0.0, covered_s=7.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"wait_s": 0}, "policy by-backlog: wait_s must be above 0 and at most 60, got 0"),
        ({"wait_s": 61.0}, "wait_s must be above 0 and at most 60, got 61.0"),
        ({"wait_s": "long"}, "wait_s must be a number, got 'long'"),
        ({"wait_s": float("nan")}, "wait_s must be a number, got nan"),
        ({"step": 1.5}, "step must be a whole number, got 1.5"),
        ({"step": 0}, "step must be 1 or more, got 0"),
        ({"step": True}, "step must be a whole number, got True"),
        ({"way": "left"}, "way must be one of 'up', 'down', got 'left'"),
        ({"calm": 1}, "calm must be a bool, got 1"),
        ({"limit": [1]}, r"limit must be a number, got \[1\]"),
        ({"limit": "all"}, "limit must be a number, got 'all'"),
        ({"limit": float("nan")}, "limit must be a number, got nan"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named_with_its_range(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(PipelineError, match=message):
        ByBacklog(**settings)


def test_a_scale_takes_only_policies() -> None:
    wrong: Any = "predictive"
    with pytest.raises(PipelineError, match="scale: policy must be a policy with its settings"):
        Scale(policy=wrong)


def test_the_default_policy_is_the_probabilistic_one() -> None:
    assert Scale().policy == Probabilistic()


def test_a_policy_is_found_by_its_name_with_dashes_or_underscores() -> None:
    assert policy_named("by-backlog") is policy_named("by_backlog") is ByBacklog
    with pytest.raises(PipelineError, match="no scaling policy 'probabalistic'; did you mean 'pro"):
        policy_named("probabalistic")


def test_no_policy_takes_the_name_of_one_that_is_shipped() -> None:
    with pytest.raises(PipelineError, match="a policy named 'fixed' already"):
        type("Fixed", (ByBacklog,), {})


def test_a_scale_goes_to_another_process_by_pickle_and_as_plain_values() -> None:
    scale = Scale(max_instances=3, policy=ByBacklog(wait_s=2.0, calm=True))
    assert pickle.loads(pickle.dumps(scale)) == scale
    assert Scale.of(scale.plain) == scale
    assert policy_of(Fixed().plain) == Fixed()
    assert scale.policy.text == "by-backlog(wait_s=2.0, calm=True)"


def test_a_setting_of_the_policy_is_set_through_the_scale() -> None:
    scale = Scale().with_setting("policy", "by-backlog").with_setting("policy.step", 4)
    assert scale.policy == ByBacklog(step=4)
    assert scale.with_setting("policy", "by_backlog") is scale
    with pytest.raises(PipelineError, match="has no setting 'stop'; did you mean 'step'"):
        scale.with_setting("policy.stop", 4)


def test_a_newcomer_begins_with_what_its_maker_leaves_to_it() -> None:
    scale = Scale(policy=ByBacklog())
    maker = Decider.begin(scale, {}, 5.0)
    maker.decide(READING, random.Random(1))
    left = {"siblings": 2.0, **maker.heritage(10.0)}
    assert Decider.begin(scale, left, 1000.0).memory == 997.0


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: 1 / 0, "policy bad: ZeroDivisionError: division by zero"),
        (lambda: sys.exit(3), "policy bad: SystemExit: 3"),
        (lambda: ("grow", None), r"decide must return a decision \(Hold, .* got 'grow' and a mem"),
        (lambda: None, r"decide must return a decision .* and a memory, .* got None$"),
        (lambda: Hold("so"), r"as in `return Hold\('why'\), memory`, got a Hold without a memory$"),
        (lambda: (Hold("so"), 1, 2), r"decide must return a decision .*, got \(Hold\("),
        (lambda: (Resize(_any("two"), "so"), 0), r"the n of a Resize must be .*, got 'two'$"),
        (lambda: (Resize(_any(2.5), "so"), 0), "the n of a Resize must be a whole .* got 2.5$"),
        (lambda: (Resize(_any(True), "so"), 0), "the n of a Resize must be a whole .* got True$"),
        (
            lambda: (Resize(-1, "so"), 0),
            "ValueError: the n of a Resize must be .* 0 or more, got -1$",
        ),
        (lambda: (Duplicate(0, "so"), 0), "the n of a Duplicate must be .* 1 or more, got 0$"),
        (lambda: (Resize(3, _any(None)), 0), r"a Resize must say why in a text .*, got None$"),
        (lambda: (Leave(_any(7)), 0), r"a Leave must say why in a text .*, got 7$"),
        (
            lambda: (Hold(Explanation(_any(3))), 0),
            "the why of an Explanation must be a text, got 3$",
        ),
        (
            lambda: (Leave("so", _any("b")), 0),
            "the new owner of a Leave must be a whole .* got 'b'$",
        ),
        (lambda: (Move(2.0, 1, "so"), 0), r"the share of a Move must be .* at most 1, got 2\.0$"),
        (lambda: (Move(0.5, -1, "so"), 0), "the to_rank of a Move must be .* got -1$"),
    ],
)
def test_a_policy_that_fails_is_named_and_told_what_was_expected(answer: Any, message: str) -> None:
    @dataclass(frozen=True)
    class Bad(Policy[None]):
        def decide(self, *_: Any) -> Any:
            return answer()

    with pytest.raises(PolicyError, match=r"^policy bad: ") as failed:
        Decider.begin(Scale(policy=Bad()), {}, 0.0).decide(READING, random.Random(1))
    told, _, where = str(failed.value).partition(f" ({__file__}:")
    assert re.search(message, told), told
    assert bool(where) != ("must return" in told)


@pytest.mark.parametrize("left", [None, {"a": "b"}, {1: 1.0}, [1.0]])
def test_a_policy_that_leaves_no_map_to_newcomers_is_told_what_was_expected(left: Any) -> None:
    @dataclass(frozen=True)
    class Leaves(Fixed):
        def heritage(self, *_: Any) -> Any:
            return left

    with pytest.raises(PolicyError, match="heritage must return a map from texts to numbers, got"):
        Decider.begin(Scale(policy=Leaves()), {}, 0.0).heritage(1.0)


def test_whole_numbers_of_other_libraries_and_rules_as_words_are_taken() -> None:
    decision = Resize(_any(np.int64(3)), _any(Why.OVERLOADED))
    assert type(decision.n) is int
    assert decision == Resize(3, "")
    assert decision.text == "resize to 3: overloaded"


def test_a_policy_that_is_no_dataclass_is_refused_where_it_is_made() -> None:
    class Bare(Fixed):
        wait_s: float = setting(0.3, "seconds of work that may wait", unit="s", above=0)

    with pytest.raises(PipelineError, match=r"policy bare: its class needs @dataclass"):
        Bare()


def test_nor_is_one_whose_settings_have_neither_range_nor_words() -> None:
    class Plain(Fixed):
        shared: ClassVar[int] = 3
        wait_s: float = 0.3

    with pytest.raises(PipelineError, match=r"needs @dataclass.* without it, 'wait_s' is none"):
        Plain()


def test_bounds_of_a_setting_that_is_no_number_are_refused() -> None:
    @dataclass(frozen=True)
    class Bounded(Fixed):
        way: str = setting("up", "direction", least=3)

    with pytest.raises(PipelineError, match="policy bounded: way must be a number, got 'up'"):
        Bounded()


@pytest.mark.parametrize("number", ["a", None, 2.5, True])
def test_a_policy_that_begins_with_no_number_is_refused_before_anything_starts(number: Any) -> None:
    @dataclass(frozen=True)
    class Begins(Fixed):
        def at_start(self, scale: Scale) -> int:
            return number  # type: ignore[no-any-return]

    pipeline = Pipeline("begins")
    numbers = pipeline.source("numbers", items([1]))
    numbers.map("work", abs, scale=Scale(policy=Begins())).sink("out", discard())
    with pytest.raises(PipelineError, match="'work': policy begins: at_start must return a whole"):
        pipeline.validate()
