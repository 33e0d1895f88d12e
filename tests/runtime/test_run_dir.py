"""The folder of a run: removed when it is abandoned, never under a run that lives in it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.runtime.live import run_dir
from anabranch.runtime.live.run_dir import RunDir, remove_unless_used
from tests.runtime.faulty import folder_of_all


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with folder_of_all() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        yield folder


def left(base: Path) -> Path:
    """The folder of a run that was killed."""
    folder = base / "anabranch-killed"
    folder.mkdir()
    (folder / "lock").touch()
    (folder / "old socket").touch()
    return folder


def test_what_a_killed_run_has_left_is_removed(base: Path) -> None:
    folder = left(base)
    remove_unless_used(folder)
    assert not folder.exists()
    remove_unless_used(folder)


def test_who_tidies_up_behind_a_killed_run_leaves_alone_one_that_goes_on(base: Path) -> None:
    again = RunDir(left(base))
    remove_unless_used(again.path)
    assert again.is_there
    again.remove()
    assert not again.path.exists()


async def test_a_run_goes_on_as_soon_as_what_the_last_one_left_is_removed(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_dir, "REMOVED_WITHIN_S", 60.0)
    folder = left(base)
    removing = run_dir._open_lock(folder)
    assert run_dir._is_free(removing)
    making = asyncio.create_task(asyncio.to_thread(RunDir, folder))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(making), 0.1)
    shutil.rmtree(folder)
    os.close(removing)
    again = await making
    assert again.is_there
    assert [path.name for path in folder.iterdir()] == ["lock"]
    again.remove()


def test_a_folder_in_which_a_run_lives_is_named_with_what_to_do(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_dir, "REMOVED_WITHIN_S", 0.0)
    living = RunDir()
    with pytest.raises(OSError, match=rf"in '{living.path}', which a living run uses.* wait until"):
        RunDir(living.path)
    assert living.is_there
    living.remove()
