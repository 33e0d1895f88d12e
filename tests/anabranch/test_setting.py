"""`--set OPERATOR.scale.SETTING=VALUE` and `--input SOURCE=PATH`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.policies.elysium.controller import Elysium
from anabranch.runtime.policies.policy import Policy, Scale
from anabranch.runtime.policies.settings import setting
from anabranch.runtime.sinks.discard import discard
from anabranch.runtime.sinks.stdout import stdout
from anabranch.runtime.sources import csv, files, generate, items, stdin
from anabranch.runtime.values.checks import PipelineError
from anabranch.setting import apply_inputs, apply_settings


@dataclass(frozen=True)
class Turning(Policy[None]):
    step: int = setting(1, "how far", least=1)
    calm: bool = False

    def decide(self, *_: Any) -> Any:
        raise AssertionError("never called here")


def pipeline() -> Pipeline:
    made = Pipeline("headlines")
    lines = made.source("lines", items(["a b"]))
    words = lines.flat_map("split", str.split, scale=Scale(max_instances=8))
    words.map("clean", str.strip).sink("out", discard())
    return made


def scale_of(made: Pipeline, name: str) -> Scale:
    found = {o.name: o.scale for o in made.operators.values()}[name]  # type: ignore[index]
    assert found is not None
    return found


def test_settings_are_changed_with_their_types() -> None:
    made = pipeline()
    apply_settings(
        made,
        ["split.scale.max_instances=4", "split.scale.capacity=1e3", "split.scale.low = 0.5"],
    )
    assert scale_of(made, "split") == Scale(max_instances=4, capacity=1000.0, low=0.5)
    apply_settings(made, ["split.scale.capacity=none"])
    assert scale_of(made, "split").capacity is None


def test_an_operator_without_scale_gets_one() -> None:
    made = pipeline()
    apply_settings(made, ["clean.scale.max_instances=3"])
    assert scale_of(made, "clean").max_instances == 3


def test_the_order_of_settings_does_not_matter() -> None:
    for settings in (
        ["split.scale.min_instances=10", "split.scale.max_instances=20"],
        ["split.scale.max_instances=20", "split.scale.min_instances=10"],
        ["split.scale.target=0.3", "split.scale.high=0.4", "split.scale.low=0.2"],
    ):
        made = pipeline()
        apply_settings(made, settings)
        for text in settings:
            name, value = text.removeprefix("split.scale.").split("=")
            assert getattr(scale_of(made, "split"), name) == float(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("split.scale.max_instances=four", r"max_instances: expected int, got 'four'"),
        ("split.scale.max_instances=4.5", r"max_instances: expected int, got '4.5'"),
        ("split.scale.capacity=fast", r"capacity: expected float or None, got 'fast'"),
        (
            "split.scale.max_instance=4",
            r"no setting 'max_instance'; did you mean 'max_instances'\?",
        ),
        ("split.scale.colour=red", r"no setting 'colour'; known: target, high, low"),
        ("split.scal.low=0.1", r"did you mean 'scale'\?"),
        ("split.retry.attempts=1", r"no 'retry' to set; expected OPERATOR.scale.SETTING=VALUE"),
        ("splt.scale.low=0.1", r"no operator 'splt'; did you mean 'split'\?"),
        ("split.scale.low", r"expected OPERATOR.scale.SETTING=VALUE"),
        ("split=4", r"expected OPERATOR.scale.SETTING=VALUE"),
        ("split.scale.low=0.9", r"expected 0 < low <= target"),
        ("split.scale.max_instances=0", r"expected 1 <= min_instances <= max_instances"),
    ],
)
def test_a_mistake_is_told_with_a_suggestion(text: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        apply_settings(pipeline(), ["split.scale.cooldown_s=1", text])


@pytest.mark.parametrize(
    "settings",
    [
        ["split.scale.policy=turning", "split.scale.policy.step=2", "split.scale.policy.calm=yes"],
        ["split.scale.policy.calm=true", "split.scale.policy.step=2", "split.scale.policy=Turning"],
    ],
)
def test_a_policy_and_its_settings_are_chosen_in_any_order(settings: list[str]) -> None:
    made = pipeline()
    apply_settings(made, settings)
    assert scale_of(made, "split") == Scale(max_instances=8, policy=Turning(step=2, calm=True))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("split.scale.policy=turnin", r"no scaling policy 'turnin'; did you mean 'turning'\?"),
        ("split.scale.policy.step=2", r"policy probabilistic has no setting 'step'; known: none"),
        ("clean.scale.policy.step=2", r"policy probabilistic has no setting 'step'; known: none"),
        ("split.scale.policy.in_concert=yes", "policy probabilistic has no setting 'in_concert'"),
        ("out.scale.placement=odd", r"expected placement 'balanced' or 'flux'"),
    ],
)
def test_a_mistake_about_policies_is_told(text: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        apply_settings(pipeline(), [text])


@pytest.mark.parametrize(
    "text",
    [
        "out.scale.policy=fixed",
        "out.scale.high=0.9",
        "lines.scale.policy=fixed",
        "clean.scale.policy=turning",
        "clean.scale.cooldown_s=1",
    ],
)
def test_an_operator_without_scale_takes_no_policy_and_no_thresholds(text: str) -> None:
    (name, *_) = text.split(".")
    told = f"'{text}': operator '{name}' has no scale, so nothing decides how many instances"
    with pytest.raises(PipelineError, match=re.escape(told)):
        apply_settings(pipeline(), [text])
    made = pipeline()
    apply_settings(made, [text, f"{name}.scale.max_instances=2"])
    assert scale_of(made, name).max_instances == 2


def test_a_sink_that_cannot_be_shared_takes_no_policy() -> None:
    made = Pipeline("shown")
    made.source("lines", items(["a b"])).sink("out", stdout())
    with pytest.raises(PipelineError, match=r"'out' always has one instance, since .* cannot be"):
        apply_settings(made, ["out.scale.policy=fixed"])


def test_the_capacity_of_an_operator_with_one_instance_is_taken() -> None:
    made = pipeline()
    apply_settings(made, ["clean.scale.capacity=100"])
    assert scale_of(made, "clean").capacity == 100.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step=0", r"policy turning: step must be 1 or more, got 0"),
        ("step=few", r"policy.step: expected int, got 'few'"),
        ("calm=perhaps", r"policy.calm: expected true or false, got 'perhaps'"),
    ],
)
def test_a_wrong_setting_of_a_policy_is_told(text: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        apply_settings(pipeline(), ["split.scale.policy=turning", f"split.scale.policy.{text}"])


def test_a_source_reads_other_files_in_its_own_format() -> None:
    made = Pipeline("inputs")
    sources = {
        "table": csv("a.csv", delimiter=";"),
        "typed": stdin(format="jsonl"),
        "made": generate(abs),
    }
    for name, source in sources.items():
        made.source(name, source).sink(f"{name}_out", discard())
    apply_inputs(made, ["table=b.csv", "table=c=d/*.csv", "typed=t", "made=m"])
    assert [o.source for o in made.operators.values() if o.source is not None] == [
        csv("b.csv", "c=d/*.csv", delimiter=";"),
        files("t", format="jsonl"),
        files("m", format="jsonl"),
    ]
    with pytest.raises(PipelineError, match="has no operator 'tabel'; did you mean 'table'"):
        apply_inputs(made, ["tabel=x"])


def test_a_controller_decides_for_all_operators_that_scale() -> None:
    made = pipeline()
    made.with_scale("split", "max_instances", 4)
    apply_settings(made, ["controller=elysium", "controller.core_max=0.5"])
    assert scale_of(made, "split").policy == Elysium(core_max=0.5)
    assert made.operators[OperatorName("out")].scale is None


def test_an_operator_with_a_policy_of_its_own_keeps_it() -> None:
    made = pipeline()
    texts = ["controller=elysium", "split.scale.policy=fixed", "clean.scale.max_instances=3"]
    apply_settings(made, texts)
    assert scale_of(made, "split").policy.name == "fixed"
    assert scale_of(made, "clean").policy == Elysium()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["controller=elysim"], "no scaling policy 'elysim'; did you mean 'elysium'"),
        (["controller=predictive"], "predictive decides for one operator, .* predictive-central"),
        (["controller.core_max=0.5"], "'controller.core_max=0.5': name a controller as well"),
        (["controller=elysium", "controller.cor_max=1"], "'cor_max'; did you mean 'core_max'"),
        (["controller=elysium", "controller.core_max=x"], "core_max: expected float, got 'x'"),
        (["controller=elysium", "controller.core_max=0.1"], "expected core_min <= core_max"),
        (["controller=elysium", "split.scale.max_instances=1"], "no operator scales"),
    ],
)
def test_a_wrong_controller_is_told(texts: list[str], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        apply_settings(pipeline(), texts)
