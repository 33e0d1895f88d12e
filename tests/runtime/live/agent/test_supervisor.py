"""Instances outlive their processes: whatever dies is the same again in a new one."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

import pytest

from anabranch.protocol.limits import Limits
from anabranch.runtime.live.agent import deaths, starter, startup, watchdog
from anabranch.runtime.live.agent.launch import Run
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.policies.script import parse_script
from anabranch.runtime.reporting.failure import RunFailed
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.reporting.snapshot import InstanceSnapshot, RunSnapshot
from anabranch.runtime.reporting.status import FinalCount, id_to_wire
from tests.runtime import fake_instance as fake
from tests.runtime.agent_runs import (
    TIMEOUT_S,
    finish,
    kinds,
    pause,
    pids_with_standby,
    start,
    until,
)
from tests.runtime.fake_instance import Endless, Fake, Numbers, three_operators
from tests.runtime.processes import LINUX, alive

pytestmark = pytest.mark.usefixtures("usual_behaviour")


def member(run: Run, operator: str = "work", number: int = 0) -> InstanceSnapshot:
    return run.snapshot().operator(operator).members[number]


def kill(run: Run, operator: str = "work", number: int = 0) -> None:
    """And wait until it is there again."""
    victim = member(run, operator, number)
    os.kill(victim.pid, signal.SIGKILL)
    until(lambda: member(run, operator, number).incarnation == victim.incarnation + 1)
    until(lambda: member(run, operator, number).state != "resuming")


def details(told: Report | RunSnapshot, kind: str) -> list[str]:
    return [e.detail for e in told.events if kind in (e.kind, e.label)]


def tell_assignment(me: Fake) -> None:
    task = me.assign
    me.note("task", f"{task.id} {task.incarnation} {task.journal} {task.address} {task.bootstrap}")


def test_a_killed_instance_goes_on_in_a_new_process() -> None:
    run = start(three_operators(Endless(), min_instances=2))
    before = member(run, number=1)
    kill(run, number=1)
    after = member(run, number=1)
    assert (after.id, after.incarnation, before.incarnation) == ("work.1", 2, 1)
    assert after.pid != before.pid
    assert run.snapshot().operator("work").deaths == 1
    run.end_input()
    report = finish(run)
    assert report.ok
    assert [(o.deaths, o.instances_ever) for o in report.operators] == [(0, 1), (1, 2), (0, 1)]
    assert details(report, "died") == ["was killed by SIGKILL"]
    assert details(report, "resumed")[0].startswith("incarnation 2 after ")


def test_every_incarnation_gets_the_same_journal_and_address_and_is_told_its_beginning_again() -> (
    None
):
    fake.BEHAVIOUR["work"] = tell_assignment
    run = start(three_operators(Endless()))
    for incarnation in (1, 2):
        until(lambda n=incarnation: len(details(run.snapshot(), "task")) == n)  # type: ignore[misc]
        kill(run)
    run.end_input()
    told = [t.split(" ", 5) for t in details(finish(run), "task")]
    lifes, journals, addresses = ([t[i] for t in told] for i in (3, 4, 5))
    assert lifes == ["1", "2", "3"]
    assert len({*journals}) == 1
    assert journals[0].endswith("/state/journals/1.0.journal")
    none, *later = (a.split(" ", 1)[0] for a in addresses)
    assert none == ""
    assert later[0].startswith("unix:/")
    assert "None" not in {a.split(" ", 1)[1] for a in addresses}


@pytest.mark.parametrize("operator", ["lines", "work", "out"])
def test_a_death_while_the_input_ends_keeps_the_run_from_being_complete(operator: str) -> None:
    """The only one left, or not: it is not gone before it has said so."""

    def dies_at_the_end(me: Fake) -> None:
        me.status()
        if me.assign.incarnation == 1:
            if me.operator.source is None:
                me.wait_until_preds_are_gone()
            os.kill(os.getpid(), signal.SIGKILL)

    fake.BEHAVIOUR[operator] = dies_at_the_end
    report = finish(start(three_operators(Numbers(3))))
    assert (report.ok, report.ledger.tuples_in) == (True, 3)
    assert report.operator(operator).deaths == 1


def test_a_process_that_dies_after_its_account_is_not_resumed() -> None:
    def dies(me: Fake) -> None:
        me.wait_until_preds_are_gone()
        (me.run_dir / f"{me.id}.gone").touch()
        me.say(FinalCount(id=str(me.id), operator="work"))
        os.kill(os.getpid(), signal.SIGKILL)

    fake.BEHAVIOUR["work"] = dies
    report = finish(start(three_operators(Numbers(1))))
    assert (report.ok, report.operator("work").deaths) == (True, 0)


def test_a_source_goes_on_with_the_split_that_it_held() -> None:
    def dies(me: Fake) -> None:
        me.status()
        me.say(msg.Claim())
        answer = me.expect(msg.SplitAnswer)
        me.note("got", f"{answer.split} {answer.number}")
        if me.assign.incarnation == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        me.say(msg.Release(remainder=None, number=answer.number))
        me.say(msg.Release(remainder=None, number=answer.number))

    fake.BEHAVIOUR["lines"] = dies
    report = finish(start(three_operators(Numbers(2))))
    assert report.ok
    assert details(report, "got") == ["{'n': 0} 1", "{'n': 0} 1"]


def test_a_later_incarnation_is_told_that_the_input_has_been_ended() -> None:
    def waits(me: Fake) -> None:
        me.status()
        me.say(msg.Claim())
        me.expect(msg.EndInput)
        if me.assign.incarnation == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        me.say(msg.Release(remainder=None, number=1))

    fake.BEHAVIOUR["lines"] = waits
    run = start(three_operators(Endless()))
    run.end_input()
    assert finish(run).ok


@pytest.mark.usefixtures("deaths_add_up")
def test_an_instance_that_always_dies_and_gets_nothing_done_fails_the_run() -> None:
    def dies(me: Fake) -> None:
        me.status(tuples_in=3)
        print("tuple 17 is too much", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    fake.BEHAVIOUR["work"] = dies
    lines: list[str] = []
    run = start(three_operators(Endless()), on_output=lambda _, line: lines.append(line))
    with pytest.raises(RunFailed) as failed:
        run.wait(TIMEOUT_S)
    message = failed.value.failure.message
    assert message.startswith("operator 'work': instance work.0 died 6 times within ")
    assert "got nothing done in between: was killed by SIGKILL (6 times)" in message
    assert "tuple 17 is too much" in failed.value.failure.detail
    assert failed.value.report.operator("work").deaths == deaths.RESUMES_MAX + 1


@pytest.mark.usefixtures("deaths_add_up")
@pytest.mark.parametrize("queued", [0, 1])
def test_deaths_of_an_idle_instance_are_not_its_own_fault(
    monkeypatch: pytest.MonkeyPatch, queued: int
) -> None:
    """Whoever kills it will stop some time; what it has not worked off will not."""
    monkeypatch.setattr(deaths, "IDLE_LIFETIME_S", 0.05)

    def dies_later(me: Fake) -> None:
        me.status(tuples_in=3, queued=queued)
        if me.assign.incarnation <= deaths.RESUMES_MAX + 3:
            pause(0.1)
            os.kill(os.getpid(), signal.SIGKILL)

    fake.BEHAVIOUR["work"] = dies_later
    run = start(three_operators(Endless()))
    if queued:
        with pytest.raises(RunFailed, match="died 6 times"):
            run.wait(TIMEOUT_S)
        return
    until(lambda: member(run).incarnation == deaths.RESUMES_MAX + 4)
    run.end_input()
    assert finish(run).ok


def test_an_instance_that_gets_on_may_die_as_often_as_it_likes() -> None:
    """Also while more comes in than it can do."""

    def gets_on(me: Fake) -> None:
        me.status(tuples_in=me.assign.incarnation, queued=10 * me.assign.incarnation)
        if me.assign.incarnation <= 2 * deaths.RESUMES_MAX:
            os.kill(os.getpid(), signal.SIGKILL)

    fake.BEHAVIOUR["work"] = gets_on
    report = finish(start(three_operators(Numbers(1))))
    assert report.ok
    assert report.operator("work").deaths == 2 * deaths.RESUMES_MAX


def test_a_next_incarnation_that_is_not_ready_in_time_is_followed_by_another() -> None:
    def slow(me: Fake) -> None:
        if me.assign.incarnation == 2:
            pause(60)

    fake.BEFORE_READY["work"] = slow

    run = start(three_operators(Endless()), limits=Limits(start_deadline_s=10.0))
    os.kill(member(run).pid, signal.SIGKILL)
    until(lambda: member(run).incarnation == 3)
    until(lambda: member(run).state != "resuming")
    run.end_input()
    report = finish(run)
    assert details(report, "start_failed") == ["work.0 was not ready within 10 s"]
    assert details(report, "died") == ["was killed by SIGKILL"] * 2
    assert details(report, "resumed")[0].startswith("incarnation 3 after")


def test_an_instance_of_which_no_next_incarnation_gets_ready_fails_the_run_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rather than that all wait for it for ever."""

    def never_ready(me: Fake) -> None:
        if me.assign.incarnation > 1:
            pause(TIMEOUT_S)

    fake.BEFORE_READY["work"] = never_ready
    asked = itertools.count()
    enough = property(lambda _: next(asked) > 0)  # the second is the last
    monkeypatch.setattr(starter.Tries, "are_enough", enough)
    run = start(three_operators(Endless()))
    assert run._agent is not None
    run._agent.starter._deadline_s = 0.6
    os.kill(member(run).pid, signal.SIGKILL)
    told = r"work\.0.* could not be resumed for \d+ s: .*(was not ready|no process) within"
    with pytest.raises(RunFailed, match=told):
        run.wait(TIMEOUT_S)
    assert len(details(run.snapshot(), "start_failed")) > 1


