"""Pipelines of a host, with a small program in the place of `anabranch run`."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.runtime.hosts.pipelines import ScaleOutcome
from anabranch.runtime.live.hosts import damaged, pipeline_folder, pipelines, scaled, upkeep
from anabranch.runtime.live.hosts.attendance import RunProcess
from anabranch.runtime.live.hosts.attended import Attended
from anabranch.runtime.live.hosts.pipelines import Pipelines
from anabranch.runtime.live.hosts.printed import PrintedLog
from anabranch.runtime.live.hosts.refused import PipelineRefused
from anabranch.runtime.storage.state_folder import locked
from tests.runtime.live.hosts.fake_runs import bundle, host, kept, only, printed, until
from tests.runtime.processes import LINUX, PATIENCE_S


async def test_a_pipeline_runs_until_it_is_stopped_and_its_figures_are_those_of_its_run(
    tmp_path: Path,
) -> None:
    async with host(tmp_path) as there:
        begun = await there.submit(*bundle())
        assert (begun.state, begun.starts) == ("running", 1)
        assert begun.run is not None
        assert begun.run["read"] == 7
        ended = await there.stop("a", at_once=False)
        assert ended.state == "finished"
        assert ended.run is not None
        assert (ended.run["read"], ended.pid) == (9, None)
        assert there.log_lines("a", 10) == (begun.id, ["begins new"])


async def test_a_run_that_ends_before_it_answers_has_finished(tmp_path: Path) -> None:
    async with host(tmp_path) as there:
        await there.submit(*bundle("short"))
        await until(lambda: len(there) == 0)
        assert (await only(there)).state == "finished"


async def test_a_pipeline_that_cannot_run_is_refused_in_its_words_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    async with host(tmp_path) as there:
        with pytest.raises(PipelineRefused, match=r"on host press: a.py holds no pip"):
            await there.submit(*bundle("wrong"))
        assert await there.statuses("") == []
        assert [*(tmp_path / "pipelines").iterdir()] == []


async def test_what_the_host_lacks_is_told_before_anything_starts(tmp_path: Path) -> None:
    async with host(tmp_path) as there:
        with pytest.raises(PipelineRefused, match=r"does not have .*'no_such_thing' \(a.py:1\)"):
            await there.submit(*bundle("import no_such_thing"))
        assert [*(tmp_path / "pipelines").iterdir()] == []


async def test_a_process_that_was_killed_begins_again_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "WAIT_S", 0.05)
    async with host(tmp_path) as there:
        first = await there.submit(*bundle())
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)
        await until(lambda: there.log_lines("a", 10)[1] == ["begins new", "begins resumed"])
        again = await only(there)
        assert (again.starts, again.pid != first.pid) == (2, True)


async def test_one_that_waits_to_begin_again_says_so_and_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "WAIT_S", PATIENCE_S)
    async with host(tmp_path) as there:
        begun = await there.submit(*bundle())
        assert begun.pid is not None
        os.kill(begun.pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            while (status := await only(there)).state != "waiting":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert status.message.startswith("its process was ended by signal 9; it begins again")
        assert (await there.stop("a", at_once=False)).state == "stopped"


@pytest.mark.skipif(not LINUX, reason="looks into /proc")
async def test_a_process_that_stands_still_is_silent_and_not_shown_as_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "ANSWER_S", 0.2)
    async with host(tmp_path) as there:
        begun = await there.submit(*bundle())
        assert begun.pid is not None
        os.kill(begun.pid, signal.SIGSTOP)
        await until(lambda: is_stopped(begun.pid))
        status = await only(there)
        os.kill(begun.pid, signal.SIGCONT)
        assert (status.state, status.run) == ("silent", None)
        monkeypatch.setattr(pipelines, "ANSWER_S", PATIENCE_S)
        assert (await only(there)).state == "running"


async def test_an_agent_that_starts_again_goes_on_with_what_had_not_ended(tmp_path: Path) -> None:
    async with host(tmp_path) as there:
        runs = await there.submit(*bundle("# one"))
        ended = await there.submit(*bundle("# two"))
        await there.stop(ended.id, at_once=False)
    async with host(tmp_path) as there:
        await until(lambda: there.log_lines(runs.id, 10)[1] == ["begins new", "begins resumed"])
        states = {status.id: status.starts for status in await there.statuses("")}
        assert states == {runs.id: 1, ended.id: 0}
        assert there.log_lines(ended.id, 10)[1] == ["begins new"]


async def test_a_run_waits_until_its_former_process_has_ended_whose_agent_was_killed(
    tmp_path: Path,
) -> None:
    async with host(tmp_path) as there:
        await there.submit(*bundle())
    former = locked(kept(tmp_path).state, ours=True)
    async with host(tmp_path) as there:
        await until(lambda: "has not ended yet" in printed(there))
        status = await only(there)
        assert status.state == "waiting"
        assert status.message == f"its former process ({os.getpid()}) has not ended yet"
        assert there.log_lines("a", 10)[1] == ["begins new"]
        former.close()
        await until(lambda: there.log_lines("a", 10)[1] == ["begins new", "begins resumed"])
    assert printed(there).count("has not ended yet") == 1


async def test_a_run_that_had_ended_when_the_agent_was_killed_does_not_begin_anew(
    tmp_path: Path,
) -> None:
    async with host(tmp_path) as there:
        begun = await there.submit(*bundle())
        await there.stop("a", at_once=False)
    folder = kept(tmp_path)
    for is_reported in (True, False):
        folder.note(end=None)
        if not is_reported:
            folder.report.unlink()
        async with host(tmp_path) as there:
            assert len(there) == 0
            assert (await only(there)).state == "finished"
            assert there.log_lines(begun.id, 10)[1] == ["begins new"]


async def test_two_versions_run_side_by_side_and_a_name_that_means_both_is_refused(
    tmp_path: Path,
) -> None:
    async with host(tmp_path) as there:
        one, other = [await there.submit(*bundle(f"# {n}")) for n in range(2)]
        assert [s.state for s in await there.statuses("a")] == ["running", "running"]
        with pytest.raises(PipelineRefused, match=f"say which: {one.id}, {other.id}"):
            await there.stop("a", at_once=False)
        await there.stop(one.id, at_once=False)
        assert (await there.stop("a", at_once=False)).id == other.id


async def test_a_version_that_runs_is_not_started_twice_and_one_that_has_ended_is(
    tmp_path: Path,
) -> None:
    async with host(tmp_path) as there:
        begun = await there.submit(*bundle())
        with pytest.raises(PipelineRefused, match=f"{begun.id} runs on press already"):
            await there.submit(*bundle())
        assert (await there.stop("a", at_once=True)).state == "stopped"
        await there.submit(*bundle())
        assert there.log_lines("a", 10)[1] == ["begins new", "begins resumed"]


async def test_an_operator_is_scaled_when_its_run_says_that_it_has_so_many_instances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host(tmp_path) as there:
        begun = await there.submit(*bundle())
        for wanted, instances in ((4, 4), (None, 1)):
            told = await there.scale("a", "work", wanted)
            assert told == ScaleOutcome(begun.id, "press", "work", wanted, instances, True)
        with pytest.raises(PipelineRefused, match=f"{begun.id}: there is no operator 'wrok'"):
            await there.scale("a", "wrok", 4)
        await there.submit(*bundle("# stuck", name="b"))
        monkeypatch.setattr(scaled, "REACHED_S", 0.5)
        told = await there.scale("b", "work", 4)
        assert (told.instances, told.reached, told.why) == (1, False, "no room")
        await there.stop("b", at_once=False)
        with pytest.raises(PipelineRefused, match="does not run just now: it has ended") as raised:
            await there.scale("b", "work", 4)
        assert raised.value.wrong


@pytest.mark.skipif(not LINUX, reason="looks into /proc")
async def test_a_reply_that_comes_too_late_is_none_to_the_next_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "ANSWER_S", 0.1)
    monkeypatch.setattr(scaled, "NOTED_S", 0.1)
    async with host(tmp_path) as there:
        begun = await there.submit(*bundle())
        assert begun.pid is not None
        os.kill(begun.pid, signal.SIGSTOP)
        await until(lambda: is_stopped(begun.pid))
        assert (await only(there)).state == "silent"
        with pytest.raises(PipelineRefused, match="does not answer"):
            await there.scale("a", "work", 4)
        os.kill(begun.pid, signal.SIGCONT)
        monkeypatch.setattr(pipelines, "ANSWER_S", PATIENCE_S)
        monkeypatch.setattr(scaled, "NOTED_S", PATIENCE_S)
        with pytest.raises(PipelineRefused, match="there is no operator 'wrok'"):
            await there.scale("a", "wrok", 4)
        assert (await only(there)).run is not None


def is_stopped(pid: int | None) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.read_text().rpartition(")")[2].split()[0] == "T"


async def test_an_unknown_pipeline_is_told_with_what_there_is(tmp_path: Path) -> None:
    async with host(tmp_path) as there:
        with pytest.raises(PipelineRefused, match="has no pipeline 'a'; there: none"):
            there.log_lines("a", 10)
        begun = await there.submit(*bundle(name="headlines"))
        with pytest.raises(PipelineRefused, match=r"did you mean 'headlines'\?"):
            await there.stop("headline", at_once=False)
        await there.stop("headlines", at_once=False)
        with pytest.raises(PipelineRefused, match=f"{begun.id} has ended: finished"):
            await there.stop("headlines", at_once=False)


async def test_what_a_killed_unpacking_left_is_removed_and_a_pipeline_of_that_name_is_not(
    tmp_path: Path,
) -> None:
    left = tmp_path / "pipelines" / f"{pipeline_folder.UNFINISHED}0a1b" / "files"
    left.mkdir(parents=True)
    async with host(tmp_path) as there:
        assert await there.statuses("") == []
        assert [*(tmp_path / "pipelines").iterdir()] == []
        await there.submit(*bundle("short", name="new-york"))
        await until(lambda: len(there) == 0)
    async with host(tmp_path) as there:
        assert (await only(there)).name == "new-york"


def no_record(folder: Path) -> None:
    (folder / "pipeline.json").unlink()


def truncated(folder: Path) -> None:
    record = folder / "pipeline.json"
    record.write_bytes(record.read_bytes()[:40])


def empty(folder: Path) -> None:
    (folder / "pipeline.json").write_bytes(b"")


def of_another_version(folder: Path) -> None:
    (folder / "pipeline.json").write_text('{"name": "a", "edition": 2}')


def a_folder_in_its_place(folder: Path) -> None:
    no_record(folder)
    (folder / "pipeline.json").mkdir()


def not_itself(folder: Path) -> None:
    (folder / "pipeline.json").unlink()
    (folder / "pipeline.json").symlink_to("pipeline.json")


def of_another_pipeline(folder: Path) -> None:
    record = folder / "pipeline.json"
    record.write_text(record.read_text().replace('"name":"a"', '"name":"z"'))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (no_record, "this cannot be read: No such file"),
        (truncated, "this is damaged: Input data was truncated"),
        (empty, "this is damaged: Input data was truncated"),
        (of_another_version, "this is damaged: Object missing required field"),
        (a_folder_in_its_place, "this cannot be read: Is a directory"),
        (not_itself, "this cannot be read: Too many levels of symbolic links"),
        (of_another_pipeline, "this belongs to a folder 'z@"),
    ],
)
async def test_a_damaged_record_is_told_and_left_alone_while_the_other_pipelines_run(
    tmp_path: Path, damage: Callable[[Path], None], told: str
) -> None:
    async with host(tmp_path) as there:
        broken = await there.submit(*bundle())
        sound = await there.submit(*bundle(name="b"))
    folder = tmp_path / "pipelines" / broken.id
    damage(folder)
    before = sorted(folder.rglob("*"))
    async with host(tmp_path) as there:
        await until(lambda: there.log_lines("b", 10)[1] == ["begins new", "begins resumed"])
        states = {s.id: s.state for s in await there.statuses("")}
        assert states == {broken.id: "damaged", sound.id: "running"}
        (status,) = await there.statuses("a")
        place = folder / "pipeline.json"
        assert status.message.startswith(f"{place}: {told}")
        assert f"{status.message}; {damaged.REMEDY}" in printed(there)
        for refused in (there.stop("a", at_once=False), there.submit(*bundle())):
            with pytest.raises(PipelineRefused, match=r"pipeline\.json: this ") as raised:
                await refused
            assert not raised.value.wrong
        assert sorted(folder.rglob("*")) == before


@pytest.mark.skipif(not LINUX, reason="other systems have names in UTF-8 only")
async def test_what_is_no_pipeline_is_told_in_characters_that_can_be_shown(tmp_path: Path) -> None:
    parent = tmp_path / "pipelines"
    parent.mkdir()
    (parent / "notes\x1b[2J.txt").write_text("mine")
    os.mkdir(os.fsencode(parent) + b"/f\xfc r")
    async with host(tmp_path) as there:
        found = {status.id: status for status in await there.statuses("")}
        assert {*found} == {r"notes\x1b[2J.txt", r"f\udcfc r"}
        assert {status.state for status in found.values()} == {"damaged"}
        assert found[r"notes\x1b[2J.txt"].message.endswith("this is not the folder of a pipeline")
        assert "\x1b" not in printed(there)
        msgspec.msgpack.encode([*found.values()])
    assert len([*parent.iterdir()]) == 2


async def test_a_damaged_pipeline_that_was_mended_or_removed_meanwhile_is_not_called_damaged(
    tmp_path: Path,
) -> None:
    async with host(tmp_path) as there:
        begun = await there.submit(*bundle())
    record = tmp_path / "pipelines" / begun.id / "pipeline.json"
    whole = record.read_bytes()
    record.write_bytes(b"")
    async with host(tmp_path) as there:
        record.write_bytes(whole)
        assert (await only(there)).message.endswith(damaged.WHOLE)
        shutil.rmtree(record.parent)
        assert await there.statuses("") == []
        assert (await there.submit(*bundle())).state == "running"


async def test_of_many_that_are_damaged_the_first_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damaged, "NAMED_MAX", 3)
    parent = tmp_path / "pipelines"
    parent.mkdir()
    for number in range(5):
        (parent / f"{number}.txt").write_text("")
    async with host(tmp_path) as there:
        assert [s.id for s in await there.statuses("")] == ["0.txt", "1.txt", "2.txt"]
        assert "2 more there are damaged, or are no pipelines" in printed(there)


async def test_a_log_that_cannot_be_read_hides_no_end_of_a_run(tmp_path: Path) -> None:
    async with host(tmp_path) as there:
        begun = await there.submit(*bundle("# runs, then fails"))
    folder = tmp_path / "pipelines" / begun.id
    (folder / "log-0").unlink()
    (folder / "log-0").mkdir()
    async with host(tmp_path) as there:
        await until(lambda: len(there) == 0)
        status = await only(there)
        assert (status.state, status.message) == ("failed", "exit code 1")
        assert "cannot read the log in" in printed(there)


async def line_after(there: Pipelines, name: str, at: int | None) -> tuple[bytes, int]:
    """It may be seen while only a part of it is written."""
    line = b""
    while not line.endswith(b"\n"):
        more = await there.more_log(name, at, 10)
        assert not more.state
        line, at = line + more.data, more.at
    assert at is not None
    return line, at


async def test_what_follows_a_log_gets_all_that_is_printed_and_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host(tmp_path) as there:
        begun = await there.submit(*bundle())
        line, at = await line_after(there, "a", None)
        assert line == b"begins new\n"
        monkeypatch.setattr(pipelines, "NEWS_S", 0.1)
        silent = await there.more_log("a", at, 10)
        assert (silent.data, silent.at, silent.state) == (b"", at, "")
    closed = await there.more_log("a", at, 10)  # it is kept, and has not ended
    assert (closed.data, closed.at, closed.state) == (b"", at, "")
    monkeypatch.setattr(pipelines, "NEWS_S", PATIENCE_S)
    async with host(tmp_path) as there:
        line, at = await line_after(there, begun.id, at)
        assert line == b"begins resumed\n"
        waiting = asyncio.create_task(there.more_log("a", at, 10))
        await there.stop("a", at_once=False)
        end = await waiting
        assert (end.data, end.state) == (b"", "finished")


async def test_a_fault_of_the_agent_itself_is_told_and_not_taken_for_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a fault")

    async with host(tmp_path) as there:
        monkeypatch.setattr(Attended, "verdict", broken)
        await there.submit(*bundle("short"))
        await until(lambda: len(there) == 0)
        with pytest.raises(PipelineRefused, match="does not run just now"):
            await there.stop("a", at_once=False)
        status = await only(there)
        told = "the agent itself has failed: RuntimeError('a fault'); start it again to go on"
        assert (status.state, status.message) == ("waiting", told)
        assert told in printed(there)
    monkeypatch.undo()
    async with host(tmp_path) as there:
        assert (await only(there)).state == "finished"


async def test_one_version_that_is_submitted_twice_at_once_is_unpacked_once(tmp_path: Path) -> None:
    async with host(tmp_path) as there:
        both = await asyncio.gather(
            there.submit(*bundle()), there.submit(*bundle()), return_exceptions=True
        )
        (refused,) = [each for each in both if isinstance(each, BaseException)]
        assert "runs on press already: this version was submitted before" in str(refused)
        assert (await only(there)).state == "running"


async def test_nothing_begins_on_a_host_that_is_about_to_end(tmp_path: Path) -> None:
    async with host(tmp_path) as there:
        await there.close()
        with pytest.raises(PipelineRefused, match="press is about to end") as raised:
            await there.submit(*bundle())
        assert not raised.value.wrong
        assert await there.statuses("") == []


async def test_a_run_that_was_told_to_end_does_so_after_its_death_and_that_of_its_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "WAIT_S", 0.05)
    monkeypatch.setattr(pipelines, "STOP_S", 0.05)
    async with host(tmp_path) as there:
        for name in ("a", "b"):
            begun = await there.submit(*bundle(name=name))
            assert begun.pid is not None
            os.kill(begun.pid, signal.SIGSTOP)  # it does not hear that it is to end
            await there.stop(name, at_once=False)
            if name == "a":
                os.kill(begun.pid, signal.SIGKILL)
                await until(lambda: len(there) == 0)
                assert (await only(there)).state == "finished"
        monkeypatch.setattr(pipelines, "CLOSE_S", 0.05)
    async with host(tmp_path) as there:
        await until(lambda: len(there) == 0)
        assert [status.state for status in await there.statuses("")] == ["finished", "finished"]


async def test_a_disk_that_takes_no_record_and_no_log_ends_no_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with host(tmp_path) as there:
        monkeypatch.setattr(PrintedLog, "add", full)
        unpacked = pipeline_folder.unpack

        def then_full(*words: Any) -> Any:
            folder = unpacked(*words)
            monkeypatch.setattr(pipeline_folder, "replace_file", full)
            return folder

        monkeypatch.setattr(pipelines, "unpack", then_full)
        assert (await there.submit(*bundle())).state == "running"
        assert (await there.stop("a", at_once=False)).state == "finished"
        said = printed(there)
        assert said.count("what it prints is lost: No space left on device") == 1
        assert "cannot write to" in said


async def test_a_process_that_cannot_begin_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "WAIT_S", 0.05)
    begin, failures = RunProcess.begin, [OSError(errno.EAGAIN, "no more processes")]

    async def begun(*words: Any) -> Any:
        if failures:
            raise failures.pop()
        return await begin(*words)

    monkeypatch.setattr(RunProcess, "begin", begun)
    async with host(tmp_path) as there:
        waits = await there.submit(*bundle())
        assert (waits.state, waits.starts) == ("waiting", 0)
        assert waits.message.startswith("its process cannot begin: no more processes; it begins")
        await until(lambda: there.log_lines("a", 1)[1] == ["begins new"])


async def test_a_run_that_could_not_write_its_report_has_failed_for_the_reason_that_it_printed(
    tmp_path: Path,
) -> None:
    async with host(tmp_path) as there:
        with pytest.raises(PipelineRefused, match=r"on host press: operator 'x': no disk$"):
            await there.submit(*bundle("fails"))
