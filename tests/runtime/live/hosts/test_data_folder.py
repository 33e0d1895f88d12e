"""The data folder of an agent: what outlives it, and who may read it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from anabranch.runtime.live.hosts import data_folder
from anabranch.runtime.live.hosts.data_folder import (
    HOST,
    TOKEN,
    FolderError,
    FolderFull,
    open_folder,
    secret_in,
)


def test_each_opening_is_another_incarnation_of_the_same_host(tmp_path: Path) -> None:
    seen = []
    for _ in range(3):
        folder = open_folder(tmp_path / "data")
        seen.append((folder.key, folder.incarnation, folder.secret))
        folder.close()
    assert [incarnation for _, incarnation, _ in seen] == [1, 2, 3]
    assert len({(key, secret) for key, _, secret in seen}) == 1


def test_an_incarnation_that_was_kept_is_not_used_again(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    folder.keep(40)
    folder.close()
    again = open_folder(tmp_path)
    assert again.incarnation == 41
    again.close()


def test_a_folder_belongs_to_one_agent_at_a_time(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    with pytest.raises(FolderError, match="is in use by another agent"):
        open_folder(tmp_path)
    folder.close()
    open_folder(tmp_path).close()


def test_only_the_user_of_the_agent_can_read_the_token(tmp_path: Path) -> None:
    open_folder(tmp_path / "data").close()
    token = tmp_path / "data" / TOKEN
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.parent.stat().st_mode & 0o777 == 0o700
    assert secret_in(token)
    token.chmod(0o640)
    with pytest.raises(FolderError, match="can be read by other users"):
        open_folder(tmp_path / "data")


def test_what_is_damaged_is_told_with_what_to_do(tmp_path: Path) -> None:
    open_folder(tmp_path).close()
    (tmp_path / HOST).write_text('{"key": 3}')
    with pytest.raises(FolderError, match=r"host.json is damaged: .*; remove it"):
        open_folder(tmp_path)
    for wrong in (
        '{"key": "AAAA", "incarnation": 1}',
        '{"key": "AAAAAAAAAAA=", "incarnation": -1}',
    ):
        (tmp_path / HOST).write_text(wrong)
        with pytest.raises(FolderError, match=r"host.json is damaged: .*; remove it"):
            open_folder(tmp_path)
    (tmp_path / HOST).unlink()
    (tmp_path / TOKEN).write_text("secret")
    with pytest.raises(FolderError, match="holds no token of an agent; remove it"):
        open_folder(tmp_path)


def test_a_path_that_cannot_be_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match=r"file/data' cannot be used: Not a directory"):
        open_folder(tmp_path / "file" / "data")


def test_a_full_disk_is_told_apart_from_a_wrong_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(data_folder, "replace_file", full)
    with pytest.raises(FolderFull, match="No space left on device; make room there, or"):
        open_folder(tmp_path)