def spawns_and_dies(me: Fake) -> None:
    """The creator dies when its child listens; what its next incarnation says depends on the
    test."""
    if me.assign.bootstrap is None:
        return
    me.status()
    if me.assign.incarnation == 1:
        me.say(msg.Spawn(request=1, n=1))
        me.expect(msg.Spawned)
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("known", [True, False])
def test_children_of_a_dead_creator_live_only_if_its_next_incarnation_knows_them(
    known: bool,
) -> None:
    def creates(me: Fake) -> None:
        spawns_and_dies(me)
        if me.assign.bootstrap is not None:
            child = me.id._replace(number=1, creator=0)
            me.say(msg.Resumed(children=[id_to_wire(child)] if known else []))
            if known:
                (me.run_dir / f"{child}.start").touch()

    fake.BEHAVIOUR["work"] = creates
    run = start(three_operators(Endless()))
    wanted = "joined" if known else "discarded"
    until(lambda: wanted in [e.kind for e in run.snapshot().events])
    run.end_input()
    report = finish(run)
    assert ("joined" in kinds(report), "discarded" in kinds(report)) == (known, not known)
    assert report.ok


def test_a_request_of_an_earlier_incarnation_is_answered_to_nobody(tmp_path: Path) -> None:
    def late(me: Fake) -> None:
        if me.id.number == 1:
            until((tmp_path / "next incarnation").exists)

    def creates(me: Fake) -> None:
        if me.assign.bootstrap is None:
            return
        me.status()
        if me.assign.incarnation == 1:
            me.say(msg.Spawn(request=1, n=1))
            os.kill(os.getpid(), signal.SIGKILL)
        (tmp_path / "next incarnation").touch()
        while not isinstance(message := me.hear(), msg.EndInput | msg.Decide):
            me.note("heard", str(message))
            assert not isinstance(message, msg.Spawned)

    fake.BEFORE_READY["work"] = late
    fake.BEHAVIOUR["work"] = creates
    run = start(three_operators(Endless()))
    until(lambda: "discarded" in [e.kind for e in run.snapshot().events])
    report = run.stop()
    assert details(report, "heard") == []


