"""A number of instances that a user has said: instances hear of it, also in a resumed run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.runtime.live.agent.launch import Run
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.measuring.reading import Reading
from anabranch.runtime.values.checks import PipelineError
from tests.runtime import fake_instance as fake
from tests.runtime.agent_runs import finish, start, until
from tests.runtime.fake_instance import Endless, Fake, three_operators

pytestmark = pytest.mark.usefixtures("usual_behaviour")


def tells_what_it_hears(me: Fake) -> None:
    now_s = time.monotonic()
    reading = Reading(
        now_s=now_s, instances=1, instances_changed_s=now_s, covered_s=1.0, keeper=True
    )
    me.status(reading=reading)
    obey = me.obey

    def noted(message: msg.ToProcess | None) -> None:
        if isinstance(message, msg.Pin):
            me.note("pinned", str(message.holds))
        if isinstance(message, msg.Order):
            me.note("ordered", f"{message.change} {message.insists} {message.why}")
        obey(message)

    me.obey = noted  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def telling() -> None:
    fake.BEHAVIOUR["work"] = tells_what_it_hears


def heard(run: Run, label: str) -> list[str]:
    return [e.detail for e in run.snapshot().events if e.label == label]


def pipeline() -> ab.Pipeline:
    return three_operators(Endless(), max_instances=4)


def test_an_instance_hears_that_it_is_pinned_and_gets_orders_also_when_the_run_is_resumed(
    tmp_path: Path,
) -> None:
    run = start(pipeline(), state=tmp_path)
    run.scale("work", 3)
    until(lambda: bool(heard(run, "ordered")))
    assert heard(run, "pinned") == ["True"]
    assert heard(run, "ordered")[0] == ("2 True scale: as many as a user has asked for; 1 instance")
    run.stop()
    run = start(pipeline(), state=tmp_path, resume=True)
    until(lambda: heard(run, "pinned") == ["True", "True"])
    assert run.snapshot().operator("work").pinned == 3
    run.scale("work", None)
    until(lambda: heard(run, "pinned")[-1:] == ["False"])
    until(lambda: run.snapshot().operator("work").pinned is None)
    run.end_input()
    assert finish(run).ok


def test_what_an_operator_cannot_have_is_refused_and_so_is_a_run_that_has_ended() -> None:
    run = start(pipeline())
    with pytest.raises(PipelineError, match="at most 4 instances"):
        run.scale("work", 5)
    run.end_input()
    assert finish(run).ok
    with pytest.raises(PipelineError, match="has ended"):
        run.scale("work", 2)
