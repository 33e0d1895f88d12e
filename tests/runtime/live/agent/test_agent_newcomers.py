"""Newcomers and scripted decisions: who may come, who goes, who never took part."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from anabranch.protocol.limits import Limits
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.policies.script import parse_script
from anabranch.runtime.reporting.failure import RunFailed
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.reporting.status import id_to_wire
from tests.runtime import fake_instance as fake
from tests.runtime.agent_runs import (
    TIMEOUT_S,
    finish,
    kinds,
    pause,
    start,
    until,
)
from tests.runtime.fake_instance import Endless, Fake, Numbers, three_operators

pytestmark = pytest.mark.usefixtures("usual_behaviour")


def asks(n: int) -> Any:
    """Behaviour: ask for `n` instances and tell what came."""

    def ask(me: Fake) -> None:
        if me.assign.bootstrap is None:
            return
        me.status()
        me.say(msg.Spawn(request=7, n=n))
        answer = me.expect(msg.Spawned)
        assert answer.request == 7
        ids = " ".join(f"{i[0]}.{i[1]}<{i[2]}" for i, _ in answer.children)
        me.note("answer", f"{ids}|{answer.reason}")
        me.obey(answer)

    return ask


def answers(report: Report) -> list[str]:
    return [e.detail for e in report.events if e.label == "answer"]


def test_a_relocation_that_gets_no_newcomer_is_over_for_the_agent_too() -> None:
    """At its bound, an operator may have one more for a moment; later it may not."""

    def ask(me: Fake) -> None:
        if me.assign.bootstrap is None:
            return
        me.status()
        for relocates, n in ((True, 1), (True, 0), (False, 1)):
            me.say(msg.Spawn(request=7, n=n, relocates=relocates))
            answer = me.expect(msg.Spawned)
            me.note("answer", f"{len(answer.children)}|{answer.reason}")
            me.say(msg.Discard(children=[child for child, _ in answer.children]))
        me.obey(answer)

    fake.BEHAVIOUR["work"] = ask
    report = finish(start(three_operators(max_instances=1)))
    assert answers(report) == ["1|", "0|", "0|at most 1 instances of work"]


def test_newcomers_are_ready_before_their_creator_hears_of_them() -> None:
    fake.BEHAVIOUR["work"] = asks(2)
    run = start(three_operators(Endless()))
    until(lambda: run.snapshot().operator("work").instances == 3)
    run.end_input()
    report = finish(run)
    assert answers(report) == ["work.1<0 work.2<0|"]
    work = report.operator("work")
    assert (work.joins, work.instances_peak, work.instances_ever) == (2, 3, 3)
    joined = [e for e in report.events if e.kind == "joined"]
    assert [(e.instances, e.detail) for e in joined] == [(2, "by work.0"), (3, "by work.0")]


def test_siblings_that_ask_together_do_not_exceed_the_limit() -> None:
    fake.BEHAVIOUR["work"] = asks(2)
    run = start(three_operators(Endless(), min_instances=3, max_instances=5))
    until(lambda: run.snapshot().operator("work").instances == 5)
    run.end_input()
    report = finish(run)
    given = [a.partition("|")[0].split() for a in answers(report)]
    assert sorted(len(g) for g in given) == [0, 0, 2]
    assert "work.0|at most 5 instances of work" not in answers(report)
    refused = [e.detail for e in report.events if e.kind == "refused"]
    assert refused == ["at most 5 instances of work"] * 2
    assert report.operator("work").instances_peak == 5


def test_fewer_than_asked_for_come_with_a_reason() -> None:
    fake.BEHAVIOUR["work"] = asks(5)
    report = finish(start(three_operators(Numbers(1), max_instances=3)))
    assert answers(report) == ["work.1<0 work.2<0|at most 3 instances of work"]


def test_a_newcomer_that_is_not_ready_in_time_is_given_up_and_nobody_waits_for_it() -> None:
    def late(me: Fake) -> None:
        if me.id.number == 1:
            pause(600)

    fake.BEFORE_READY["work"] = late
    fake.BEHAVIOUR["work"] = asks(2)
    report = finish(start(three_operators(Numbers(1)), limits=Limits(start_deadline_s=10.0)))
    assert answers(report) == ["work.2<0|work.1 was not ready within 10 s"]
    assert "start_failed" in kinds(report)
    assert report.ok


def test_a_newcomer_that_dies_before_it_is_ready_is_no_failure_of_the_run() -> None:
    def die(me: Fake) -> None:
        if me.id.number == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    fake.BEFORE_READY["work"] = die
    fake.BEHAVIOUR["work"] = asks(1)
    report = finish(start(three_operators(Numbers(1))))
    (answer,) = answers(report)
    assert answer.startswith("|operator 'work': instance work.1")
    assert answer.endswith("was killed by SIGKILL")
    assert report.ok


def test_children_that_were_not_wanted_after_all_are_ended_and_never_count() -> None:
    def ask(me: Fake) -> None:
        if me.assign.bootstrap is None:
            return
        me.status()
        me.say(msg.Spawn(request=1, n=2))
        children = me.expect(msg.Spawned).children
        me.say(msg.Discard(children=[i for i, _ in children]))

    fake.BEHAVIOUR["work"] = ask
    report = finish(start(three_operators(Numbers(1))))
    assert kinds(report) == ["discarded", "discarded", "ended"]
    assert report.operator("work").instances_ever == 1
    assert report.ok


def test_children_whose_creator_has_ended_do_not_keep_the_run_going() -> None:
    def ask(me: Fake) -> None:
        if me.assign.bootstrap is None:
            pause(600)
        me.status()
        me.say(msg.Spawn(request=1, n=1))
        me.expect(msg.Spawned)
        me.gone()

    fake.BEHAVIOUR["work"] = ask
    report = finish(start(three_operators(Numbers(1))))
    assert kinds(report)[-1] == "discarded"
    assert report.ok


def test_an_instance_cannot_discard_one_that_takes_part() -> None:
    def discards(me: Fake) -> None:
        me.say(msg.Discard(children=[id_to_wire(me.id._replace(number=1))]))

    fake.BEHAVIOUR["work"] = discards
    with pytest.raises(
        RunFailed, match=r"broke its link to the agent: work\.1 cannot be disc.* \(6 times\)"
    ):
        finish(start(three_operators(Endless(), min_instances=2)))


def test_a_script_makes_instances_join_and_leave() -> None:
    script = parse_script("0 work duplicate 2; every 0.1 from 0.2 to 15: work leave")
    with start(three_operators(Endless()), script=script) as run:
        until(lambda: run.snapshot().operator("work").leaves == 2)
    report = run.wait(TIMEOUT_S)
    work = report.operator("work")
    assert (work.joins, work.leaves, work.instances_ever) == (2, 2, 3)
    left = [e for e in report.events if e.kind == "left"]
    assert left[-1].instances == 1
    assert "work.0" not in [e.instance for e in left]


def test_a_keeper_is_never_told_to_leave() -> None:
    script = parse_script("0 work leave")
    with start(three_operators(Endless()), script=script) as run:
        until(lambda: run.snapshot().events)
    report = run.wait(TIMEOUT_S)
    skipped = [e for e in report.events if e.kind == "skipped"]
    assert [(e.operator, e.detail) for e in skipped] == [("work", "no instance can leave")]


def test_a_script_for_an_unknown_operator_is_refused_before_anything_starts() -> None:
    with pytest.raises(ValueError, match="nobody"):
        start(three_operators(), script=parse_script("1 nobody leave"))


def test_the_same_seed_chooses_the_same_instances() -> None:
    script = parse_script("every 0.03 from 0.1 to 0.16: work leave")

    def leavers() -> list[str]:
        with start(three_operators(Endless(), min_instances=6), script=script, seed=5) as run:
            until(lambda: run.snapshot().operator("work").leaves == 3)
        return sorted(e.instance for e in run.wait().events if e.kind == "left")

    assert leavers() == leavers()
