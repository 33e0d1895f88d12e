"""Text laid out to be fed."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from anabranch.workloads.corpus import documentation, lines_of, stage


def test_pythons_own_documentation_is_enough_to_repeat(tmp_path: Path) -> None:
    corpus = stage(documentation, tmp_path / "texts", lines_min=200_000)
    assert corpus.lines >= 200_000
    assert corpus.lines % corpus.repeats == 0
    assert corpus.lines // corpus.repeats > 5_000
    assert corpus.parts == -(-corpus.lines // 10_000)
    assert sum(1 for _ in corpus.read()) == corpus.lines


def test_staged_lines_are_the_lines_again_and_again(tmp_path: Path) -> None:
    corpus = stage(lambda: [b"a", b"", b"c"], tmp_path / "t", lines_min=7, part_lines=4)
    assert list(corpus.read()) == ["a", "", "c"] * 3
    assert (corpus.lines, corpus.parts, corpus.repeats) == (9, 3, 3)


def test_enough_text_is_not_repeated(tmp_path: Path) -> None:
    corpus = stage(lambda: [b"a", b"b"], tmp_path / "t", lines_min=2)
    assert (corpus.lines, corpus.repeats) == (2, 1)


def test_what_was_there_before_is_gone(tmp_path: Path) -> None:
    stage(lambda: [b"old"] * 30, tmp_path / "t", lines_min=1, part_lines=10)
    assert list(stage(lambda: [b"new"], tmp_path / "t", lines_min=1).read()) == ["new"]


def test_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no line of text"):
        stage(list, tmp_path / "t", lines_min=10)


def test_lines_end_in_every_usual_way_and_keep_their_bytes(tmp_path: Path) -> None:
    plain = tmp_path / "a.txt"
    plain.write_bytes(b"one\r\ntwo\rthree\n\nbroken \xff\x85 byte\xe2\x80\xa8end")
    packed = tmp_path / "b.txt.gz"
    packed.write_bytes(gzip.compress("größe\n".encode()))
    assert list(lines_of([plain, packed])) == [
        b"one",
        b"two",
        b"three",
        b"",
        b"broken \xff\x85 byte\xe2\x80\xa8end",
        "größe".encode(),
    ]


def test_broken_lines_are_counted_and_left_out(tmp_path: Path) -> None:
    lines = [b"a\xe2\x80\xa8b", b"\xff", "größe".encode(), b"", b"g\xf6"]
    corpus = stage(lambda: lines, tmp_path / "t", lines_min=10)
    assert (corpus.lines, corpus.broken, corpus.repeats) == (10, 4, 2)
    assert list(corpus.read()) == ["a\u2028b", "größe", ""] * 2
    assert (tmp_path / "t" / "part-00000.txt").read_bytes().count(b"\xff") == 2


def test_a_sample_takes_each_so_manieth_line(tmp_path: Path) -> None:
    lines = [str(n).encode() for n in range(10)]
    corpus = stage(lambda: lines, tmp_path / "t", lines_min=1, part_lines=4)
    assert list(corpus.read(every=3)) == ["0", "3", "6", "9"]
