"""A number of instances that a user has said, in virtual time: it is reached and kept, whatever the
policy of the operator wants, until it is taken back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from anabranch.runtime.keyed.windows import tumbling
from anabranch.runtime.live.agent.pins import check_pin
from anabranch.runtime.live.link.messages import Decide
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.policies.policy import Policy, Scale
from anabranch.runtime.policies.predictive.central import PredictiveCentral
from anabranch.runtime.policies.probabilistic import Probabilistic
from anabranch.runtime.sinks.discard import discard
from anabranch.runtime.sources import items
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.kinds import EventKind
from anabranch.runtime.world.forecast import Forecasting
from anabranch.runtime.world.forecast_values import Arrivals, Cost, look_s_for
from anabranch.runtime.world.processes import Host


def pipeline(scale: Scale | None) -> Pipeline:
    made = Pipeline("made")
    lines = made.source("lines", items([1]))
    lines.map("work", str, scale=scale).sink("out", discard())
    return made


def keyed(scale: Scale) -> Pipeline:
    made = Pipeline("made")
    lines = made.source("lines", items([1]))
    counted = lines.key_by(lambda x: x).fold("work", int, lambda n, _: n + 1, scale=scale)
    counted.sink("out", discard())
    return made


Steps = Mapping[int, int | None]


def course(
    made: Pipeline,
    steps: Steps,
    *,
    per_s: float,
    seconds: int,
    cores: float = 64.0,
    decided: tuple[int, str] = (0, ""),
) -> tuple[list[int], Forecasting]:
    """Active instances of `work` at the end of each second, if it is pinned so at these seconds.
    `decided`: what all are told then."""
    look_s = look_s_for(per_s)
    due = [int(per_s * i * look_s) for i in range(int(seconds / look_s) + 2)]
    costs = {"lines": Cost(), "work": Cost(capacity=20.0), "out": Cost()}
    world = Forecasting(
        made, costs, Arrivals(look_s, {"lines": due}), seed=1, hosts=[Host(cores)], start_s=0.5
    )
    found: list[int] = []

    def look() -> None:
        found.append(world.active("work"))
        if len(found) in steps:
            world.agent.pin("work", steps[len(found)])
        if len(found) == decided[0]:
            for member in world.agent.roster.active("work"):
                world.agent.messenger.send(member.id, Decide(action=decided[1]))

    world.run(seconds, 1.0, look)
    return found, world


POLICIES = [Probabilistic(), PredictiveCentral()]


@pytest.mark.parametrize("policy", POLICIES)
def test_an_idle_operator_has_as_many_as_were_asked_for_and_its_policy_none_to_take(
    policy: Policy[object],
) -> None:
    scale = Scale(max_instances=8, policy=policy)
    found, world = course(pipeline(scale), {3: 6, 40: None}, per_s=10, seconds=110)
    assert found[:3] == [1, 1, 1]
    assert set(found[12:40]) == {6}
    assert found[-1] < 6
    snapshot = world.agent.snapshot().operator("work")
    assert snapshot.pinned is None


@pytest.mark.parametrize("policy", POLICIES)
def test_an_overloaded_operator_gets_no_more_than_were_asked_for(policy: Policy[object]) -> None:
    scale = Scale(max_instances=8, policy=policy)
    found, world = course(pipeline(scale), {40: 2}, per_s=100, seconds=90)
    assert found[38] > 4
    assert set(found[-10:]) == {2}
    assert world.agent.snapshot().operator("work").pinned == 2


@pytest.mark.parametrize("made", [pipeline, keyed])
def test_a_full_host_and_a_budget_of_actions_hinder_no_user(
    made: Callable[[Scale], Pipeline],
) -> None:
    scale = Scale(max_instances=8, actions_per_minute_max=1)
    found, _ = course(made(scale), {5: 4, 20: 1}, per_s=40, seconds=90, cores=1.0)
    assert found[18] == 4
    assert found[-1] == 1


def test_an_instance_that_relocates_and_its_newcomer_count_once() -> None:
    scale = Scale(max_instances=8)
    found, world = course(pipeline(scale), {2: 4}, per_s=10, seconds=40, decided=(20, "relocate"))
    assert found[18] == found[-1] == 4
    recorder = world.agent.recorder
    assert (recorder.joins["work"], recorder.leaves["work"]) == (3 + 4, 4)
    told = [e.detail for e in recorder.events if "as many as a user has asked for" in e.detail]
    assert told == ["duplicate 3: scale: as many as a user has asked for; 1 instance"]


@pytest.mark.parametrize("policy", POLICIES)
def test_whichever_has_the_role_of_the_keeper_the_others_leave(policy: Policy[object]) -> None:
    scale = Scale(max_instances=8, policy=policy)
    steps: Steps = {2: 3, 20: 1}
    found, world = course(pipeline(scale), steps, per_s=10, seconds=40, decided=(12, "hand_over"))
    assert (found[18], found[-1]) == (3, 1)
    (left,) = world.agent.roster.active("work")
    assert (left.keeper, left.founder) == (True, False)


def test_an_operator_without_a_scale_can_be_given_instances() -> None:
    found, world = course(pipeline(None), {2: 3}, per_s=10, seconds=20)
    assert found[-1] == 3
    orders = [e.detail for e in world.agent.recorder.events if e.kind is EventKind.DECIDED]
    assert orders[0].startswith("duplicate 2: scale: as many as a user has asked for")


def test_what_an_operator_cannot_have_is_refused_with_its_bound() -> None:
    made = pipeline(Scale(min_instances=2, max_instances=8))
    in_order = Pipeline("in_order")
    timed = in_order.source("lines", items([1])).map("before", float)
    in_time = timed.event_time(lambda x: x, disorder_s=0).key_by(str)
    sums = in_time.window(tumbling(1.0), time=float).fold("sums", 0.0, lambda total, x: total + x)
    sums.sink("out", discard())
    for operators, name, n, told in [
        (made.operators, "work", 9, r"at most 8 instances \(max_instances of its scale\); 9 were"),
        (made.operators, "work", 1, r"at least 2 instances \(min_instances of its scale\); 1 were"),
        (made.operators, "wrok", 1, r"no operator 'wrok'; did you mean 'work'\?"),
        (in_order.operators, "before", 2, "cannot have several instances: event time is read"),
    ]:
        with pytest.raises(PipelineError, match=told):
            check_pin(operators, name, n)
    check_pin(made.operators, "work", None)
    check_pin(made.operators, "work", 8)
