"""What is kept of instances that have ended, when the agent dies and the run is resumed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.live.agent.run_journal import (
    Final,
    Over,
    RunJournal,
    RunRecord,
    read_records,
)
from anabranch.runtime.live.agent.starter import Starter, StartError
from anabranch.runtime.live.channel.ended import ended_dir, has_mark
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.live.process.process import Process
from anabranch.runtime.reporting.report import Report
from tests.runtime import fake_instance as fake
from tests.runtime.agent_runs import finish, pause, start, until, wait_for
from tests.runtime.fake_instance import Endless, Fake, three_operators

pytestmark = pytest.mark.usefixtures("usual_behaviour")


def resumed_without_one(folder: Path, meanwhile: Callable[[], None] = lambda: None) -> Report:
    """Of a run of which one instance had ended when all others died."""

    def ends_soon(me: Fake) -> None:
        me.note("incarnation", f"{me.id} {me.assign.incarnation}")
        me.status()
        if me.id.number == 1:
            wait_for(folder / "founded")
            me.gone(leaves=1, messages=7)
        if me.assign.incarnation == 2:
            (me.run_dir / "work.1.gone").touch()  # neighbours know it from before

    fake.BEHAVIOUR["work"] = ends_soon
    run = start(three_operators(Endless(), min_instances=2), state=folder)
    (folder / "founded").touch()
    until(lambda: run.snapshot().operator("work").leaves == 1)
    run.stop()
    meanwhile()
    run = start(three_operators(Endless(), min_instances=2), state=folder, resume=True)
    run.end_input()
    return finish(run)


def incarnations(report: Report) -> list[str]:
    return [e.detail for e in report.events if e.label == "incarnation"]


def forget_the_last(folder: Path, kind: type[RunRecord]) -> None:
    """As a loss of power may."""
    path = folder / "agent.journal"
    records = read_records(path)
    last = max(n for n, record in enumerate(records) if isinstance(record, kind))
    path.unlink()
    journal = RunJournal(path)
    for record in records[:last] + records[last + 1 :]:
        journal.append(record)
    journal.close()


def test_an_account_of_which_the_end_was_not_written_counts_once(tmp_path: Path) -> None:
    report = resumed_without_one(tmp_path, lambda: forget_the_last(tmp_path, Over))
    assert (report.operator("work").messages, report.operator("work").leaves) == (7, 1)
    assert sorted(incarnations(report)) == ["work.0 1", "work.0 2", "work.1 1"]


def test_a_journal_that_is_shortened_keeps_the_account_just_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, is_long = RunJournal.append, False

    def append(journal: RunJournal, record: RunRecord) -> None:
        nonlocal is_long
        real(journal, record)
        is_long = isinstance(record, Final)

    monkeypatch.setattr(RunJournal, "append", append)
    monkeypatch.setattr(RunJournal, "is_long", property(lambda _: is_long))
    report = resumed_without_one(tmp_path)
    assert (report.operator("work").messages, report.operator("work").leaves) == (7, 1)


def test_who_has_ended_is_marked_again_when_marks_are_lost(tmp_path: Path) -> None:
    def look(me: Fake) -> None:  # these instances leave no marks
        if me.assign.incarnation == 2:
            folder = ended_dir(Path(me.assign.state_dir))
            ids = [InstanceId(OperatorName("work"), number) for number in range(3)]
            me.note("marks", " ".join(str(one) for one in ids if has_mark(folder, one)))

    fake.BEHAVIOUR["out"] = look
    report = resumed_without_one(tmp_path)
    assert [e.detail for e in report.events if e.label == "marks"] == ["work.1"]


def test_the_journal_of_an_instance_that_has_ended_is_removed(tmp_path: Path) -> None:
    def ends_soon(me: Fake) -> None:
        Path(f"{me.assign.journal}.1").touch()
        me.status()
        if me.id.number == 1:
            me.gone(leaves=1)

    fake.BEHAVIOUR["work"] = ends_soon
    run = start(three_operators(Endless(), min_instances=2), state=tmp_path)
    until(lambda: [p.name for p in (tmp_path / "journals").iterdir()] == ["1.0.journal.1"])
    run.end_input()
    assert finish(run).ok


def test_the_files_of_an_instance_that_has_taken_no_part_are_removed(tmp_path: Path) -> None:
    def touches(me: Fake) -> None:
        if me.assign.bootstrap is None:
            Path(f"{me.assign.journal}.1").touch()
            (me.run_dir / f"{os.getpid()}.s").touch()  # its address, as it is about to say

    def discards(me: Fake) -> None:
        if me.assign.bootstrap is None:
            pause(60)
        me.status()
        me.say(msg.Spawn(request=1, n=1))
        children = me.expect(msg.Spawned).children
        me.note("there", " ".join(str(p.exists()) for p in files(me, children)))
        me.say(msg.Discard(children=[child for child, _ in children]))
        until(lambda: not any(p.exists() for p in files(me, children)))
        me.note("removed")

    def files(me: Fake, children: list[tuple[Any, str]]) -> list[Path]:
        journal = Path(me.assign.journal).with_name("1.1.journal.1")
        return [journal, *(Path(address.removeprefix("unix:")) for _, address in children)]

    fake.BEFORE_READY["work"] = touches
    fake.BEHAVIOUR["work"] = discards
    report = finish(start(three_operators(), state=tmp_path))
    assert [e.detail for e in report.events if e.label == "there"] == ["True True"]
    assert [e.label for e in report.events if e.label == "removed"] == ["removed"]
    assert report.ok


def test_a_child_that_is_given_up_before_it_could_be_resumed_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its creator does not know it any more, and there was no process for it so far."""

    def forgets_its_child(me: Fake) -> None:
        if me.assign.bootstrap is None:
            return
        me.status()
        if me.assign.incarnation == 1:
            me.say(msg.Spawn(request=1, n=1))
            me.expect(msg.Spawned)
            (tmp_path / "spawned").touch()
        else:
            me.say(msg.Resumed(children=[]))

    take = Starter.take

    async def none_for_the_child(starter: Starter, what: str, *rest: Any, **more: Any) -> Process:
        if what == "work.1":
            raise StartError("no process could be made")
        return await take(starter, what, *rest, **more)

    fake.BEHAVIOUR["work"] = forgets_its_child
    run = start(three_operators(Endless()), state=tmp_path / "state")
    until((tmp_path / "spawned").exists)
    run.stop()
    monkeypatch.setattr(Starter, "take", none_for_the_child)
    run = start(three_operators(Endless()), state=tmp_path / "state", resume=True)
    run.end_input()
    report = finish(run)
    assert report.ok
    assert [e.kind for e in report.events if e.instance == "work.1"][-1] == "discarded"
