"""Controllers in a run: looks of what instances tell, orders to them, and a controller's
incarnations."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.policies.controller import Controller
from anabranch.runtime.policies.learnt_file import learnt_file, read_learnt
from anabranch.runtime.policies.look_and_plan import Look, Plan
from anabranch.runtime.policies.policy import Heritage
from anabranch.runtime.policies.settings import setting
from anabranch.runtime.values.checks import PipelineError
from anabranch.views.figures_of_run import figures
from tests.runtime import fake_instance as fake
from tests.runtime.agent_runs import finish, start, until
from tests.runtime.fake_instance import Endless, Fake, three_operators

pytestmark = pytest.mark.usefixtures("usual_behaviour")


@dataclass(frozen=True)
class Wanted(Controller[int]):
    """For tests: always as many; remembers how often it has planned."""

    born_with: ClassVar[list[Heritage]] = []
    looks: ClassVar[list[Look]] = []

    n: int = setting(2, "instances", least=0)

    def assess(self, look: Look, memory: int, rng: random.Random) -> tuple[Plan | None, int]:
        self.looks.append(look)
        if self.n == 0:
            raise ArithmeticError("no number")
        return Plan(dict.fromkeys(look.controlled, self.n), "wanted"), memory + 1

    def begin(self) -> int:
        return 0

    def heritage(self, memory: int, now_s: float) -> Heritage:
        return {"plans": memory}

    def born(self, heritage: Heritage, now_s: float) -> int:
        self.born_with.append(heritage)
        return int(heritage.get("plans", 0))


@pytest.fixture(autouse=True)
def fresh() -> None:
    Wanted.born_with.clear()
    Wanted.looks.clear()


def tell_a_reading(me: Fake) -> None:
    """Twenty tuples wait, and an order is noted and obeyed."""
    now_s = time.monotonic()
    reading = Reading(
        now_s=now_s, instances=1, instances_changed_s=now_s, covered_s=1.0, queued=20, keeper=True
    )
    me.status(reading=reading)
    obey = me.obey

    def noted(message: msg.ToProcess | None) -> None:
        if isinstance(message, msg.Order):
            me.note("ordered", f"{me.id} {message.change} {message.why}")
        obey(message)

    me.obey = noted  # type: ignore[method-assign]


def pipeline_of(policy: Controller[Any]) -> Pipeline:
    return three_operators(Endless(), policy=policy, max_instances=4, period_s=0.1)


def ended(run: Any, condition: Callable[[], bool]) -> Any:
    until(condition)
    run.end_input()
    return finish(run)


def told(report: Any, kind: str) -> list[str]:
    return [e.detail for e in report.events if kind in (e.kind, e.label)]


def test_a_controller_sees_what_instances_tell_and_its_orders_reach_them() -> None:
    fake.BEHAVIOUR["work"] = tell_a_reading
    run = start(pipeline_of(Wanted(n=3)))
    report = ended(run, lambda: any("ordered" in e.label for e in run.snapshot().events))
    assert told(report, "ordered")[0].startswith("work.0 2 wanted: wanted")
    look = next(look for look in Wanted.looks if look.operators["work"].waiting)
    work = look.operators["work"]
    assert (work.n, work.waiting) == (1, 20)
    assert (work.upstream, work.downstream) == (("lines",), ("out",))
    assert look.controlled == ("work",)


def test_a_controller_that_fails_is_told_and_the_run_goes_on() -> None:
    run = start(pipeline_of(Wanted(n=0)))
    report = ended(run, lambda: bool(Wanted.looks))
    assert report.ok
    (failed,) = told(report, "policy_failed")
    assert failed.startswith(f"policy wanted: ArithmeticError: no number ({__file__}:")
    assert failed.endswith(" in assess); it decides nothing any more")
    assert len(Wanted.looks) == 1


def test_a_run_that_is_resumed_gives_its_controller_what_the_last_one_has_left(
    tmp_path: Path,
) -> None:
    first = start(pipeline_of(Wanted()), state=tmp_path)
    until(lambda: len(Wanted.looks) > 1)
    first.stop()
    plans = len(Wanted.looks)
    second = start(pipeline_of(Wanted()), state=tmp_path, resume=True)
    assert ended(second, lambda: len(Wanted.looks) > plans).ok
    assert Wanted.born_with[0] == {}
    assert Wanted.born_with[1]["plans"] in (plans - 1, plans)


def test_a_run_in_which_nothing_decides_has_no_controllers() -> None:
    run = start(pipeline_of(Wanted()), scaling=False)
    run.end_input()
    assert finish(run).ok
    assert Wanted.looks == []


def test_the_last_plan_and_its_reason_are_shown() -> None:
    fake.BEHAVIOUR["work"] = tell_a_reading
    run = start(pipeline_of(Wanted(n=3)))
    until(lambda: any(each.why for each in run.snapshot().controllers))
    (shown,) = run.snapshot().controllers
    assert (shown.name, shown.operators) == ("wanted(n=3)", ("work",))
    assert (shown.wanted, shown.hosts, shown.why) == ({"work": 3}, None, "wanted")
    (figures_shown,) = figures(run.snapshot())["controllers"]
    assert figures_shown["planned_ago_s"] >= 0
    run.end_input()
    assert finish(run).ok


def test_a_controller_that_has_failed_is_shown_so() -> None:
    run = start(pipeline_of(Wanted(n=0)))
    until(lambda: any(each.failed for each in run.snapshot().controllers))
    assert "ArithmeticError: no number" in run.snapshot().controllers[0].failed
    run.end_input()
    assert finish(run).ok


def test_other_settings_of_a_resumed_controller_keep_what_was_learnt(tmp_path: Path) -> None:
    first = start(pipeline_of(Wanted()), state=tmp_path)
    until(lambda: len(Wanted.looks) > 1)
    first.stop()
    plans = len(Wanted.looks)
    second = start(pipeline_of(Wanted(n=3)), state=tmp_path, resume=True)
    assert ended(second, lambda: len(Wanted.looks) > plans).ok
    assert Wanted.born_with[1]["plans"] in (plans - 1, plans)


def test_a_run_begins_with_what_another_one_has_learnt(tmp_path: Path) -> None:
    file = tmp_path / "learnt"
    first = start(pipeline_of(Wanted()), keep_learnt=file)
    assert ended(first, lambda: len(Wanted.looks) > 1).ok
    plans = len(Wanted.looks)
    left = read_learnt(file).of(Wanted())
    assert left == {"plans": plans}
    second = start(pipeline_of(Wanted(n=3)), learnt=file, keep_learnt=file)
    assert ended(second, lambda: len(Wanted.looks) > plans).ok
    assert Wanted.born_with == [{}, left]
    assert read_learnt(file).of(Wanted()) == {"plans": len(Wanted.looks)}


def test_what_it_began_with_outlives_a_stop_before_its_first_plan(tmp_path: Path) -> None:
    policy = Wanted(n=0)  # fails at its first look, so has no plan
    file = tmp_path / "learnt"
    file.write_bytes(
        learnt_file(pipeline_of(policy).operators.values(), {policy: {"plans": 7.0}}).to_json()
    )
    first = start(pipeline_of(policy), state=tmp_path / "state", learnt=file)
    until(lambda: bool(Wanted.looks))
    first.stop()
    second = start(pipeline_of(Wanted()), state=tmp_path / "state", resume=True)
    assert ended(second, lambda: len(Wanted.looks) > 1).ok
    assert Wanted.born_with == [{"plans": 7.0}, {"plans": 7.0}]


def test_a_run_that_would_learn_nothing_or_destroy_something_is_refused(tmp_path: Path) -> None:
    file, other = tmp_path / "learnt", tmp_path / "notes.txt"
    other.write_text("notes")
    with pytest.raises(PipelineError, match="no operator has a controller"):
        start(three_operators(Endless()), keep_learnt=file)
    with pytest.raises(PipelineError, match="would overwrite a file that no run has written so"):
        start(pipeline_of(Wanted()), keep_learnt=other)
    with pytest.raises(PipelineError, match="the report writes there"):
        start(pipeline_of(Wanted()), keep_learnt=file, report=file)
    with pytest.raises(FileNotFoundError, match=r"--keep-learnt .*: the directory"):
        start(pipeline_of(Wanted()), keep_learnt=tmp_path / "no" / "learnt")
    with pytest.raises(PipelineError, match="keep_learnt needs controllers that decide"):
        start(pipeline_of(Wanted()), keep_learnt=file, scaling=False)
    assert other.read_text() == "notes"
    assert not file.exists()
