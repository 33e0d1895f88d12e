"""The log of a run on the disk: bounded, and with places that stay what they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.live.hosts import printed
from anabranch.runtime.live.hosts.printed import LogPart, PrintedLog


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed, "FILE_BYTES_MAX", 1_000)
    monkeypatch.setattr(printed, "PART_BYTES_MAX", 300)


def test_a_log_has_a_bound_and_its_last_lines(tmp_path: Path) -> None:
    for number in range(1_000):
        PrintedLog(tmp_path).add(f"line {number:04}\n".encode())
        assert sum(f.stat().st_size for f in tmp_path.iterdir()) <= 2_020
    lines = PrintedLog(tmp_path).last_lines(10_000)
    assert lines[-1] == "line 0999"
    assert 90 < len(lines) < 210


def test_what_follows_reads_each_byte_once_and_is_told_what_was_dropped(tmp_path: Path) -> None:
    log, whole, read, at = PrintedLog(tmp_path), b"", b"", 0
    for number in range(50):
        text = f"{number} ".encode() * 20
        whole += text
        log.add(text)
        while (part := PrintedLog(tmp_path).part(at)).data:
            assert part.dropped == 0
            read, at = read + part.data, part.at
    assert (read, at) == (whole, len(whole))
    assert log.end() == len(whole)
    late = log.part(0)
    assert late.dropped > 0
    assert whole[late.dropped :].startswith(late.data)
    assert log.part(10**9) == LogPart(b"", len(whole))


@pytest.mark.parametrize(("count", "place"), [(1, 4), (2, 2), (3, 0), (9, 0)])
def test_the_place_of_the_last_lines(tmp_path: Path, count: int, place: int) -> None:
    log = PrintedLog(tmp_path)
    assert log.place_of_last(count) == 0
    log.add(b"a\nb\nc\n")
    assert log.place_of_last(count) == place


@given(st.lists(st.binary(max_size=1_500), max_size=20), st.integers(1, 30))
def test_the_last_lines_are_those_from_their_place_on(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], count: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = PrintedLog(folder)
    for piece in pieces:
        log.add(piece)
    at, found = log.place_of_last(count), b""
    while (part := log.part(at)).data:
        found, at = found + part.data, part.at
    assert b"".join(pieces).endswith(found)
    assert found.removesuffix(b"\n").count(b"\n") < count or not found


def test_other_files_are_no_part_of_the_log(tmp_path: Path) -> None:
    for name in ("log-", "log-x", "log-²", "log", "pipeline.json"):
        (tmp_path / name).write_text("other")
    log = PrintedLog(tmp_path)
    assert (log.last_lines(10), log.end()) == ([], 0)
    log.add(b"own\n")
    assert log.last_lines(10) == ["own"]
