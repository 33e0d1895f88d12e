"""The agent carries out runs of real processes, whose instances only speak to it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.protocol.limits import Limits
from anabranch.runtime.failure import RunFailed
from anabranch.runtime.graph import Pipeline, PipelineError, Scale
from anabranch.runtime.live import launch, parent_process
from anabranch.runtime.live import messages as msg
from anabranch.runtime.live.launch import Run
from anabranch.runtime.live.parent_process import ParentProcess
from anabranch.runtime.live.run_dir import PATH_BYTES_MAX
from anabranch.runtime.options import Options
from anabranch.runtime.policies.script import parse_script
from anabranch.runtime.report import Report, read_report
from anabranch.runtime.status import FinalCount, id_to_wire
from tests.runtime import fake_instance as fake
from tests.runtime.fake_instance import Endless, Fake, Numbers, three_operators
from tests.runtime.processes import alive, still_alive_after

TIMEOUT_S = 20


@pytest.fixture(autouse=True)
def _usual_behaviour() -> Iterator[None]:
    yield
    fake.BEFORE_READY.clear()
    fake.BEHAVIOUR.clear()


def start(pipeline: Pipeline, **options: Any) -> Run:
    return launch.start(pipeline, Options(**options), entry=fake.ENTRY)


def finish(run: Run) -> Report:
    """The report; nothing of the run is left."""
    try:
        return run.wait(TIMEOUT_S)
    finally:
        assert still_alive_after(run.snapshot().pids, 0) == []


def failure_of(run: Run) -> RunFailed:
    with pytest.raises(RunFailed) as failed:
        run.wait(TIMEOUT_S)
    assert still_alive_after(run.snapshot().pids, 1) == []
    return failed.value


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def pause(seconds: float) -> None:
    """In fakes, which are processes of their own."""
    time.sleep(seconds)


def kinds(report: Report, operator: str = "work") -> list[str]:
    return [e.kind for e in report.events if e.operator == operator]


def wait_for(file: Path) -> None:
    """In fakes: until another one has made the file."""
    until(file.exists)


# --- the ordinary run -------------------------------------------------------------------------


def test_a_run_is_complete_when_every_instance_has_given_its_account() -> None:
    report = finish(start(three_operators(Numbers(5), min_instances=3)))
    assert (report.ended, report.failure, report.ok) == ("completed", None, True)
    assert report.ledger.tuples_in == 5
    assert [o.instances_peak for o in report.operators] == [1, 3, 1]
    assert kinds(report) == ["ended"] * 3


def test_founders_know_their_neighbours_completely_and_one_is_the_keeper() -> None:
    def tell(me: Fake) -> None:
        assert me.assign.genesis is not None
        genesis = me.assign.genesis
        succs = sorted(i[1] for i, address in genesis.succs if address.startswith("unix:/"))
        preds = sorted(i[1] for i in genesis.preds)
        me.note("told", f"{me.id} {preds} {succs} {genesis.keeper}")

    for operator in ("lines", "work", "out"):
        fake.BEHAVIOUR[operator] = tell
    pipeline = Pipeline("fake")
    lines = pipeline.source("lines", Numbers(), scale=Scale(min_instances=2))
    work = lines.map("work", str, scale=Scale(min_instances=3))
    work.sink("out", fake.Nowhere(), scale=Scale(min_instances=2))
    report = finish(start(pipeline))
    assert sorted(e.detail for e in report.events if e.kind == "told") == [
        "lines.0 [] [0, 1, 2] True",
        "lines.1 [] [0, 1, 2] False",
        "out.0 [0, 1, 2] [] True",
        "out.1 [0, 1, 2] [] False",
        "work.0 [0, 1] [0, 1] True",
        "work.1 [0, 1] [0, 1] False",
        "work.2 [0, 1] [0, 1] False",
    ]


def test_the_folder_of_a_run_is_private_short_and_removed() -> None:
    def tell(me: Fake) -> None:
        me.note("folder", f"{me.run_dir} {me.run_dir.stat().st_mode & 0o777:o}")

    fake.BEHAVIOUR["work"] = tell
    report = finish(start(three_operators()))
    folder, mode = next(e.detail for e in report.events if e.kind == "folder").split()
    assert mode == "700"
    assert len(folder) <= PATH_BYTES_MAX
    assert not Path(folder).exists()


def test_instances_share_the_splits_without_overlap() -> None:
    def tell(me: Fake) -> None:
        me.status()
        me.read_everything()
        for split in me.claimed:
            me.note("read", str(split["n"]))
        me.gone()

    fake.BEHAVIOUR["lines"] = tell
    pipeline = Pipeline("fake")
    lines = pipeline.source("lines", Numbers(40), scale=Scale(min_instances=3))
    lines.sink("out", fake.Nowhere())
    report = finish(start(pipeline))
    read = [int(e.detail) for e in report.events if e.kind == "read"]
    assert sorted(read) == list(range(40))


def test_an_instance_that_claimed_in_vain_gets_what_another_one_puts_back() -> None:
    def tell(me: Fake) -> None:
        me.status()
        if me.id.number == 0:
            me.say(msg.Claim())
            split = me.expect(msg.SplitAnswer).split
            (me.run_dir / "claimed").touch()
            wait_for(me.run_dir / "asked")
            me.say(msg.Release(remainder={**split, "rest": True}, progress=0.5))
            me.gone()
        wait_for(me.run_dir / "claimed")
        me.say(msg.Claim())
        while me.expect(msg.SplitAnswer).split is not None:
            me.say(msg.Release(remainder=None))
            me.say(msg.Claim())
        (me.run_dir / "asked").touch()
        me.expect(msg.Splits)
        me.say(msg.Claim())
        me.note("got", str(me.expect(msg.SplitAnswer).split.get("rest")))
        me.say(msg.Release(remainder=None))
        me.say(msg.Claim())
        me.note("then", str(me.expect(msg.SplitAnswer).ended))
        me.gone()

    fake.BEHAVIOUR["lines"] = tell
    pipeline = Pipeline("fake")
    lines = pipeline.source("lines", Numbers(5), scale=Scale(min_instances=2))
    lines.sink("out", fake.Nowhere())
    report = finish(start(pipeline))
    told = {e.kind: e.detail for e in report.events}
    assert (told["got"], told["then"]) == ("True", "True")


def test_a_snapshot_shows_what_runs() -> None:
    def tell(me: Fake) -> None:
        me.status(tuples_in=10, load=0.5, queued=3, held=2, blocked_by="out.0")

    fake.BEHAVIOUR["work"] = tell
    with start(three_operators(Endless(), min_instances=2)) as run:
        until(lambda: run.snapshot().operator("work").queued == 6)
        snapshot = run.snapshot()
        work = snapshot.operator("work")
        assert (snapshot.phase, snapshot.pipeline) == ("running", "fake")
        assert (work.kind, work.instances, work.tuples_in) == ("operator", 2, 20)
        assert (work.load, work.queued, work.held) == (0.5, 6, 4)
        assert [m.id for m in work.members] == ["work.0", "work.1"]
        assert [m.keeper for m in work.members] == [True, False]
        assert work.members[0].blocked_by == "out.0"
        assert {m.pid for o in snapshot.operators for m in o.members} <= set(snapshot.pids)
    assert run.snapshot().phase == "ended"


def test_progress_is_the_share_of_the_input_that_was_read() -> None:
    def half(me: Fake) -> None:
        me.status()
        for _ in range(2):
            me.say(msg.Claim())
            me.expect(msg.SplitAnswer)
            me.say(msg.Progress(amount=0.5))
            me.say(msg.Release(remainder=None, progress=0.5))
        me.expect(msg.EndInput)

    fake.BEHAVIOUR["lines"] = half
    run = start(three_operators(Numbers(4)))
    until(lambda: run.snapshot().operator("lines").progress == 0.5)
    assert run.snapshot().operator("work").progress is None
    run.end_input()
    finish(run)


# --- newcomers --------------------------------------------------------------------------------


def asks(n: int) -> Any:
    """Behaviour: ask for `n` instances and tell what came."""

    def ask(me: Fake) -> None:
        if me.assign.genesis is None:
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
    return [e.detail for e in report.events if e.kind == "answer"]


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
            pause(60)

    fake.BEFORE_READY["work"] = late
    fake.BEHAVIOUR["work"] = asks(2)
    report = finish(start(three_operators(Numbers(1)), limits=Limits(start_deadline_s=1.0)))
    assert answers(report) == ["work.2<0|work.1 was not ready within 1 s"]
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
        if me.assign.genesis is None:
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
        if me.assign.genesis is None:
            pause(60)
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
    with pytest.raises(RunFailed, match=r"broke its link to the agent: work\.1 cannot be disc"):
        finish(start(three_operators(Endless(), min_instances=2)))


# --- scripted decisions -----------------------------------------------------------------------


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
    assert [(e.operator, e.detail) for e in skipped] == [("work", "nobody can leave")]


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


# --- the end ----------------------------------------------------------------------------------


def test_a_run_of_limited_duration_ends_its_input_by_itself() -> None:
    report = finish(start(three_operators(Endless()), duration_s=0.2))
    assert report.ended == "completed"
    assert report.seconds >= 0.2


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


def test_a_killed_instance_fails_the_run_with_its_name_and_signal() -> None:
    run = start(three_operators(Endless(), min_instances=2))
    victim = run.snapshot().operator("work").members[1]
    os.kill(victim.pid, signal.SIGKILL)
    failed = failure_of(run)
    assert failed.failure.message == (
        f"operator 'work': instance work.1 (process {victim.pid}) was killed by SIGKILL"
    )
    assert failed.report.ended == "failed"
    assert not failed.report.ledger.balanced


def test_a_crashed_instance_fails_the_run_with_its_last_words() -> None:
    def crash(me: Fake) -> None:
        me.status()
        raise ValueError("a mistake of ours")

    fake.BEHAVIOUR["work"] = crash
    lines: list[str] = []
    with pytest.raises(RunFailed) as failed:
        finish(start(three_operators(Endless()), on_output=lambda _, line: lines.append(line)))
    assert "instance work.0" in failed.value.failure.message
    assert failed.value.failure.message.endswith("ended with exit code 1")
    assert "ValueError: a mistake of ours" in failed.value.failure.detail
    assert "ValueError: a mistake of ours" in lines


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


def test_an_instance_that_speaks_nonsense_fails_the_run() -> None:
    def babble(me: Fake) -> None:
        me.say({"kind": "nonsense"})
        pause(60)

    fake.BEHAVIOUR["work"] = babble
    with pytest.raises(RunFailed, match=r"work\.0 broke its link to the agent"):
        start(three_operators(Endless())).wait(TIMEOUT_S)


def test_an_instance_that_does_not_exit_after_its_account_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.runtime.live.watch.EXIT_TIMEOUT_S", 0.3)

    def stays(me: Fake) -> None:
        me.wait_until_preds_are_gone()
        (me.run_dir / f"{me.id}.gone").touch()
        me.say(FinalCount(id=str(me.id), operator="work"))
        pause(60)

    fake.BEHAVIOUR["work"] = stays
    begun = time.monotonic()
    report = finish(start(three_operators(Numbers(1))))
    assert report.ok
    assert time.monotonic() - begun < 5


def test_a_pipeline_whose_instances_do_not_start_says_so() -> None:
    def refuse(me: Fake) -> None:
        raise OSError("address already in use")

    fake.BEFORE_READY["out"] = refuse
    with pytest.raises(RunFailed) as failed:
        start(three_operators())
    assert "pipeline 'fake' did not start" in failed.value.failure.message
    assert "address already in use" in str(failed.value)


def test_an_instance_that_is_never_ready_fails_the_start_within_the_deadline() -> None:
    fake.BEFORE_READY["work"] = lambda me: pause(60)
    with pytest.raises(RunFailed, match=r"work\.0 was not ready within 1 s"):
        start(three_operators(), limits=Limits(start_deadline_s=1.0))


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

    monkeypatch.setattr("anabranch.runtime.live.recorder.Recorder.sample", fall_over)
    with pytest.raises((RunFailed, RuntimeError), match="a bug of ours"):
        start(three_operators(Endless())).wait(TIMEOUT_S)


# --- before the start, and the report ---------------------------------------------------------


class Missing(Numbers):
    def prepare(self) -> None:
        raise FileNotFoundError("texts/*.txt: no such file")


def test_an_input_that_is_not_there_is_told_before_anything_starts() -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        start(three_operators(Missing()))


class Unmeasurable(Numbers):
    def size(self) -> float | None:
        raise OSError("stale file handle")


def test_an_agent_that_cannot_be_made_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    parents: list[int] = []

    def fork_parent(pipeline: Pipeline, entry: str) -> ParentProcess:
        parent = parent_process.fork_parent(pipeline, entry)
        parents.append(parent.pid)
        return parent

    monkeypatch.setattr(launch, "fork_parent", fork_parent)
    with pytest.raises(OSError, match="stale file handle"):
        start(three_operators(Unmeasurable()))
    assert len(parents) == 1
    assert not alive(parents[0])


def test_a_run_beside_another_one_does_not_keep_its_files_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a copy of the first one's lifeline in the second, the first would not end."""
    monkeypatch.setattr("anabranch.runtime.live.orphans._prctl", None)
    first = start(three_operators(Endless()))
    second = start(three_operators(Endless()), preload="fork")
    os.kill(first.snapshot().pids[0], signal.SIGKILL)
    failed = failure_of(first)
    assert failed.failure.message == "the process that all others are forked from is gone"
    second.end_input()
    assert finish(second).ok


