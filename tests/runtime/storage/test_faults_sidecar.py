"""What is noted beside a shared file, damaged at any place: either that is told, or nothing is
written twice and nothing is missing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anabranch.runtime.storage.shared_file import SharedFile
from anabranch.runtime.storage.slots import SLOTS_BYTES
from tests.runtime.faulty import Refusing

OWNERS = ("a.0", "b.0", "a.1")


def shared(folder: Path, owner: str) -> SharedFile:
    return SharedFile(folder / "out", folder / "side" / "car", owner, kind="results")


def piece(owner: str, number: int) -> bytes:
    return f"{owner} {number} ".encode() + bytes(80) + b"\n"


async def write(folder: Path, owner: str, numbers: Iterator[int] | range) -> None:
    file = shared(folder, owner)
    try:
        for number in numbers:
            await file.put(number, piece(owner, number))
    finally:
        file.close()


async def written(folder: Path) -> tuple[bytes, bytes]:
    """A file to which all owners have written, in turn; and its sidecar."""
    for numbers in (range(1, 3), range(3, 5)):
        for owner in OWNERS:
            await write(folder, owner, numbers)
    return (folder / "out").read_bytes(), (folder / "side" / "car").read_bytes()


async def go_on(folder: Path) -> str:
    """Each next incarnation puts its last piece again, of which it does not know, and one more.
    What was refused; empty if nothing was."""
    refused = [await refusal(folder, owner) for owner in OWNERS]
    return next(filter(None, refused), "")


async def refusal(folder: Path, owner: str) -> str:
    try:
        await write(folder, owner, range(4, 6))
    except OSError as error:
        return str(error) if error.filename == str(folder / "out") else repr(error)
    return ""


def doubled_or_missing(folder: Path, owners: tuple[str, ...] = OWNERS, last: int = 5) -> list[str]:
    found = (folder / "out").read_bytes()
    pieces = [(owner, number) for owner in owners for number in range(1, last + 1)]
    return [f"{o} {n}" for o, n in pieces if found.count(piece(o, n)) != 1]


def damages(side: bytes) -> Iterator[tuple[str, bytes]]:
    for at in range(len(side)):
        yield f"byte {at}", side[:at] + bytes([side[at] ^ 0x10]) + side[at + 1 :]
    for length in range(0, len(side), 7):
        yield f"cut to {length}", side[:length]
    yield "zeros", bytes(len(side))
    yield "no table", side[:SLOTS_BYTES]


async def test_damage_is_told_or_does_no_harm(tmp_path: Path) -> None:
    out, side = await written(tmp_path)
    told: set[str] = set()
    for name, damaged in damages(side):
        (tmp_path / "out").write_bytes(out)
        (tmp_path / "side" / "car").write_bytes(damaged)
        refused = await go_on(tmp_path)
        if refused:
            told.add(refused)
            assert doubled_or_missing(tmp_path, last=4) == [], name
        else:
            assert doubled_or_missing(tmp_path) == [], name
    assert told
    for words in told:
        assert "cannot write results: " in words
        assert "begin a new run" in words


@pytest.mark.parametrize("way", ["removed", "emptied"])
async def test_a_sidecar_that_is_gone_is_told(tmp_path: Path, way: str) -> None:
    await written(tmp_path)
    car = tmp_path / "side" / "car"
    if way == "removed":
        car.unlink()
    else:
        os.truncate(car, 0)
    told = await go_on(tmp_path)
    assert f"in {str(car)!r}, is not as it was left: it lacks piece 1 of a.0; put it back" in told
    assert doubled_or_missing(tmp_path, last=4) == []


# -- files that the user may take away, as one does with a log ------------------------------------


def removed(path: Path, taken: list[bytes]) -> None:
    taken.append(path.read_bytes())
    path.unlink()


def renamed(path: Path, taken: list[bytes]) -> None:
    aside = path.with_name(f"taken.{len(taken)}")
    path.rename(aside)
    taken.append(aside.read_bytes())


def emptied(path: Path, taken: list[bytes]) -> None:
    taken.append(path.read_bytes())
    os.truncate(path, 0)


def replaced(path: Path, taken: list[bytes]) -> None:
    taken.append(path.read_bytes())
    path.unlink()
    path.write_bytes(b"a new day\n")


@pytest.mark.parametrize("take", [removed, renamed, emptied, replaced])
@pytest.mark.parametrize("recorded", [True, False])
async def test_what_is_written_after_a_free_file_was_taken_is_in_the_next_one(
    tmp_path: Path, take: Callable[[Path, list[bytes]], None], recorded: bool
) -> None:
    path, taken = tmp_path / "out", list[bytes]()
    sidecar = tmp_path / "side" / "car" if recorded else None

    def opened(owner: str) -> SharedFile:
        return SharedFile(path, sidecar, owner, kind="dead letters", free=True)

    files = {owner: opened(owner) for owner in OWNERS}
    for number in range(1, 25):
        for owner in OWNERS:
            if (number + OWNERS.index(owner)) % 5 == 0:
                take(path, taken)
            if (
                recorded and number % 7 == 0
            ):  # a next incarnation, which does not know of the last piece
                files[owner].close()
                files[owner] = opened(owner)
            await files[owner].put(number, piece(owner, number))
    for file in files.values():
        file.close()
    everything = b"".join([*taken, path.read_bytes()])
    pieces = [piece(owner, number) for owner in OWNERS for number in range(1, 25)]
    assert [everything.count(one) for one in pieces] == [1] * len(pieces)
    assert len(taken) > 10


async def test_a_letter_of_which_nobody_knows_is_put_again_and_once_if_the_file_is_still_there(
    tmp_path: Path,
) -> None:
    for incarnation in range(1, 4):
        file = SharedFile(
            tmp_path / "out", tmp_path / "side" / "car", "a.0", kind="dead letters", free=True
        )
        for number in range(max(1, incarnation - 1), incarnation + 1):
            await file.put(number, piece("a.0", number))
        file.close()
    found = (tmp_path / "out").read_bytes()
    assert found == b"".join(piece("a.0", number) for number in range(1, 4))


async def test_a_full_disk_that_is_emptied_of_the_file_itself_loses_no_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is short of room may well remove the dead letters."""
    path, side = tmp_path / "out", tmp_path / "side" / "car"
    first, second = (
        SharedFile(path, side, owner, kind="dead letters", free=True) for owner in OWNERS[:2]
    )
    refusing = Refusing(monkeypatch, "write")
    for file, owner in ((first, "a.0"), (second, "b.0")):
        await file.put(1, piece(owner, 1))
    refusing.refuse(errno.ENOSPC, "/out")
    for file, owner in ((first, "a.0"), (second, "b.0")):
        with pytest.raises(OSError, match="No space left"):
            await file.put(2, piece(owner, 2))
    path.unlink()
    refusing.refuse(0)
    for file, owner in ((second, "b.0"), (first, "a.0")):
        await file.put(2, piece(owner, 2))
        file.close()
    assert path.read_bytes() == piece("b.0", 2) + piece("a.0", 2)


async def test_the_names_of_all_that_is_made_are_on_the_disk_before_a_piece_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def noted(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}").removeprefix(str(tmp_path)))
        real(fd)

    monkeypatch.setattr(os, "fsync", noted)
    target, car = tmp_path / "results" / "out", tmp_path / "side" / "car"
    target.parent.mkdir()
    file = SharedFile(target, car, "a.0", kind="results", durable=True)
    await file.put(1, b"1\n")
    file.close()
    assert {"/side/car", "/side", "", "/results/out", "/results"} == {*synced}
    assert synced[-1] == "/results/out"
