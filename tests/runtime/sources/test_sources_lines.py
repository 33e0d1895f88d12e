"""What a line is, however its bytes are cut into blocks and splits."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.protocol.limits import Limits
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.sources.lines import LineCutter, checked_encoding

pieces = st.sampled_from(
    [
        b"a",
        b"bb",
        b"\n",
        b"\r",
        b"\r\n",
        b"",
        "é漢".encode(),
        b"\xff",
        b"\xc3",
        b"\x0b\x0c\x85",
        b"\x00",
    ]
)
contents = st.lists(pieces, max_size=24).map(b"".join)


def cutter(
    format: Any = "text",
    encoding: str = "utf_8",
    line_bytes_max: int = 1000,
    offset: int = 0,
    **options: Any,
) -> LineCutter:
    limits = Limits(line_bytes_max=line_bytes_max)
    return LineCutter(
        "f", format=format, encoding=encoding, limits=limits, offset=offset, **options
    )


def feed(one: LineCutter, data: bytes, block_bytes: int) -> tuple[list[Any], list[DeadLetter]]:
    tuples: list[Any] = []
    dead: list[DeadLetter] = []
    blocks = [data[i : i + block_bytes] for i in range(0, len(data), block_bytes)]
    for block in [*blocks, b""]:
        if one.done:
            break
        some, some_dead = one.feed(block, final=not block)
        tuples += some
        dead += some_dead
    return tuples, dead


def rows(data: bytes) -> list[bytes]:
    found = re.split(rb"\r\n|\n|\r", data)
    return found if found[-1] else found[:-1]


def oracle(data: bytes, line_bytes_max: int = 1000) -> tuple[list[str], int]:
    """Lines as `open` gives them, and how many are bad."""
    lines, bad = [], 0
    for row in rows(data):
        try:
            lines.append(row.decode())
            if len(row) > line_bytes_max:
                lines.pop()
                bad += 1
        except UnicodeDecodeError:
            bad += 1
    return lines, bad


@given(contents, st.integers(1, 30))
@example(b"a\r\nb\rc\n\n\r\n\r", 1)
def test_lines_are_those_of_a_plain_loop_however_the_blocks_are_cut(
    data: bytes, block_bytes: int
) -> None:
    tuples, dead = feed(cutter(), data, block_bytes)
    lines, bad = oracle(data)
    assert tuples == lines
    assert len(dead) == bad
    if not bad:
        assert tuples == [line.rstrip("\n") for line in io.TextIOWrapper(io.BytesIO(data), "utf-8")]


@given(contents, st.integers(1, 30), st.integers(1, 5))
@example(b"\naa\raa", 7, 1)
@example(b"aaa\ra\r", 2, 1)
def test_only_lines_above_the_limit_are_refused(
    data: bytes, block_bytes: int, line_bytes_max: int
) -> None:
    tuples, dead = feed(cutter(line_bytes_max=line_bytes_max), data, block_bytes)
    lines, bad = oracle(data, line_bytes_max)
    assert tuples == lines
    assert len(dead) == bad


@given(contents, st.integers(1, 40), st.integers(1, 30), st.integers(1, 40))
@example(b"aaaaaa\rb\rc\n", 4, 2, 2)
def test_splits_of_any_size_cover_the_lines_exactly_once(
    data: bytes, split_bytes: int, block_bytes: int, line_bytes_max: int
) -> None:
    tuples: list[Any] = []
    dead: list[DeadLetter] = []
    for start in range(0, len(data), split_bytes):
        seek = start > 0
        one = cutter(
            line_bytes_max=line_bytes_max,
            offset=start - seek,
            line=None,
            end=min(start + split_bytes, len(data)),
            seek_row=seek,
        )
        some, some_dead = feed(one, data[start - seek :], block_bytes)
        tuples += some
        dead += some_dead
    lines, bad = oracle(data, line_bytes_max)
    assert tuples == lines
    assert len(dead) == bad


@given(contents, st.lists(st.integers(0, 9), max_size=20), st.integers(1, 40))
@example(b"aaaaaaaaaa\raa", [1, 9], 1)
def test_another_cutter_goes_on_anywhere(
    data: bytes, lengths: list[int], line_bytes_max: int
) -> None:
    tuples: list[Any] = []
    dead: list[DeadLetter] = []
    one, rest = cutter(line_bytes_max=line_bytes_max), data
    for length in lengths:
        some, some_dead = one.feed(rest[:length])
        tuples += some
        dead += some_dead
        rest = rest[length:]
        following = cutter(line_bytes_max=line_bytes_max)
        following.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(one.state())))
        one = following
    some, some_dead = feed(one, rest, 7)
    lines, bad = oracle(data, line_bytes_max)
    assert tuples + some == lines
    assert len(dead + some_dead) == bad


@given(
    st.lists(
        st.sampled_from(
            rb'1|{"a":1}|{"a":|}|[1]|| |"\ud800"|NaN|1e999|-0|123456789012345678901|x'.split(b"|")
        )
        | st.sampled_from([b"\n", b"\r\n", b"\xff"]),
        max_size=20,
    ).map(b"".join),
    st.integers(1, 30),
)
def test_json_lines_are_those_of_a_plain_loop(data: bytes, block_bytes: int) -> None:
    expected, bad = [], 0
    for row in data.split(b"\n"):
        if row.strip(b" \t\r"):
            try:
                expected.append(json.loads(row.decode()))
            except ValueError:
                bad += 1
    tuples, dead = feed(cutter("jsonl"), data, block_bytes)
    assert list(map(repr, tuples)) == list(map(repr, expected))
    assert len(dead) == bad


def test_a_dead_letter_names_the_line_and_what_is_wrong_with_it() -> None:
    _, dead = feed(cutter(), b"ok\r\nb\xe4d\r\nok\n\xff", 100)
    assert [letter.where for letter in dead] == ["f:2", "f:4"]
    assert dead[0].tuple == b"b\xe4d"
    assert dead[0].reason == "not utf-8 text: byte 0xe4 at position 1: invalid continuation byte"
    _, dead = feed(cutter("jsonl"), b"1\n\n{]\n", 100)
    assert dead[0].where == "f:3"
    assert dead[0].reason.startswith("not JSON: Expecting property name")
    assert dead[0].reason.endswith(" at character 2")
    assert dead[0].tuple == "{]"


def test_within_a_split_a_dead_letter_names_the_byte() -> None:
    one = cutter(offset=9, line=None, end=40, seek_row=True)
    _, dead = feed(one, b"x\nfine\r\nb\xe4d\n", 100)
    assert dead[0].where == "f, byte 17"


def test_an_overlong_line_is_shown_by_its_beginning_and_length_and_not_held() -> None:
    one = cutter(line_bytes_max=1000)
    tuples: list[Any] = []
    dead: list[DeadLetter] = []
    for block in [b"a\n", *[b"y" * 700] * 50, b"\nb\n"]:
        some, some_dead = one.feed(block)
        assert len(one.state()["held"]) <= 1000
        tuples += some
        dead += some_dead
    assert tuples == ["a", "b"]
    assert dead[0].reason == "a line of 35,000 bytes is above the limit of 1,000"
    assert dead[0].tuple == b"y" * 120
    assert dead[0].where == "f:2"


def test_a_file_of_lone_carriage_returns_is_cut_while_it_comes() -> None:
    one = cutter(line_bytes_max=100)
    assert one.feed(b"a\rb\rc") == (["a", "b"], [])
    assert one.feed(b"\r\nd") == (["c"], [])
    assert one.feed(b"", final=True) == (["d"], [])


def test_a_byte_order_mark_is_no_text() -> None:
    bom = b"\xef\xbb\xbf"
    assert feed(cutter(), bom + b"a\n" + bom + b"b", 2) == (["a", "\ufeffb"], [])
    assert feed(cutter("jsonl"), bom + b"1\n", 100) == ([1], [])
    assert feed(cutter(), bom, 1) == ([], [])


def test_other_encodings_are_decoded() -> None:
    assert feed(cutter(encoding="latin_1"), "größer\n".encode("latin-1"), 3)[0] == ["größer"]
    assert feed(cutter(encoding="gbk"), "漢字\n字".encode("gbk"), 3)[0] == ["漢字", "字"]
    text = '"größer"\n'.encode("latin-1")
    assert feed(cutter("jsonl", encoding="latin_1"), text, 100)[0] == ["größer"]


def test_json_too_deep_for_the_parser_is_a_dead_letter() -> None:
    tuples, dead = feed(
        cutter("jsonl", line_bytes_max=10**6), b"1\n" + b"[" * 200_000 + b"\n2", 10**6
    )
    assert tuples == [1, 2]
    assert len(dead) == 1


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le", "utf-7", "iso2022_jp", "hz", "cp037"])
def test_an_encoding_in_which_lines_cannot_be_cut_is_refused(encoding: str) -> None:
    with pytest.raises(ValueError, match="convert the input"):
        checked_encoding(encoding)


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown text encoding 'utf9'"):
        checked_encoding("utf9")


def test_blocks_follow_the_length_of_lines_within_the_limits() -> None:
    one = cutter(line_bytes_max=10**6)
    assert one.block_bytes(1000, 10**6) == 64_000
    for _ in range(8):
        one.feed(b"x" * 199 + b"\n")
    assert 190_000 < one.block_bytes(1000, 10**6) < 210_000
    assert one.block_bytes(1000, 5000) == 5000
    assert cutter(line_bytes_max=10).block_bytes(1000, 10**6) == 10
