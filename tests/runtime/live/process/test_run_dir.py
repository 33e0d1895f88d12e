"""The folder of a run: removed when it is abandoned, never under a run that lives in it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from anabranch.runtime.live.process import run_dir
from anabranch.runtime.live.process.run_dir import RunDir, remove_unless_used
from tests.runtime.faulty import files_left, folder_of_all


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
    (folder / run_dir.MARK).write_bytes(run_dir.MARK_TEXT)
    (folder / "old socket").touch()
    return folder


def test_what_a_killed_run_has_left_is_removed(base: Path) -> None:
    folder = left(base)
    remove_unless_used(folder)
    assert not folder.exists()
    remove_unless_used(folder)


@pytest.fixture(params=range(7))
def interrupted(
    request: pytest.FixtureRequest, base: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The folder of a run whose removal has ended after so many steps."""
    folder = left(base)
    (folder / "state").mkdir()
    (folder / "state" / "page").touch()
    with monkeypatch.context() as patch:
        killed_after(request.param, patch)
        with suppress(Killed):
            remove_unless_used(folder)
    assert [*base.iterdir()] or request.param == 6
    return folder


def test_a_removal_that_was_interrupted_is_finished_when_the_run_is_resumed_and_ends(
    base: Path, interrupted: Path
) -> None:
    again = RunDir(interrupted)
    assert {path.name for path in interrupted.iterdir()} >= {"lock", run_dir.MARK}
    again.remove()
    assert not [*base.iterdir()]


def test_a_removal_that_was_interrupted_is_finished_by_a_later_run(
    base: Path, interrupted: Path
) -> None:
    for mark in base.glob(f"*/{run_dir.MARK}"):
        os.utime(mark, (0, 0))
    RunDir().remove()
    assert not any(path for path in base.iterdir() if any(path.iterdir()))


def test_a_second_removal_does_not_wait_for_an_interrupted_one(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the two folders is listed first."""
    with monkeypatch.context() as patch:
        killed_after(1, patch)
        with suppress(Killed):
            remove_unless_used(left(base))
    again = left(base)
    remove_unless_used(again)
    assert not again.exists()


class Killed(BaseException):
    """In the place of SIGKILL."""


def killed_after(steps: int, patch: pytest.MonkeyPatch) -> None:
    """All that changes a folder; `rmtree` as one step."""
    left_over = iter(range(steps))

    def unless_over(step: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **settings: Any) -> Any:
            if next(left_over, None) is None:
                raise Killed
            return step(*args, **settings)

        return counted

    for name in ("rename", "unlink", "rmdir"):
        patch.setattr(Path, name, unless_over(getattr(Path, name)))
    patch.setattr(shutil, "rmtree", unless_over(shutil.rmtree))


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
    folder.rename(base / "removed")  # at once: whoever waits would make the mark again
    os.close(removing)
    again = await making
    assert again.is_there
    assert {path.name for path in folder.iterdir()} == {"lock", run_dir.MARK}
    again.remove()


def test_a_folder_in_which_a_run_incarnations_is_named_with_what_to_do(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_dir, "REMOVED_WITHIN_S", 0.0)
    living = RunDir()
    with pytest.raises(OSError, match=rf"in '{living.path}', which a living run uses.* wait until"):
        RunDir(living.path)
    assert living.is_there
    living.remove()


@pytest.mark.parametrize("text", [None, b"", b"mine"])
def test_a_folder_that_is_only_called_like_that_of_a_run_is_left_alone(
    base: Path, text: bytes | None
) -> None:
    folder = left(base)
    (folder / run_dir.MARK).unlink()
    if text is not None:
        (folder / run_dir.MARK).write_bytes(text)
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    RunDir().remove()
    remove_unless_used(folder)
    assert (folder / "old socket").exists()


def test_what_was_killed_long_ago_is_removed_by_the_next_run(base: Path) -> None:
    folder = left(base)
    os.utime(folder / run_dir.MARK, (0, 0))
    RunDir().remove()
    assert not folder.exists()


def test_a_resumed_run_takes_no_folder_that_holds_something_else(base: Path) -> None:
    folder = base / "anabranch-was"
    folder.mkdir()
    (folder / "letters").touch()
    with pytest.raises(OSError, match=r"anabranch-was', which holds something else now; move that"):
        RunDir(folder)
    assert [path.name for path in folder.iterdir()] == ["letters"]


def test_another_folder_in_its_place_is_not_removed_at_the_end(base: Path) -> None:
    run = RunDir()
    shutil.rmtree(run.path)
    run.path.mkdir()
    assert not run.is_there
    run.remove()
    assert run.path.is_dir()


@pytest.mark.parametrize("name", ["lock", run_dir.MARK])
def test_a_cleaner_that_removes_single_files_does_not_end_the_run(base: Path, name: str) -> None:
    run = RunDir()
    (run.path / name).unlink()
    assert run.is_there
    remove_unless_used(run.path)
    assert run.is_there
    run.remove()
    assert not run.path.exists()


def test_a_cleaner_that_asks_for_the_lock_of_a_folder_does_not_get_it(base: Path) -> None:
    """As systemd-tmpfiles does."""
    run = RunDir()
    cleaner = os.open(run.path, os.O_RDONLY | os.O_DIRECTORY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(cleaner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    run.remove()
    os.close(cleaner)


def test_a_folder_is_not_taken_for_removed_when_no_file_can_be_opened() -> None:
    run = RunDir()
    try:
        with files_left(0):
            assert run.is_there
    finally:
        run.remove()
