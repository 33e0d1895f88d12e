"""The data folder of an agent: what outlives it, and who may read it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.runtime.live.hosts import data_folder
from anabranch.runtime.live.hosts.data_folder import (
    HOST,
    LOCK,
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


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:20]),
        lambda path: path.write_bytes(bytes(200)),
        lambda path: path.write_text('{"key": 3}'),
        lambda path: path.write_text('{"key": "AAAA", "incarnation": 1}'),
        lambda path: path.write_text('{"key": "AAAAAAAAAAA=", "incarnation": -1}'),
        a_folder,
    ],
)
@pytest.mark.parametrize("name", [HOST, TOKEN])
def test_a_damaged_file_is_put_aside_and_told_and_the_agent_starts(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    for number in range(2):
        folder = open_folder(tmp_path)
        before = {HOST: folder.key, TOKEN: folder.secret}
        folder.close()
        damage(tmp_path / name)
        opened = open_folder(tmp_path)
        opened.close()
        now = {HOST: opened.key, TOKEN: opened.secret}
        assert {each for each in before if before[each] != now[each]} == {name}
        aside = tmp_path / f"{name}.damaged{'-1' * number}"
        assert aside.exists()
        (told,) = opened.damaged
        assert told.startswith(f"{tmp_path / name} is damaged: ")
        assert f"; it is {aside.name} now, and " in told
        again = open_folder(tmp_path)
        again.close()
        assert (again.damaged, again.key, again.secret) == ([], opened.key, opened.secret)


def test_a_folder_in_the_place_of_the_lock_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / LOCK / "mine").mkdir(parents=True)
    folder = open_folder(tmp_path)
    assert folder.damaged == [
        f"{tmp_path / LOCK} is damaged: Is a directory; it is lock.damaged now"
    ]
    assert (tmp_path / "lock.damaged" / "mine").is_dir()
    with pytest.raises(FolderError, match="is in use by another agent"):
        open_folder(tmp_path)
    folder.close()


def test_what_is_in_the_way_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / f"{HOST}.new").mkdir()
    with pytest.raises(FolderError, match=r"Is a directory \(host.json.new\); name another"):
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
