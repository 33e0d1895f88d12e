"""What controllers have learnt, written to a file and read again."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.policies.control import Control
from anabranch.runtime.policies.controller import Controller
from anabranch.runtime.policies.elysium.controller import Elysium
from anabranch.runtime.policies.hierarchical.controller import Hierarchy
from anabranch.runtime.policies.learnt_file import LearntFile, learnt_file, read_learnt
from anabranch.runtime.policies.look_and_plan import Look, OperatorLook, Plan, Seen
from anabranch.runtime.policies.policy import Heritage, Scale
from anabranch.runtime.values.checks import PipelineError


@dataclass(frozen=True)
class Named:
    name: str
    upstream: tuple[str, ...]
    scale: Scale | None = None


def operators(policy: Controller[Any] | None, above: str = "lines") -> list[Named]:
    scale = None if policy is None else Scale(max_instances=8, policy=policy)
    return [Named("lines", ()), Named("work", (above,), scale)]


def look(now_s: float) -> Look:
    """Forty tuples per second, each of 20 ms."""
    plain = Scale(max_instances=8)

    def of(name: str, above: tuple[str, ...], below: tuple[str, ...], busy: float) -> OperatorLook:
        reading = Reading(
            now_s=now_s,
            instances=1,
            instances_changed_s=0.0,
            covered_s=1.0,
            processed_total=40 * now_s,
            busy_total_s=busy * now_s,
            sent_to=dict.fromkeys(below, int(40 * now_s)),
        )
        seen = (Seen(f"{name}.0", reading),)

        return OperatorLook(
            name=name,
            scale=plain,
            upstream=above,
            downstream=below,
            instances=seen,
            processed_total=40 * now_s,
            busy_total_s=busy * now_s,
            told_total_s=now_s,
        )

    both = {
        "lines": of("lines", (), ("work",), 0.1),
        "work": of("work", ("lines",), (), 0.8),
    }
    return Look(now_s, both)


def begun(policy: Controller[Any], left: Heritage | None, now_s: float) -> Control:
    return Control.begin(policy, ("work",), random.Random(7), now_s, left, is_resumed=False)


def plans(control: Control, first_s: int) -> list[Plan]:
    found = []
    for at in range(first_s, first_s + 60):
        control.step(look(at))
        found.append(control.plan)
    return found


@pytest.mark.parametrize("policy", [Elysium(every_s=6.0), Hierarchy(every_s=6.0)])
def test_a_controller_decides_the_same_with_what_was_written_and_read(
    policy: Controller[Any], tmp_path: Path
) -> None:
    first = begun(policy, None, 0.0)
    plans(first, 1)
    left = first.heritage(61.0)
    assert left
    path = tmp_path / "learnt"
    path.write_bytes(learnt_file(operators(policy), {policy: left}).to_json())
    read = read_learnt(path).of(policy)
    assert read == left
    again, same = begun(policy, read, 100.0), begun(policy, left, 100.0)
    assert plans(again, 101) == plans(same, 101)
    assert again.heritage(161.0) == same.heritage(161.0)
    assert again.heritage(161.0) != left


def test_elysium_begins_with_all_that_it_has_learnt() -> None:
    policy = Elysium(every_s=6.0)
    first = begun(policy, None, 0.0)
    plans(first, 1)
    used = [text for text in first.heritage(61.0) if text.startswith("used work ")]
    assert used
    with_it = begun(policy, first.heritage(61.0), 100.0).heritage(100.0)
    assert with_it == first.heritage(61.0)
    assert begun(policy, None, 100.0).heritage(100.0) == {}


def test_numbers_that_json_does_not_have_come_back(tmp_path: Path) -> None:
    path, policy = tmp_path / "learnt", Elysium()
    left = {"a": math.inf, "b": -math.inf, "c": 0.1 + 0.2, "d": 5e-324, "e": math.nan, "f": -0.0}
    path.write_bytes(learnt_file(operators(policy), {policy: left}).to_json())
    read = read_learnt(path).of(policy)
    assert {k: repr(v) for k, v in (read or {}).items()} == {k: repr(v) for k, v in left.items()}


def test_that_of_the_same_settings_comes_before_that_of_others() -> None:
    one, two, three = Elysium(every_s=1.0), Elysium(every_s=2.0), Elysium(every_s=3.0)
    file = learnt_file(operators(one), {one: {"x": 1.0}, two: {"x": 2.0}})
    assert [file.of(p) for p in (one, two, three)] == [{"x": 1.0}, {"x": 2.0}, {"x": 2.0}]
    assert file.of(Hierarchy()) is None


def written(path: Path) -> dict[str, Any]:
    policy = Elysium()
    path.write_bytes(learnt_file(operators(policy), {policy: {"used work x": 1.5}}).to_json())
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"none: No such file or directory; name another"):
        read_learnt(tmp_path / "none")
    with pytest.raises(PipelineError, match="Is a directory"):
        read_learnt(tmp_path)


def changed_number(plain: dict[str, Any]) -> None:
    plain["controllers"][0]["learnt"]["used work x"] = 2.5


def text_as_number(plain: dict[str, Any]) -> None:
    plain["controllers"][0]["learnt"]["used work x"] = "many"


def another_format(plain: dict[str, Any]) -> None:
    plain["format"] = 2


def another_kind(plain: dict[str, Any]) -> None:
    plain["kind"] = "report"


def without_operators(plain: dict[str, Any]) -> None:
    del plain["operators"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (changed_number, r"damaged or changed \(expected checksum \d+, got \d+\)"),
        (text_as_number, r"damaged or changed \(Invalid enum value 'many'"),
        (another_format, r"expected format 1, got 2: another version of anabranch"),
        (another_kind, r"expected a file that a run has written with --keep-learnt"),
        (without_operators, r"missing required field `operators`"),
    ],
)
def test_a_file_that_was_changed_is_refused(
    change: Callable[[dict[str, Any]], None], says: str, tmp_path: Path
) -> None:
    plain = written(tmp_path / "learnt")
    read_learnt(tmp_path / "learnt")
    change(plain)
    (tmp_path / "learnt").write_text(json.dumps(plain))
    with pytest.raises(PipelineError, match=says) as refused:
        read_learnt(tmp_path / "learnt")
    assert str(refused.value).startswith(f"--learnt {tmp_path / 'learnt'}: ")


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"[]", b"null", b"1"])
def test_what_is_no_such_file_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "learnt").write_bytes(data)
    with pytest.raises(PipelineError, match=r"damaged or changed|expected a file that a run"):
        read_learnt(tmp_path / "learnt")


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "learnt")
    data = (tmp_path / "learnt").read_bytes().rstrip()
    for size in range(len(data)):
        (tmp_path / "learnt").write_bytes(data[:size])
        with pytest.raises(PipelineError):
            read_learnt(tmp_path / "learnt")


def file_of(policy: Controller[Any]) -> LearntFile:
    return learnt_file(operators(policy), {policy: {"x": 1.0}})


def test_a_run_that_cannot_begin_with_it_is_refused() -> None:
    file, path = file_of(Elysium()), Path("some.learnt")
    file.check(path, operators(Elysium(every_s=3.0)))
    with pytest.raises(PipelineError, match="no operator has a controller"):
        file.check(path, operators(None))
    says = "expected what controller hierarchy has learnt, got what elysium has"
    with pytest.raises(PipelineError, match=says):
        file.check(path, operators(Hierarchy()))
    says = "operator 'work' followed 'lines' there, and follows 'words' here"
    with pytest.raises(PipelineError, match=says):
        file.check(path, operators(Elysium(), above="words"))


def test_another_pipeline_may_begin_with_it() -> None:
    other = [Named("other", (), Scale(max_instances=2, policy=Elysium()))]
    file_of(Elysium()).check(Path("some.learnt"), other)
