"""A run with a state folder goes on after all its processes were gone, its agent included."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.live.agent.boards import Boards, InputChanged, SplitsError
from anabranch.runtime.live.agent.clock import RunClock
from anabranch.runtime.live.agent.journal_writer import CannotWrite, RunJournalWriter
from anabranch.runtime.live.agent.outcome import Course
from anabranch.runtime.live.agent.run_journal import Passed, RunJournal, read_records
from anabranch.runtime.live.agent.state_dir import open_state
from anabranch.runtime.live.agent.tasks import Tasks
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.plan.ends import Split
from anabranch.runtime.reporting.failure import RunFailed
from anabranch.runtime.reporting.report import Report
from anabranch.runtime.storage.extent import ExtentFile
from anabranch.runtime.storage.state_folder import StateError
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.kinds import EventKind
from tests.runtime import fake_instance as fake
from tests.runtime.agent_runs import TIMEOUT_S, finish, start, until, wait_for
from tests.runtime.fake_instance import Endless, Fake, Numbers, three_operators
from tests.runtime.processes import PATIENCE_S, program, still_alive_after

pytestmark = pytest.mark.usefixtures("usual_behaviour")


def details(report: Report, kind: str) -> list[str]:
    return [e.detail for e in report.events if kind in (e.kind, e.label)]


def note_task(me: Fake) -> None:
    task = me.assign
    me.note("task", f"{me.id} incarnation {task.incarnation} at {task.address or 'anywhere'}")


def teach(*operators: str) -> None:
    for operator in operators:
        fake.BEHAVIOUR[operator] = note_task


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_run_that_is_complete_leaves_nothing_in_its_folder(tmp_path: Path) -> None:
    seen: list[str] = []
    run = start(three_operators(Endless()), state=tmp_path)
    seen = names(tmp_path)
    run.end_input()
    assert finish(run).ok
    assert seen == ["agent.journal", "ends", "extents", "journals", "lock", "run.json"]
    assert names(tmp_path) == []


def test_journals_and_ends_lie_in_the_folder(tmp_path: Path) -> None:
    def tell(me: Fake) -> None:
        me.note("places", f"{me.assign.journal} {me.assign.state_dir}")

    fake.BEHAVIOUR["work"] = tell
    report = finish(start(three_operators(Numbers(1)), state=tmp_path))
    places = f"{tmp_path}/journals/1.0.journal {tmp_path}/ends"
    assert details(report, "places") == [places]


def test_every_instance_goes_on_as_its_next_incarnation_at_its_old_address(tmp_path: Path) -> None:
    teach("lines", "work", "out")
    first = start(three_operators(Endless(), min_instances=2), state=tmp_path).stop()
    assert first.ended == "stopped"
    second = start(three_operators(Endless(), min_instances=2), state=tmp_path, resume=True)
    second.end_input()
    report = finish(second)
    told = {d.split()[0]: d.split()[2:] for d in details(report, "task")}
    assert set(told) == {"lines.0", "work.0", "work.1", "out.0"}
    assert all(
        incarnation == "2" and address.startswith("unix:/")
        for incarnation, _, address in told.values()
    )
    assert report.seed == first.seed
    assert report.started_at == first.started_at
    assert report.seconds > first.seconds
    assert [o.instances_ever for o in report.operators] == [1, 2, 1]
    assert report.ok
    assert names(tmp_path) == []


def claims(me: Fake) -> None:
    """Keeps in its journal what it has claimed and read, as a real source does."""
    me.status()
    path = Path(me.assign.journal)
    read = path.read_text().split() if path.exists() else []
    while True:
        me.say(msg.Claim())
        answer = me.expect(msg.SplitAnswer)
        if answer.split is None:
            break
        read.append(str(answer.split["n"]))
        path.write_text(" ".join(read))
        if answer.split["n"] == 2 and me.assign.incarnation == 1:
            me.note("halfway")
            me.hear()  # to the end of the run
        me.say(msg.Release(remainder=None, progress=1.0, number=answer.number))
    me.note("read", " ".join(read))
    me.gone(tuples_in=len(read), processed=len(read))


def until_halfway(**options: Any) -> Report:
    run = start(three_operators(Numbers(5)), **options)
    until(lambda: "halfway" in [e.label for e in run.snapshot().events])
    return run.stop()


def test_the_input_goes_on_where_it_was(tmp_path: Path) -> None:
    """What was held comes again, under its number; what was released does not."""
    fake.BEHAVIOUR["lines"] = claims
    until_halfway(state=tmp_path)
    run = start(three_operators(Numbers(5)), state=tmp_path, resume=True)
    report = finish(run)
    assert details(report, "read") == ["0 1 2 2 3 4"]
    assert report.ok


class Fewer(Numbers):
    def splits(self) -> Iterator[Split]:
        return ({"n": n} for n in range(7, 9))


def test_an_input_that_has_changed_is_refused(tmp_path: Path) -> None:
    fake.BEHAVIOUR["lines"] = claims
    until_halfway(state=tmp_path)
    told = r"source 'lines' has changed since: where \(n 0\) came, there is \(n 7\) now; put"
    with pytest.raises(RunFailed, match=told):
        start(three_operators(Fewer()), state=tmp_path, resume=True)
    assert "run.json" in names(tmp_path)
    assert finish(start(three_operators(Numbers(5)), state=tmp_path, resume=True)).ok


def test_accounts_of_instances_that_had_ended_are_part_of_the_report(tmp_path: Path) -> None:
    def ends_soon(me: Fake) -> None:
        me.status()
        if me.id.number == 1:
            me.gone(leaves=1, messages=7)
        if me.assign.incarnation == 2:
            (me.run_dir / "work.1.gone").touch()  # neighbours know it from before

    fake.BEHAVIOUR["work"] = ends_soon
    run = start(three_operators(Endless(), min_instances=2), state=tmp_path)
    until(lambda: run.snapshot().operator("work").leaves == 1)
    run.stop()
    run = start(three_operators(Endless(), min_instances=2), state=tmp_path, resume=True)
    run.end_input()
    report = finish(run)
    work = report.operator("work")
    assert (work.messages, work.leaves, work.instances_ever) == (7, 1, 2)
    assert report.ok


def test_newcomers_live_on_and_numbers_are_not_given_twice(tmp_path: Path) -> None:
    def creates(me: Fake) -> None:
        note_task(me)
        if me.assign.bootstrap is None:
            if me.assign.incarnation > 1:
                me.note("started")
                me.expect(msg.EndInput)
            return
        me.status()
        me.say(msg.Spawn(request=1, n=1))
        me.obey(me.expect(msg.Spawned))

    fake.BEHAVIOUR["work"] = creates
    run = start(three_operators(Endless()), state=tmp_path)
    until(lambda: run.snapshot().operator("work").instances == 2)
    run.stop()
    run = start(three_operators(Endless()), state=tmp_path, resume=True)
    until(lambda: run.snapshot().operator("work").instances == 3)
    report = run.stop()
    incarnations = sorted(" ".join(d.split()[:3]) for d in details(report, "task"))
    assert incarnations == [
        "work.0 incarnation 1",
        "work.0 incarnation 2",
        "work.1 incarnation 1",
        "work.1 incarnation 2",
        "work.2 incarnation 1",
    ]
    assert [e.instance for e in report.events if e.kind == "joined"] == ["work.1", "work.2"]
    assert [e.kind for e in report.events].count(EventKind.RUN_RESUMED) == report.resumed == 1
    assert report.operator("work").joins == 2


def test_the_time_of_the_run_goes_on(tmp_path: Path) -> None:
    run = start(three_operators(Endless()), state=tmp_path)
    until(lambda: run.snapshot().seconds > 3.5)  # it is written down every second
    run.stop()
    run = start(three_operators(Endless()), state=tmp_path, resume=True)
    assert run.snapshot().seconds > 1.0
    run.end_input()
    finish(run)


def test_a_run_that_was_not_completed_is_not_overwritten_by_accident(tmp_path: Path) -> None:
    start(three_operators(Endless()), state=tmp_path).stop()
    with pytest.raises(StateError, match=r"has not been completed; go on .* --resume, .* --fresh"):
        start(three_operators(), state=tmp_path)
    assert finish(start(three_operators(), state=tmp_path, fresh=True)).ok


def test_a_folder_without_a_run_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"holds no run .*; start without --resume"):
        start(three_operators(), state=tmp_path / "new", resume=True)
    assert names(tmp_path) == []


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "journals").mkdir()
    (tmp_path / "journals" / "diary.txt").write_text("dear diary")
    with pytest.raises(StateError, match="holds 'journals', which is not part of a run"):
        start(three_operators(), state=tmp_path)
    assert (tmp_path / "journals" / "diary.txt").exists()


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    assert finish(start(three_operators(), state=tmp_path)).ok
    assert names(tmp_path) == ["notes"]


def test_a_changed_pipeline_is_refused_with_what_has_changed(tmp_path: Path) -> None:
    start(three_operators(Endless()), state=tmp_path).stop()
    pipeline = Pipeline("fake")
    lines = pipeline.source("lines", Endless())
    lines.sink("work", fake.Nowhere())
    lines.sink("out", fake.Nowhere())
    with pytest.raises(
        StateError, match="operator 'work' was an operator after lines and is a sink after lines"
    ):
        start(pipeline, state=tmp_path, resume=True)
    other = Pipeline("other")
    other.source("lines", Endless()).sink("out", fake.Nowhere())
    with pytest.raises(StateError, match="it was 'fake' and is 'other'"):
        start(other, state=tmp_path, resume=True)


@pytest.mark.parametrize(
    ("duties", "words"),
    [
        ({"delivery": "at-least-once"}, "delivery was effectively-once and is at-least-once"),
        ({"durable": {"work": "power"}}, "operator 'work' was durable to process and is to power"),
    ],
)
def test_other_promises_than_those_that_the_journals_keep_are_refused(
    tmp_path: Path, duties: dict[str, Any], words: str
) -> None:
    start(three_operators(Endless()), state=tmp_path).stop()
    pipeline = three_operators(Endless())
    for name, value in duties.items():
        setattr(pipeline, name, value)
    with pytest.raises(StateError, match=words):
        start(pipeline, state=tmp_path, resume=True)


def test_a_run_that_did_not_even_start_leaves_no_state(tmp_path: Path) -> None:
    def refuse(me: Fake) -> None:
        raise OSError("address already in use")

    fake.BEFORE_READY["out"] = refuse
    with pytest.raises(RunFailed, match="did not start"):
        start(three_operators(), state=tmp_path)
    assert names(tmp_path) == []


def test_a_failed_run_can_be_resumed_when_the_cause_is_gone(tmp_path: Path) -> None:
    def fails(me: Fake) -> None:
        if me.assign.incarnation == 1:
            me.status()
            wait_for(tmp_path / "founded")
            me.say(msg.Failed(reason="OSError: no space left"))
            os._exit(1)

    fake.BEHAVIOUR["out"] = fails
    run = start(three_operators(Endless()), state=tmp_path)
    (tmp_path / "founded").touch()
    with pytest.raises(RunFailed, match="no space left"):
        run.wait(TIMEOUT_S)
    run = start(three_operators(Endless()), state=tmp_path, resume=True)
    run.end_input()
    assert finish(run).ok


class Once(Endless):
    replayable = False
    why_not = "standard input was read by a process that is gone"


def test_an_input_that_cannot_be_read_again_is_told_of(tmp_path: Path) -> None:
    start(three_operators(Once()), state=tmp_path).stop()
    lines: list[tuple[str, str]] = []
    run = start(
        three_operators(Once()),
        state=tmp_path,
        resume=True,
        on_output=lambda name, line: lines.append((name, line)),
    )
    run.end_input()
    report = finish(run)
    assert report.ok
    assert lines == [("lines", f"source 'lines': {Once.why_not}")]
    assert details(report, "input_gone") == [Once.why_not]


class Prepared(fake.Nowhere):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def prepare(self) -> None:
        self.calls.append("prepare")

    def prepare_to_resume(self) -> None:
        self.calls.append("prepare to resume")


def test_targets_are_emptied_by_a_new_run_and_kept_by_a_resumed_one(tmp_path: Path) -> None:
    sink = Prepared()
    pipeline = Pipeline("fake")
    pipeline.source("lines", Endless()).sink("out", sink)
    start(pipeline, state=tmp_path).stop()
    start(pipeline, state=tmp_path, resume=True).stop()
    start(pipeline, state=tmp_path, fresh=True).stop()
    assert sink.calls == ["prepare", "prepare to resume", "prepare"]


KILLED = """
run = launch.start(
    fake.three_operators(fake.Endless()), Options(state="state"), entry=fake.ENTRY
)
tell(run)
run.wait()
"""


def test_a_killed_agent_leaves_its_folder_and_no_process(tmp_path: Path) -> None:
    teach("work")
    text = KILLED.replace('"state"', f"__import__('pathlib').Path({str(tmp_path / 'state')!r})")
    with program(tmp_path, text) as (popen, pids):
        with pytest.raises(StateError, match=rf"in use by another run \(process {popen.pid}\)"):
            start(three_operators(Endless()), state=tmp_path / "state", resume=True)
        os.kill(popen.pid, signal.SIGKILL)
        popen.wait(PATIENCE_S)
        assert still_alive_after(pids) == []
    run = start(three_operators(Endless()), state=tmp_path / "state", resume=True)
    run.end_input()
    report = finish(run)
    assert report.ok
    assert details(report, "task")[0].startswith("work.0 incarnation 2 at unix:/")


def test_a_state_that_may_not_be_written_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(three_operators(Endless()), state=tmp_path)

    def forbidden(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(RunJournal, "append", forbidden)
    with pytest.raises(RunFailed, match=r"cannot be kept in .*agent.journal': .* not permitted"):
        run.wait(TIMEOUT_S)
    monkeypatch.undo()
    run = start(three_operators(Endless()), state=tmp_path, resume=True)
    run.end_input()
    assert finish(run).ok


def test_a_snapshot_of_a_board_is_the_board() -> None:
    def boards() -> Boards:
        return Boards(three_operators(Numbers(9)), lambda *_: None, lambda _: None)

    a, b, c = (InstanceId(OperatorName("lines"), n, -1) for n in range(3))
    before = boards()
    for holder in (a, b, c):
        before.claim(holder)
    before.advance(b, 0.25, 2)
    before.release(a, {"n": 0, "rest": True}, 0.5, 1)
    before.release(c, None, 1.0, 3)
    after = boards()
    for snapshot in before.snapshots():
        after.restore(snapshot)
    assert [after.claim(holder) for holder in (b, a, c)] == [
        msg.SplitAnswer(split={"n": 1}, ended=False, number=2),
        msg.SplitAnswer(split={"n": 0, "rest": True}, ended=False, number=4),
        msg.SplitAnswer(split={"n": 3}, ended=False, number=5),
    ]
    before.claim(b)
    assert after.progress("lines") == before.progress("lines")
    before.end_input("lines")
    for snapshot in before.snapshots():
        ended = boards()
        ended.restore(snapshot)
    assert ended.has_ended_early("lines")


def test_what_an_incarnation_has_claimed_and_not_read_before_it_died_is_read_by_others() -> None:
    news: list[InstanceId] = []
    boards = Boards(three_operators(Numbers(1)), lambda who, _: news.append(who), lambda _: None)
    a, b = (InstanceId(OperatorName("lines"), n, -1) for n in range(2))
    split = boards.claim(a).split
    boards.advance(a, 0.5, 1)
    assert boards.claim(b) == msg.SplitAnswer(split=None, ended=False)
    boards.give_back(a)
    assert news == [b]
    assert boards.progress("lines") in (None, 0.0)
    assert boards.claim(b).split == split
    boards.release(b, None, 1.0, 2)
    boards.give_back(b)
    boards.give_back(InstanceId(OperatorName("out"), 0, -1))
    assert boards.claim(a) == msg.SplitAnswer(split=None, ended=True)


def test_a_source_that_is_not_divided_knows_by_itself_how_it_goes_on() -> None:
    class Whole(Fewer):
        scalable = False

    reader = InstanceId(OperatorName("lines"), 0, -1)
    boards = Boards(three_operators(Whole()), lambda *_: None, lambda _: None)
    boards.claim_again(reader, {"n": 99}, 1)
    again = Boards(three_operators(Whole()), lambda *_: None, lambda _: None)
    for snapshot in boards.snapshots():
        again.restore(msgspec.structs.replace(snapshot, digest=0))
    assert again.claim(reader) == msg.SplitAnswer(split={"n": 99}, ended=False, number=1)


def test_a_board_is_not_restored_over_another_input() -> None:
    before, after = (
        Boards(three_operators(source), lambda *_: None, lambda _: None)
        for source in (Numbers(3), Fewer())
    )
    before.claim(InstanceId(OperatorName("lines"), 0, -1))
    for snapshot in before.snapshots():
        with pytest.raises(InputChanged, match="source 'lines' has changed since: its first 1 par"):
            after.restore(snapshot)


def test_a_source_whose_parts_cannot_be_found_again_is_named() -> None:
    class Gone(Numbers):
        def splits(self) -> Iterator[Split]:
            yield {"n": 0}
            raise FileNotFoundError("texts")

    before, after = (
        Boards(three_operators(source), lambda *_: None, lambda _: None)
        for source in (Numbers(3), Gone())
    )
    for number in range(2):
        before.claim(InstanceId(OperatorName("lines"), number, -1))
    for snapshot in before.snapshots():
        with pytest.raises(SplitsError, match="source 'lines' cannot go on: FileNotFoundError: te"):
            after.restore(snapshot)


def test_what_cannot_be_recorded_does_not_happen() -> None:
    told: list[object] = []

    def full(_record: object) -> None:
        raise CannotWrite

    boards = Boards(three_operators(Numbers(3)), lambda _, message: told.append(message), full)
    with pytest.raises(CannotWrite):
        boards.claim(InstanceId(OperatorName("lines"), 0, -1))
    assert told == []


async def test_whoever_records_in_vain_is_told_and_the_run_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = Course()
    state = open_state(three_operators(), Options(state=tmp_path))
    tasks = Tasks(course.crash)
    journal_writer = RunJournalWriter(state, RunClock(None), tasks, course, lambda *_: None)
    journal_writer.log(Passed(seconds=1.0))
    journal_writer.open(list, power=False)

    def forbidden(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(RunJournal, "append", forbidden)
    with pytest.raises(CannotWrite):
        journal_writer.log(Passed(seconds=2.0))
    assert course.outcome.failure is not None
    assert "not permitted" in course.outcome.failure.message
    journal_writer.close(completed=False)


def test_half_a_record_at_the_end_is_cut_off(tmp_path: Path) -> None:
    journal = RunJournal(tmp_path / "j")
    for n in range(3):
        journal.append(Passed(seconds=n))
    journal.close()
    whole = (tmp_path / "j").read_bytes()
    for length in range(len(whole)):
        records = 3 * length // len(whole)
        extent = ExtentFile(tmp_path / "j")
        extent.note(0, len(whole) // 3 * records)
        extent.close()
        (tmp_path / "j").write_bytes(whole[:length])
        before = read_records(tmp_path / "j")
        assert before == [Passed(seconds=n) for n in range(records)]
        journal = RunJournal(tmp_path / "j")
        journal.append(Passed(seconds=9.0))
        journal.close()
        assert read_records(tmp_path / "j") == [*before, Passed(seconds=9.0)]


def test_a_long_journal_is_shortened_and_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.runtime.storage.record_log.SHORTEN_BYTES_MIN", 2000)
    fake.BEHAVIOUR["lines"] = reads_many
    run = start(three_operators(Numbers(2000)), state=tmp_path)
    until(lambda: "halfway" in [e.label for e in run.snapshot().events])
    assert (tmp_path / "agent.journal").stat().st_size < 20_000
    run.stop()
    run = start(three_operators(Numbers(2000)), state=tmp_path, resume=True)
    report = finish(run)
    assert details(report, "read") == ["1500 to 1999"]


def reads_many(me: Fake) -> None:
    me.status()
    numbers = []
    while True:
        me.say(msg.Claim())
        answer = me.expect(msg.SplitAnswer)
        if answer.split is None:
            break
        numbers.append(answer.split["n"])
        if answer.split["n"] == 1500 and me.assign.incarnation == 1:
            me.note("halfway")
            me.hear()
        me.say(msg.Release(remainder=None, number=answer.number))
    me.note("read", f"{numbers[0]} to {numbers[-1]}")
    me.gone(tuples_in=len(numbers), processed=len(numbers))


@pytest.mark.parametrize("options", [{"resume": True}, {"resume_or_begin": True}, {"fresh": True}])
def test_resuming_needs_a_folder(options: dict[str, bool]) -> None:
    with pytest.raises(PipelineError, match="needs state"):
        Options(**options)  # type: ignore[arg-type]


def test_a_run_is_either_resumed_or_begun_anew(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="either resume or fresh"):
        Options(state=tmp_path, resume=True, fresh=True)


def test_a_folder_of_another_version_is_refused(tmp_path: Path) -> None:
    start(three_operators(Endless()), state=tmp_path).stop()
    run = msgspec.json.decode((tmp_path / "run.json").read_bytes())
    (tmp_path / "run.json").write_bytes(msgspec.json.encode({**run, "version": "0.0.1"}))
    with pytest.raises(StateError, match=r"another version of anabranch \(0\.0\.1, this is"):
        start(three_operators(Endless()), state=tmp_path, resume=True)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("name", ["lock", "run.json", "journals/mine", "agent.journal"])
def test_what_only_has_the_name_of_ours_is_neither_changed_nor_removed(
    tmp_path: Path, name: str, fresh: bool
) -> None:
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("precious")
    with pytest.raises(StateError, match=r"not part of a run|not that of a run|not been completed"):
        start(three_operators(), state=tmp_path, fresh=fresh)
    assert mine.read_text() == "precious"


def test_a_run_killed_before_it_began_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    for name in ("journals", "ends"):
        (tmp_path / name).mkdir()
    assert finish(start(three_operators(), state=tmp_path)).ok
