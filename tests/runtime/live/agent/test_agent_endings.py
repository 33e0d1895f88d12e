"""How runs end: completed, early, stopped, failed; always in bounded time, and nothing stays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.limits import Limits
from anabranch.runtime.live.agent.agent import Agent
from anabranch.runtime.live.agent.boards import Boards
from anabranch.runtime.live.agent.roster import Member
from anabranch.runtime.live.agent.run_journal import SYNCED, AllRead, Claimed, Released
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.reporting.failure import Failure, RunFailed
from anabranch.runtime.reporting.report import CTRL_C, DURATION
from anabranch.runtime.reporting.status import FinalCount
from anabranch.runtime.values.checks import PipelineError
from tests.runtime import fake_instance as fake
from tests.runtime.agent_runs import (
    TIMEOUT_S,
    failure_of,
    finish,
    pause,
    start,
    until,
)
from tests.runtime.fake_instance import Endless, Fake, Numbers, three_operators
from tests.runtime.processes import alive

pytestmark = pytest.mark.usefixtures("usual_behaviour")


def test_a_run_of_limited_duration_ends_its_input_by_itself() -> None:
    report = finish(start(three_operators(Endless()), duration_s=0.2))
    assert (report.ended, report.ended_by) == ("ended early", "duration")
    assert report.finished
    assert report.seconds >= 0.2


def test_a_run_that_has_read_its_input_before_its_duration_is_over_is_complete() -> None:
    report = finish(start(three_operators(Numbers(1)), duration_s=600.0))
    assert (report.ended, report.ended_by) == ("completed", "")


def test_the_input_of_a_source_that_has_ended_by_itself_is_not_cut_short() -> None:
    boards = Boards(three_operators(Numbers(1)), lambda *_: None, lambda _: None)
    reader = InstanceId(OperatorName("lines"), 0, -1)
    number = boards.claim(reader).number
    boards.release(reader, None, 1.0, number)
    assert boards.claim(reader).ended
    boards.end_input("lines", CTRL_C)
    assert boards.cut_by == ""


def test_releases_are_kept_before_a_source_hears_that_its_input_has_ended() -> None:
    """It releases nothing again: without them, its part would be held for ever."""
    records: list[Any] = []
    boards = Boards(three_operators(Numbers(1)), lambda *_: None, records.append)
    readers = [InstanceId(OperatorName("lines"), number, -1) for number in range(2)]
    boards.release(readers[0], None, 1.0, boards.claim(readers[0]).number)
    assert [boards.claim(reader).ended for reader in readers] == [True, True]
    assert [type(record) for record in records] == [Claimed, Released, AllRead]
    assert AllRead in SYNCED


def test_a_run_that_is_resumed_still_knows_what_has_cut_its_input_short() -> None:
    records: list[Any] = []
    before = Boards(three_operators(Numbers(9)), lambda *_: None, records.append)
    before.end_input("lines", CTRL_C)
    before.end_input("lines", DURATION)
    assert before.cut_by == CTRL_C
    assert [record.by for record in records] == [CTRL_C, ""]
    after = Boards(three_operators(Numbers(9)), lambda *_: None, records.append)
    for snapshot in before.snapshots():
        after.restore(snapshot)
    assert after.cut_by == CTRL_C


def test_ending_the_input_of_one_source_leaves_the_others() -> None:
    pipeline = Pipeline("fake")
    streams = [pipeline.source(name, Endless()) for name in ("a", "b")]
    pipeline.merge(*streams).sink("out", fake.Nowhere())
    run = start(pipeline)
    run.end_input("a")
    until(lambda: not run.snapshot().operator("a").instances)
    assert [o.instances for o in run.snapshot().operators] == [0, 1, 1]
    with pytest.raises(PipelineError, match="'out' is no source"):
        run.end_input("out")
    run.end_input()
    assert finish(run).ended == "completed"


def test_a_stopped_run_says_what_it_gave_up() -> None:
    def tell(me: Fake) -> None:
        me.status(tuples_in=10, tuples_out=9)

    fake.BEHAVIOUR["work"] = tell
    run = start(three_operators(Endless()))
    until(lambda: run.snapshot().operator("work").tuples_in == 10)
    report = run.stop()
    assert (report.ended, report.failure, report.ok) == ("stopped", None, False)
    assert report.operator("work").tuples_in == 10
    assert "work.0 ended without an account of its tuples" in report.ledger.faults
    assert not any(alive(pid) for pid in run.snapshot().pids)
    assert run.stop() is report


def test_an_instance_that_says_why_it_fails_is_quoted() -> None:
    def fail(me: Fake) -> None:
        me.say(msg.Failed(reason="OSError: no space left on out.jsonl", detail="line 3"))
        os._exit(1)

    fake.BEHAVIOUR["out"] = fail
    with pytest.raises(RunFailed) as failed:
        start(three_operators(Endless())).wait(TIMEOUT_S)
    assert str(failed.value) == (
        "operator 'out': instance out.0 failed: OSError: no space left on out.jsonl\nline 3"
    )


@pytest.mark.usefixtures("deaths_add_up")
def test_an_instance_that_speaks_nonsense_whenever_it_is_resumed_fails_the_run() -> None:
    def babble(me: Fake) -> None:
        me.say({"kind": "nonsense"})
        pause(600)

    fake.BEHAVIOUR["work"] = babble
    with pytest.raises(RunFailed, match=r"work\.0 died 6 times .* broke its link to the agent"):
        start(three_operators(Endless())).wait(TIMEOUT_S)


def test_an_instance_that_does_not_exit_after_its_account_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.runtime.live.agent.process_exit.EXIT_TIMEOUT_S", 0.3)

    def stays(me: Fake) -> None:
        me.wait_until_preds_are_gone()
        (me.run_dir / f"{me.id}.gone").touch()
        me.say(FinalCount(id=str(me.id), operator="work"))
        pause(600)

    fake.BEHAVIOUR["work"] = stays
    report = finish(start(three_operators(Numbers(1))))
    assert report.ok


def test_a_pipeline_whose_instances_do_not_start_says_so() -> None:
    def refuse(me: Fake) -> None:
        raise OSError("address already in use")

    fake.BEFORE_READY["out"] = refuse
    with pytest.raises(RunFailed) as failed:
        start(three_operators())
    assert "pipeline 'fake' did not start" in failed.value.failure.message
    assert "address already in use" in str(failed.value)


def test_an_instance_that_is_never_ready_fails_the_start_within_the_deadline() -> None:
    fake.BEFORE_READY["work"] = lambda me: pause(600)
    with pytest.raises(RunFailed, match=r"work\.0 was not ready within 10 s"):
        start(three_operators(), limits=Limits(start_deadline_s=10.0))


class Broken(Numbers):
    def splits(self) -> Iterator[dict[str, Any]]:
        yield {"n": 0}
        raise PermissionError("texts/secret.txt")


def test_a_source_that_cannot_go_on_fails_the_run_by_its_name() -> None:
    with pytest.raises(RunFailed, match=r"source 'lines' cannot go on: PermissionError: texts/s"):
        start(three_operators(Broken(2))).wait(TIMEOUT_S)


def test_a_failure_of_the_agent_itself_ends_the_run_and_is_shown_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fall_over(*_: object) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr("anabranch.runtime.live.agent.recorder.Recorder.sample", fall_over)
    with pytest.raises((RunFailed, RuntimeError), match="a bug of ours"):
        start(three_operators(Endless())).wait(TIMEOUT_S)


def test_of_two_failures_at_once_the_first_is_told() -> None:
    def fail_twice(agent: Agent) -> None:
        agent.course.fail(Failure("the cause"))
        agent.course.fail(Failure("a consequence"))

    run = start(three_operators(Endless()))
    run._tell(fail_twice)
    assert failure_of(run).failure.message == "the cause"


def test_what_fails_because_the_run_is_stopped_is_no_failure() -> None:
    def stop_and_fail(agent: Agent) -> None:
        agent.stop()
        agent.course.fail(Failure("a consequence"))

    run = start(three_operators(Endless()))
    run._tell(stop_and_fail)
    assert finish(run).ended == "stopped"


def test_the_loss_of_the_parent_is_no_failure_when_nobody_needs_it_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended, ends = Agent._member_ended, []

    async def end_and_lose(agent: Agent, member: Member) -> None:
        await ended(agent, member)
        if agent.course.is_over:
            ends.append(agent.course.outcome.ended)
            agent._parent_lost("gone")

    monkeypatch.setattr(Agent, "_member_ended", end_and_lose)
    assert finish(start(three_operators(Numbers(1)))).ok
    assert ends == ["completed"]