def test_a_child_that_dies_before_it_is_started_is_resumed() -> None:
    def creates(me: Fake) -> None:
        if me.assign.bootstrap is None:
            return
        me.status()
        me.say(msg.Spawn(request=1, n=1))
        me.expect(msg.Spawned)
        me.note("created")
        until((me.run_dir / "now").exists)
        (me.run_dir / "work.1.start").touch()

    def listens(me: Fake) -> None:
        creates(me)
        if me.assign.bootstrap is None and me.assign.incarnation == 2:
            (me.run_dir / "now").touch()

    fake.BEHAVIOUR["work"] = listens
    run = start(three_operators(Endless()))
    until(lambda: "created" in [e.label for e in run.snapshot().events])
    until(lambda: len(run.snapshot().operator("work").members) == 2)
    os.kill(member(run, number=1).pid, signal.SIGKILL)
    until(lambda: run.snapshot().operator("work").instances == 2)
    run.end_input()
    report = finish(run)
    assert report.ok
    # What it says and that it is ready may come together; either is noted first.
    happened = [k for k in kinds(report) if k in ("died", "resumed", "joined")]
    assert (happened[0], sorted(happened[1:])) == ("died", ["joined", "resumed"])


@pytest.mark.parametrize("operator", ["lines", "work", "out"])
def test_a_founder_that_dies_before_it_is_ready_is_tried_again(operator: str) -> None:
    """A fake keeps no journal, so each of its processes is the first that there has been."""

    def die(me: Fake) -> None:
        assert me.assign.incarnation == 1
        for mark in ("first", "second"):
            if not (me.run_dir / mark).exists():
                (me.run_dir / mark).touch()
                os.kill(os.getpid(), signal.SIGKILL)

    fake.BEFORE_READY[operator] = die
    run = start(three_operators(Endless()))
    run.end_input()
    report = finish(run)
    assert report.ok
    assert kinds(report, operator)[:3] == ["died", "died", "resumed"]
    assert report.operator(operator).deaths == 2