def test_a_second_run_needs_the_file_of_the_pipeline_or_the_wish_to_fork() -> None:
    with (
        start(three_operators(Endless())),
        pytest.raises(PipelineError, match="several threads"),
    ):
        start(three_operators())


def test_the_report_is_written_also_when_the_run_failed(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    run = start(three_operators(Endless()), report=path, seed=11)
    os.kill(run.snapshot().operator("out").members[0].pid, signal.SIGKILL)
    failed = failure_of(run)
    assert read_report(path) == failed.report
    assert read_report(path).seed == 11
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_a_report_that_cannot_be_written_is_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        start(three_operators(), report=tmp_path / "nowhere" / "report.json")
    with pytest.raises(IsADirectoryError):
        start(three_operators(), report=tmp_path)


def test_the_address_asked_for_is_passed_on() -> None:
    def tell(me: Fake) -> None:
        me.note("assigned", f"{me.assign.transport} {me.assign.host} {me.assign.scaling}")

    fake.BEHAVIOUR["work"] = tell
    run = start(three_operators(), transport="tcp", host="127.0.0.2", scaling=False)
    report = finish(run)
    assert [e.detail for e in report.events if e.kind == "assigned"] == ["tcp 127.0.0.2 False"]


@pytest.mark.parametrize("options", [{"warm": -1}, {"duration_s": 0}, {"transport": "pigeon"}])
def test_options_without_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(PipelineError, match=next(iter(options))):
        Options(**options)
