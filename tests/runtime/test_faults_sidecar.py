"""What is noted beside a shared file, damaged at any place: either that is told, or nothing is
written twice and nothing is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.runtime.shared_file import SharedFile
from anabranch.runtime.slots import SLOTS_BYTES

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
    """Each next life puts its last piece again, of which it does not know, and one more. What was
    refused; empty if nothing was."""
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
    assert "piece 1 of a.0 is not there" in await go_on(tmp_path)
    assert doubled_or_missing(tmp_path, last=4) == []
