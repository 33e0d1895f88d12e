"""The folder of a stream: whose it is, and what is noticed of it that is damaged or gone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.runtime.live.agent.state_dir import open_state
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.storage.state_folder import StateError
from anabranch.spark_engine.state import Commit, JobRecord, StateFolder, check_same

RECORD = JobRecord(1, "p", ["lines", "count", "out"], 256, 2, 0.0, "tag")


def stream_in(path: Path, **record: Any) -> StateFolder:
    """As a driver has left it that was killed behind its fourth batch."""
    folder = StateFolder(path)
    with folder.held():
        job = JobRecord(**{**vars(RECORD), **record})
        folder.empty(job)
        folder.begin(job, {"lines": [{"n": 1}]}, {"out.jsonl": 0}, {})
        for batch in range(4):
            write_kept(folder, batch)
            offsets = path / "checkpoint" / "offsets"
            offsets.mkdir(parents=True, exist_ok=True)
            (offsets / str(batch)).write_text("v1\n")
            folder.commit(Commit(batch, {"out.jsonl": 10 * batch}))
    return folder


def write_kept(folder: StateFolder, batch: int) -> None:
    kept = Path(folder.kept(batch))
    kept.mkdir(parents=True)
    for part in range(2):
        (kept / f"part-{part}.parquet").write_bytes(b"state" * (part + 1))


def test_a_stream_that_is_whole_goes_on(tmp_path: Path) -> None:
    folder = stream_in(tmp_path / "state")
    with folder.held():
        folder.check_whole()
    assert folder.last().positions == {"out.jsonl": 30}
    assert sorted(folder.last().kept) == ["part-0.parquet", "part-1.parquet"]


def changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def gone(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(
            (name, damage)
            for name in ("spark.json", "splits.pickle", "begun.pickle", "commits/3.json")
            for damage in (changed, cut)
        ),
        ("kept/3/part-1.parquet", cut),
        *(
            (name, gone)
            for name in (
                "splits.pickle",
                "begun.pickle",
                "commits",
                "kept",
                "kept/3",
                "kept/3/part-0.parquet",
                "checkpoint",
                "checkpoint/offsets/3",
            )
        ),
    ],
)
def test_what_is_damaged_is_named_and_left_as_it_is(
    name: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    """It would be taken for a beginning, and files of sinks would be cut to their beginning."""
    folder = stream_in(tmp_path / "state")
    damage(folder.path / name)
    with pytest.raises(StateError, match=r"is damaged.*put it back") as told, folder.held():
        folder.check_whole()
    assert name.split("/")[0] in str(told.value)


def test_a_commit_that_is_gone_is_not_the_one_before(tmp_path: Path) -> None:
    folder = stream_in(tmp_path / "state")
    gone(folder.path / "commits" / "3.json")
    with pytest.raises(StateError, match="kept/2 is damaged"):
        folder.check_whole()


@pytest.mark.parametrize("name", ["checkpoint", "kept", "commits", "splits.pickle", "lock"])
def test_a_folder_that_is_not_of_a_run_is_left_alone(name: str, tmp_path: Path) -> None:
    """Also with --fresh: models have checkpoints, too."""
    theirs = tmp_path / name / "model.bin" if name != "lock" else tmp_path / name
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("weeks of work")
    with pytest.raises(StateError, match=f"holds '{name}', which is not part"):  # noqa: SIM117
        with StateFolder(tmp_path).held() as folder:
            folder.clear()
    assert theirs.read_text() == "weeks of work"


def test_a_driver_that_died_while_it_began_leaves_room_for_the_next_one(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    with folder.held():
        folder.empty(RECORD)
        write_kept(folder, -1)
    with folder.held():
        assert not folder.begun
        folder.empty(RECORD)
        assert not Path(folder.kept(-1)).exists()


def test_what_is_given_up_leaves_what_is_not_its_own(tmp_path: Path) -> None:
    folder = stream_in(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with folder.held():
        folder.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_second_driver_is_refused_while_the_first_one_works(tmp_path: Path) -> None:
    with (
        StateFolder(tmp_path).held(),
        pytest.raises(StateError, match=r"is in use by another run \(process \d+\)"),
        StateFolder(tmp_path).held(),
    ):
        pass
    assert [*tmp_path.iterdir()] == []


def test_the_folder_of_a_run_on_the_other_engine_is_refused(tmp_path: Path) -> None:
    pipeline = ab.Pipeline("p")
    stream_in(tmp_path / "on-spark")
    with pytest.raises(StateError, match=r"holds a run on Spark; go on with it by --on spark"):
        open_state(pipeline, Options(state=tmp_path / "on-spark", fresh=True))
    (tmp_path / "run.json").write_text("{}")
    with (
        pytest.raises(StateError, match="holds a run on processes; go on with it without --on"),
        StateFolder(tmp_path).held(),
    ):
        pass


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"lines": ["a/*.txt", "b"]}, {}, "begun with --input lines=a/*.txt --input lines=b;"),
        ({}, {"lines": ["a"]}, "begun without --input lines=a;"),
        ({"lines": []}, {}, "begun with a DataFrame for source 'lines';"),
        ({"lines": ["a"]}, {"lines": ["b"]}, "begun with --input lines=a;"),
    ],
)
def test_a_stream_goes_on_with_the_input_that_it_has_begun_with(
    before: dict[str, list[str]], now: dict[str, list[str]], said: str, tmp_path: Path
) -> None:
    folder = stream_in(tmp_path, inputs=before)
    check_same(folder.job(), folder.job(), tmp_path)
    with pytest.raises(StateError) as told:
        check_same(folder.job(), JobRecord(**{**vars(RECORD), "inputs": now}), tmp_path)
    assert said in str(told.value)