def test_a_founder_that_always_dies_before_it_is_ready_fails_the_start() -> None:
    fake.BEFORE_READY["work"] = lambda _me: os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(
        RunFailed, match=r"did not start: .*work\.0 .* was killed by SIGKILL"
    ) as failed:
        start(three_operators(Endless()))
    assert failed.value.report.operator("work").deaths == startup.FOUNDER_TRIES_MAX


def test_a_founder_that_says_why_it_cannot_begin_fails_the_start_at_once() -> None:
    def refuse(me: Fake) -> None:
        me.say(msg.Failed(reason="no such table", detail=""))
        os._exit(1)

    fake.BEFORE_READY["work"] = refuse
    with pytest.raises(RunFailed, match=r"did not start: .*no such table") as failed:
        start(three_operators(Endless()))
    assert failed.value.report.operator("work").deaths == 0


def test_a_child_that_tells_how_it_is_before_it_is_started_has_not_joined() -> None:
    """As each later incarnation of one does. Its creator has forgotten it, so nobody will start
    it."""

    def tells(me: Fake) -> None:
        if me.assign.bootstrap is not None:
            me.status()
            me.say(msg.Spawn(request=1, n=1))
            me.expect(msg.Spawned)
            me.note("created")
        elif me.assign.incarnation == 2:
            me.status(state="Idle", preds=7)

    fake.BEHAVIOUR["work"] = tells
    run = start(three_operators(Endless()))
    until(lambda: "created" in [e.label for e in run.snapshot().events])
    os.kill(member(run, number=1).pid, signal.SIGKILL)
    until(lambda: "resumed" in [e.kind for e in run.snapshot().events])
    run.end_input()
    report = finish(run)
    assert report.ok
    assert "joined" not in kinds(report)
    assert "discarded" in kinds(report)


def test_discarding_again_what_an_earlier_incarnation_has_discarded_is_no_fault() -> None:
    def creates(me: Fake) -> None:
        if me.assign.bootstrap is None:
            return
        me.status()
        child = id_to_wire(me.id._replace(number=1, creator=0))
        if me.assign.incarnation == 1:
            me.say(msg.Spawn(request=1, n=1))
            me.expect(msg.Spawned)
            me.say(msg.Discard(children=[child]))
            os.kill(os.getpid(), signal.SIGKILL)
        me.say(msg.Discard(children=[child]))

    fake.BEHAVIOUR["work"] = creates
    report = finish(start(three_operators(Numbers(1))))
    assert report.ok
    assert report.operator("work").deaths == 1


def test_an_instance_that_dies_before_it_could_leave_is_told_again() -> None:
    def dies_of_it(me: Fake) -> None:
        me.status()
        me.expect(msg.Decide)
        if me.assign.incarnation == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        me.gone(leaves=1)

    fake.BEHAVIOUR["work"] = dies_of_it
    script = parse_script("every 0.1 from 0.2 to 15: work leave")
    run = start(three_operators(Endless(), min_instances=2), script=script)
    until(lambda: run.snapshot().operator("work").leaves == 1)
    assert run.stop().operator("work").deaths == 1


@pytest.mark.skipif(not LINUX, reason="only Linux says that a process is stopped")
def test_an_incarnation_that_is_too_slow_has_ended_before_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever would kill it is stopped, until the agent tells it to go on."""
    slow = tmp_path / "slow"

    def never_ready(me: Fake) -> None:
        if me.assign.incarnation == 2:
            slow.write_text(str(os.getpid()))
            pause(TIMEOUT_S)
        if me.assign.incarnation == 3:
            (tmp_path / "together").write_text(str(alive(int(slow.read_text()))))

    fake.BEFORE_READY["work"] = never_ready
    monkeypatch.setattr(watchdog, "SUSPECT_S", 2.0)
    run = start(three_operators(Endless()))
    assert run._agent is not None
    run._agent.starter._deadline_s = 4.0
    parent = pids_with_standby(run)[0]
    until(lambda: run.snapshot().idle == 2)
    os.kill(member(run).pid, signal.SIGKILL)
    until(slow.exists)
    os.kill(parent, signal.SIGSTOP)
    until((tmp_path / "together").exists)
    run.end_input()
    assert (finish(run).ok, (tmp_path / "together").read_text()) == (True, "False")
