"""What is wished for a folder with a run in it: go on, go on or begin, begin anew."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import msgspec
import pytest

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.live.agent.launch import Run
from anabranch.runtime.live.agent.run_files import plain_span
from anabranch.runtime.live.agent.state_dir import (
    RunFile,
    as_before,
    open_state,
    span_in,
)
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.plan.spec import Span
from anabranch.runtime.policies.script import parse_script
from anabranch.runtime.ports.disk import Disk
from anabranch.runtime.savepoint.versions import STATE_FORMAT, version
from anabranch.runtime.storage.state_folder import StateError
from tests.runtime import fake_instance as fake
from tests.runtime.agent_runs import finish, start
from tests.runtime.fake_instance import Endless, three_operators

pytestmark = pytest.mark.usefixtures("usual_behaviour")


def test_one_wish_begins_a_run_goes_on_with_it_and_begins_the_next(tmp_path: Path) -> None:
    def begun() -> Run:
        return start(three_operators(Endless()), state=tmp_path, resume_or_begin=True)

    first = begun()
    began = first.stop().started_at
    assert first.resumed_from is None
    second = begun()
    assert second.resumed_from is not None
    second.end_input()
    assert finish(second).started_at == began
    third = begun()
    assert third.stop().started_at > began
    assert third.resumed_from is None


RESUMED = pytest.mark.parametrize("wish", ["resume", "resume_or_begin"])


@RESUMED
def test_what_a_script_decided_before_is_not_decided_again(tmp_path: Path, wish: str) -> None:
    script = parse_script("0 work leave")
    first = start(three_operators(Endless()), state=tmp_path, script=script).stop()
    assert [e.detail for e in first.events if e.kind == "skipped"] == ["no instance can leave"]
    second = start(three_operators(Endless()), state=tmp_path, script=script, **{wish: True})
    second.end_input()
    told = [e.detail for e in finish(second).events if e.kind == "skipped"]
    assert told == ["no instance can leave"]  # the report is of both parts: once, by the first


def careless(me: fake.Fake) -> None:
    me.wait_until_preds_are_gone()
    me.gone(tuples_in=2, processed=1)


@RESUMED
def test_at_least_once_what_a_resumed_run_has_done_twice_is_excused(
    tmp_path: Path, wish: str
) -> None:
    fake.BEHAVIOUR["work"] = careless
    pipeline = three_operators(Endless())
    pipeline.delivery = "at-least-once"
    start(pipeline, state=tmp_path).stop()
    run = start(pipeline, state=tmp_path, **{wish: True})
    run.end_input()
    ledger = finish(run).ledger
    assert (ledger.balanced, ledger.excused) == (False, True)


def test_whoever_would_also_begin_is_refused_a_run_of_another_pipeline(tmp_path: Path) -> None:
    start(three_operators(Endless()), state=tmp_path).stop()
    other = Pipeline("other")
    other.source("lines", Endless()).sink("out", fake.Nowhere())
    with pytest.raises(StateError, match="it was 'fake' and is 'other'"):
        start(other, state=tmp_path, resume_or_begin=True)
    assert start(three_operators(Endless()), state=tmp_path, resume=True).stop().failure is None


@RESUMED
def test_a_run_goes_on_with_the_input_that_it_was_begun_with(tmp_path: Path, wish: str) -> None:
    """Otherwise it would read other files, or say that its own have changed."""
    pipeline = three_operators(Endless())
    (lines,) = [o.name for o in pipeline.operators.values() if o.source is not None]
    pipeline.inputs[lines] = ["old/*.txt", "older.txt"]
    start(pipeline, state=tmp_path).stop()
    said = f"begun with --input {lines}=old/*.txt --input {lines}=older.txt; go on with it in the"
    with pytest.raises(StateError, match=re.escape(said)):
        start(three_operators(Endless()), state=tmp_path, **{wish: True})
    start(pipeline, state=tmp_path, **{wish: True}).stop()


class Full(fake.Nowhere):
    def prepare(self) -> None:
        raise OSError(17, "the folder is not empty")

    def prepare_to_resume(self) -> None:
        """What is there is part of the run."""


def test_a_run_is_not_given_up_before_the_new_one_may_begin(tmp_path: Path) -> None:
    pipeline = three_operators(Endless())
    start(pipeline, state=tmp_path).stop()
    (out,) = [o for o in pipeline.operators.values() if o.sink is not None]
    object.__setattr__(out, "sink", Full())
    with pytest.raises(OSError, match="the folder is not empty"):
        start(pipeline, state=tmp_path, fresh=True)
    run = start(pipeline, state=tmp_path, resume=True)
    assert run.resumed_from is not None
    run.stop()


@pytest.mark.parametrize("wish", ["resume", "resume_or_begin", "fresh"])
def test_a_file_that_only_has_the_name_of_ours_is_told_apart_at_once(
    tmp_path: Path, wish: str
) -> None:
    (tmp_path / "run.json").write_text('{"mine": true}')
    with pytest.raises(StateError, match=r"run\.json is damaged, or not .*another folder"):
        start(three_operators(), state=tmp_path, **{wish: True})


def test_a_version_that_wrote_less_is_told_as_another_version(tmp_path: Path) -> None:
    start(three_operators(Endless()), state=tmp_path).stop()
    path = tmp_path / "run.json"
    run = msgspec.json.decode(path.read_bytes())
    del run["limits"]
    path.write_bytes(msgspec.json.encode(run))
    with pytest.raises(StateError, match=r"run\.json is damaged: .*`limits`.*--fresh"):
        start(three_operators(Endless()), state=tmp_path, resume=True)
    path.write_bytes(msgspec.json.encode({**run, "version": "0.0.1"}))
    with pytest.raises(StateError, match="written by another version of anabranch"):
        start(three_operators(Endless()), state=tmp_path, resume=True)


def test_a_lock_of_which_a_loss_of_power_has_left_the_length_is_ours(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(bytes(6))
    state = open_state(three_operators(Endless()), Options(state=tmp_path))
    assert state is not None
    state.close()


@pytest.mark.parametrize("wish", [{}, {"resume": True}, {"fresh": True}])
def test_a_folder_that_cannot_be_used_is_named_with_what_to_do(
    tmp_path: Path, wish: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, exists = tmp_path / "mine", Disk.exists

    def forbidden(disk: Disk, path: Path, *_: object, **__: object) -> bool:
        if path.is_relative_to(mine):
            raise PermissionError(13, "Permission denied")
        return exists(disk, path)

    monkeypatch.setattr(Disk, "exists" if wish.get("resume") else "make_folder", forbidden)
    with pytest.raises(
        StateError, match=r"folder '.*mine' cannot be used: Permission denied; name another folder"
    ):
        start(three_operators(), state=mine, **wish)


class Killed(BaseException):
    """Nothing of ours is done after it."""


@pytest.mark.parametrize("removed", range(4))
def test_what_a_run_leaves_that_is_killed_while_it_removes_its_files_is_in_nobodys_way(
    tmp_path: Path, removed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(three_operators(Endless()), state=tmp_path).stop()
    kept = tmp_path / "journals" / "0.0.journal.1"
    kept.touch()
    (tmp_path / "notes").touch()
    state = open_state(three_operators(), Options(state=tmp_path, fresh=True))
    assert state is not None
    left = removed

    def counted(remove: Callable[..., None]) -> Callable[..., None]:
        def removing(path: Path, *args: object, **kwargs: object) -> None:
            nonlocal left
            if path.exists():
                if left == 0:
                    raise Killed
                left -= 1
            remove(path, *args, **kwargs)

        return removing

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", counted(shutil.rmtree))
        patch.setattr(Path, "unlink", counted(Path.unlink))
        with pytest.raises(Killed):
            state.clear()
    state.close()
    with pytest.raises(StateError, match="holds no run"):
        start(three_operators(Endless()), state=tmp_path, resume=True)
    run = start(three_operators(Endless()), state=tmp_path, resume_or_begin=True)
    assert run.resumed_from is None
    assert not kept.exists()
    run.end_input()
    assert finish(run).ok
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


ANY_RUN = RunFile(
    format=STATE_FORMAT,
    version=version(),
    pipeline="fake",
    operators={},
    groups=256,
    delivery="effectively-once",
    token=b"token",
    limits={},
    seed=0,
    started_at="",
    run_dir="",
    gone={},
    transport="unix",
    host="",
)


@pytest.mark.parametrize("length", [0, 5, 100])
def test_a_run_that_was_killed_while_it_noted_what_it_is_is_in_nobodys_way(
    tmp_path: Path, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(source: Path, _: Path) -> None:
        os.truncate(source, length)
        raise Killed

    folder = tmp_path / "kept"
    state = open_state(three_operators(), Options(state=folder))
    assert state is not None
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", killed)
        with pytest.raises(Killed):
            state.begin(ANY_RUN)
    state.close()
    assert "run.json.new" in [path.name for path in folder.iterdir()]
    assert finish(start(three_operators(), state=folder, resume_or_begin=True)).ok
    assert not any(folder.iterdir())


def test_zeros_that_a_loss_of_power_has_left_of_that_are_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "run.json.new").write_bytes(bytes(700))
    state = open_state(three_operators(), Options(state=tmp_path))
    assert state is not None
    assert state.resumed is None
    state.close()


@pytest.mark.parametrize("span", [Span(1.0, 2.0), Span(2.0), None])
def test_a_run_that_is_resumed_takes_the_span_that_it_has_begun_with(
    tmp_path: Path, span: Span | None
) -> None:
    written = msgspec.json.encode(msgspec.structs.replace(ANY_RUN, span=plain_span(span)))
    run = msgspec.json.decode(written, type=RunFile)
    assert span_in(run) == span
    backfill = span if span is not None and span.has_end else None
    plain = msgspec.structs.replace(run, limits=asdict(DEFAULT_LIMITS))
    assert as_before(Options(state=tmp_path), plain).backfill == backfill


@pytest.mark.parametrize("name", ["run.json.over", "run.json.new"])
def test_a_file_that_only_has_the_name_of_what_is_left_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(StateError, match=rf"{name}'?,? (is damaged, or not|which is not)"):
        start(three_operators(), state=tmp_path, resume_or_begin=True)
    assert (tmp_path / name).read_text() == "mine"


def test_a_flipped_bit_in_what_the_run_is_is_refused_with_its_path(tmp_path: Path) -> None:
    state = open_state(three_operators(), Options(state=tmp_path))
    assert state is not None
    state.begin(ANY_RUN)
    state.close()
    path = tmp_path / "run.json"
    written = path.read_bytes()
    for at in range(len(written)):
        flipped = bytearray(written)
        flipped[at] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(StateError, match=re.escape(str(tmp_path))):
            open_state(three_operators(), Options(state=tmp_path, resume=True))
