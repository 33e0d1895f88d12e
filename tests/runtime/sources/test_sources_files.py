"""Files of every kind and condition give each of their lines once, or say what is wrong."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from anabranch.protocol.limits import Limits
from anabranch.runtime.plan.ends import InputError, Split
from anabranch.runtime.sources import files
from tests.runtime.reading import Reading, context

fixture_is_shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(path: Path, data: bytes | str) -> str:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)


def plain_loop(path: str) -> Counter[str]:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return Counter(line.rstrip("\n") for line in file)


async def lines_of(*patterns: str, **options: Any) -> list[Any]:
    reading = await Reading(files(*patterns, **options)).all()
    assert reading.dead == []
    return reading.tuples


@fixture_is_shared
@given(
    lines=st.lists(st.binary(max_size=12).filter(lambda b: b"\n" not in b and b"\r" not in b)),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    last=st.booleans(),
    split_bytes=st.integers(1, 40),
    tuples_max=st.integers(1, 5),
    seed=st.integers(0, 9),
)
async def test_the_lines_of_all_splits_are_those_of_a_plain_loop(
    tmp_path: Path,
    lines: list[bytes],
    end: bytes,
    last: bool,
    split_bytes: int,
    tuples_max: int,
    seed: int,
) -> None:
    """Whatever the splits, and however often readers leave in the middle of them."""
    data = end.join(lines) + (end if last else b"")
    assume(not data.startswith(b"\x1f\x8b\x08"))  # it would be taken for a gzip file
    expected = plain_loop(write(tmp_path / "f", data))
    for content in (data, gzip.compress(data)):
        source = files(write(tmp_path / "f", content), split_bytes=split_bytes)
        whole = await Reading(source, tuples_max=tuples_max).all()
        parts = await Reading(source, tuples_max=tuples_max).interrupted(seed)
        for reading in (whole, parts):
            dead = [letter.tuple.decode(errors="surrogateescape") for letter in reading.dead]
            assert Counter(reading.tuples + dead) == expected
            assert reading.progress == source.size()


async def test_one_reader_keeps_the_order(tmp_path: Path) -> None:
    lines = [f"line {i} {'x' * (i % 90)}" for i in range(20_000)]
    path = write(tmp_path / "f", "\n".join(lines))
    assert await lines_of(path, split_bytes=10_000) == lines


async def test_splits_travel_as_messagepack(tmp_path: Path) -> None:
    path = write(tmp_path / "f", "a\nb\r" * 200)
    source = files(path, split_bytes=50)
    reading = Reading(source, tuples_max=1)
    for split in source.splits():
        rest = await reading.split(msgspec.msgpack.decode(msgspec.msgpack.encode(split)), 1)
        while rest is not None:
            rest = await reading.split(msgspec.msgpack.decode(msgspec.msgpack.encode(rest)), 1)
    assert reading.tuples == ["a", "b"] * 200


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"no end", ["no end"]),
        (b"a\r\nb\r\n\r\nc", ["a", "b", "", "c"]),
        (b"old\rmac\r", ["old", "mac"]),
        ("größer\n漢字\n🙂\nعربى\n".encode(), ["größer", "漢字", "🙂", "عربى"]),
        (b"\xef\xbb\xbfbom\n", ["bom"]),
        ("a\x0bb\x0cc\u0085d\u2028e\x1cf\n".encode(), ["a\x0bb\x0cc\u0085d\u2028e\x1cf"]),
        (b"a\x00b\n\x00\n", ["a\x00b", "\x00"]),
        (b"y" * 200_000 + b"\nshort\n" + b"z" * 200_000, ["y" * 200_000, "short", "z" * 200_000]),
    ],
    ids=range(10),
)
async def test_strange_files_give_what_a_plain_loop_gives(
    tmp_path: Path, data: bytes, expected: list[str]
) -> None:
    for content in (data, gzip.compress(data)):
        path = write(tmp_path / "f", content)
        assert await lines_of(path) == expected
        assert await lines_of(path, split_bytes=1000) == expected


async def test_broken_bytes_are_dead_letters_and_the_other_lines_live(tmp_path: Path) -> None:
    good = [f"line {i}" for i in range(3000)]
    data = [line.encode() for line in good]
    data[1500] = b"caf\xe9"
    path = write(tmp_path / "f", b"\n".join(data))
    reading = await Reading(files(path)).all()
    assert reading.tuples == good[:1500] + good[1501:]
    assert [letter.tuple for letter in reading.dead] == [b"caf\xe9"]
    assert reading.dead[0].where == f"{path}:1501"
    assert await lines_of(path, encoding="latin-1") == [*good[:1500], "café", *good[1501:]]


async def test_a_line_above_the_limit_is_a_dead_letter(tmp_path: Path) -> None:
    data = b"a\n" + b"x" * 300_000 + b"\nb\n"
    for content in (data, gzip.compress(data)):
        source = files(write(tmp_path / "f", content), split_bytes=1000)
        for reading in (
            await Reading(source, Limits(line_bytes_max=10_000)).all(),
            await Reading(source, Limits(line_bytes_max=10_000)).interrupted(1),
        ):
            assert reading.tuples == ["a", "b"]
            assert len(reading.dead) == 1
            assert "a line of 300,000 bytes" in reading.dead[0].reason


async def test_json_lines_are_values_and_broken_ones_dead_letters(tmp_path: Path) -> None:
    rows = [json.dumps({"n": n, "t": "é" * n}) for n in range(50)]
    path = write(tmp_path / "f.jsonl", "\r\n".join([*rows, "", "{broken", "[1]"]))
    reading = await Reading(files(path, format="jsonl", split_bytes=100)).all()
    assert reading.tuples == [*map(json.loads, rows), [1]]
    assert [letter.tuple for letter in reading.dead] == ["{broken\r"]
    assert reading.dead[0].reason.startswith("not JSON")


async def test_every_member_of_a_gzip_file_is_read_and_padding_ignored(tmp_path: Path) -> None:
    packed = gzip.compress(b"a\nb") + gzip.compress(b"") + gzip.compress(b"c\nd\n") + b"\0" * 70_000
    assert await lines_of(write(tmp_path / "f", packed)) == ["a", "bc", "d"]


async def test_a_file_is_unpacked_for_what_it_is_not_for_its_name(tmp_path: Path) -> None:
    write(tmp_path / "plain.gz", "a\n")
    write(tmp_path / "packed.txt", gzip.compress(b"b\n"))
    write(tmp_path / "empty.gz", "")
    assert sorted(await lines_of(str(tmp_path / "*"))) == ["a", "b"]


async def test_a_damaged_gzip_file_gives_what_was_sound_and_a_dead_letter(tmp_path: Path) -> None:
    lines = [str(random.Random(i).getrandbits(200)) for i in range(5000)]
    packed = gzip.compress("\n".join(lines).encode())
    for damaged in (packed[: len(packed) // 2], packed[:-8] + b"\0" * 8, packed + b"rubbish"):
        reading = await Reading(files(write(tmp_path / "f", damaged))).all()
        assert reading.tuples == lines[: len(reading.tuples)]
        assert len(reading.tuples) > 1000
        assert len(reading.dead) == 1
        assert str(tmp_path / "f") in reading.dead[0].where


async def test_a_file_that_vanishes_after_the_beginning_is_a_dead_letter(tmp_path: Path) -> None:
    write(tmp_path / "a", "1\n")
    write(tmp_path / "b", "2\n")
    source = files(str(tmp_path / "*"))
    source.prepare()
    splits = list(source.splits())
    (tmp_path / "a").unlink()
    reading = Reading(source)
    for split in splits:
        assert await reading.split(split) is None
    assert reading.tuples == ["2"]
    assert reading.dead[0].reason.startswith("FileNotFoundError")


async def test_a_file_that_was_cut_after_the_beginning_is_a_dead_letter(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "1\n2\n3\n" * 100)
    source = files(path, split_bytes=200)
    splits = list(source.splits())
    write(tmp_path / "a", "1\n2\n3")
    reading = Reading(source)
    for split in splits:
        await reading.split(split)
    assert reading.tuples == ["1", "2", "3"]
    assert len(reading.dead) == 3
    assert "ends at byte 5, but had 200" in reading.dead[0].reason


async def test_lines_that_are_appended_after_the_beginning_are_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "1\n2\n")
    source = files(path)
    splits = list(source.splits())
    write(tmp_path / "a", "1\n2\n3\n")
    reading = Reading(source)
    for split in splits:
        await reading.split(split)
    assert reading.tuples == ["1", "2"]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_an_unreadable_file_stops_the_run_before_it_begins(tmp_path: Path) -> None:
    path = write(tmp_path / "secret", "1\n")
    os.chmod(path, 0)
    with pytest.raises(PermissionError, match="secret"):
        files(path).prepare()


async def test_a_folder_stands_for_its_files_but_not_the_hidden_ones(tmp_path: Path) -> None:
    write(tmp_path / "b.txt", "b\n")
    write(tmp_path / "a.txt", "a\n")
    write(tmp_path / ".hidden", "h\n")
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub" / "c.txt", "c\n")
    assert await lines_of(str(tmp_path)) == ["a", "b"]
    assert await lines_of(str(tmp_path / "**" / "*.txt")) == ["a", "b", "c"]


async def test_a_file_that_several_patterns_match_is_read_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "a\n")
    os.symlink(path, tmp_path / "b.txt")
    assert await lines_of(str(tmp_path / "*.txt"), path, str(tmp_path)) == ["a"]


async def test_a_name_that_looks_like_a_pattern_is_taken_literally_if_it_exists(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "a[1].txt", "a\n")
    assert await lines_of(path) == ["a"]


async def test_a_file_whose_name_is_not_unicode_is_read(tmp_path: Path) -> None:
    try:
        write(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")), "x\n")
    except OSError:
        pytest.skip("the file system wants Unicode names")
    source = files(str(tmp_path / "*.txt"))
    (split,) = source.splits()
    split = msgspec.msgpack.decode(msgspec.msgpack.encode(split))
    reading = Reading(source)
    await reading.split(split)
    assert reading.tuples == ["x"]


@pytest.mark.skipif(not os.path.exists("/proc/cpuinfo"), reason="needs /proc")
async def test_a_file_that_does_not_know_its_size_is_read_to_its_end() -> None:
    expected = plain_loop("/proc/cpuinfo")
    assert len(await lines_of("/proc/cpuinfo")) == expected.total()


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("empty", "'.*empty' has no files to read"),
        ("texts/alpa.txt", "there is no file '.*alpa.txt'; did you mean '.*texts/alpha.txt'"),
        ("texts/*.csv", r"no file matches '.*texts/\*\.csv': the folder .*texts has alpha.txt, b"),
        ("nowhere/*.txt", "there is no folder '.*nowhere'"),
        ("empty/x", "the folder .*empty is empty"),
        ("**/*.csv", "no file matches"),
    ],
)
def test_a_pattern_that_gives_no_file_says_what_there_is(
    tmp_path: Path, pattern: str, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "texts").mkdir()
    for name in ("alpha.txt", "beta.md", "c.md", "d.md"):
        write(tmp_path / "texts" / name, "x\n")
    with pytest.raises(FileNotFoundError, match=message):
        files(str(tmp_path / pattern)).prepare()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_wide_text_is_refused_with_advice_rather_than_read_as_something_else(
    tmp_path: Path, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    path = write(tmp_path / "f.txt", pack("larger\n".encode(encoding)))
    with pytest.raises(InputError, match=r"f.txt' begins as text in UTF-.*iconv"):
        files(path).prepare()


def test_wide_text_without_a_zero_is_told_by_its_mark(tmp_path: Path) -> None:
    path = write(tmp_path / "f.txt", ("漢" * 3000 + "\n").encode("utf-16"))
    with pytest.raises(InputError, match="UTF-16"):
        files(path).prepare()
    files(path, encoding="latin-1").prepare()  # where the mark is two letters


def test_zeros_and_their_like_are_no_wide_text(tmp_path: Path) -> None:
    for data in (b"\0" * 100, b"a\0b\0\n", b"", b"\xff", b"1234567\0\n"):
        files(write(tmp_path / "f", data)).prepare()


async def test_wide_text_that_came_later_is_refused_by_its_reader(tmp_path: Path) -> None:
    path = write(tmp_path / "f.txt", "a\n")
    source = files(path)
    (split,) = source.splits()
    write(tmp_path / "f.txt", "a\n".encode("utf-16"))
    with pytest.raises(InputError, match="UTF-16"):
        await Reading(source).split(split)


async def test_folders_that_links_lead_to_again_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    write(tmp_path / "in" / "a.txt", "a\n")
    write(tmp_path / "in" / "sub" / "b.txt", "b\n")
    for name, aim in (("self", "."), ("sub/up", ".."), ("again", "sub"), ("loop", "loop")):
        os.symlink(aim, tmp_path / "in" / name)
    source = files(str(tmp_path / "in" / "**" / "*.txt"))
    assert [split["path"] for split in source.splits()] == [
        str(tmp_path / "in" / "a.txt"),
        str(tmp_path / "in" / "sub" / "b.txt"),
    ]
    assert await lines_of(str(tmp_path / "in/*/**/up/**/*.txt")) == ["a", "b"]


async def test_a_file_of_several_names_is_read_once(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "a\n")
    os.link(tmp_path / "a.txt", tmp_path / "b.txt")
    os.symlink("a.txt", tmp_path / "c.txt")
    assert await lines_of(str(tmp_path / "*.txt")) == ["a"]


async def test_a_folder_may_have_the_name_of_a_pattern(tmp_path: Path) -> None:
    for folder in ("in[1]", "in1", "{a,b} c"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "f.txt", f"{folder}\n")
    assert await lines_of(str(tmp_path / "in[1]/*.txt")) == ["in[1]"]
    assert await lines_of(str(tmp_path / "in[12]/*.txt")) == ["in1"]
    assert await lines_of(str(tmp_path / "{a,b} c/*")) == ["{a,b} c"]


async def test_only_regular_files_match_a_pattern(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    write(tmp_path / "file", "a\n")
    assert await lines_of(str(tmp_path / "*")) == ["a"]


def test_a_link_that_leads_nowhere_stops_the_run_before_it_begins(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "a\n")
    os.symlink("gone", tmp_path / "b.txt")
    for pattern in ("*.txt", "**/*.txt", "b.txt", ""):
        with pytest.raises(FileNotFoundError, match=r"b.txt' is a link to 'gone', where nothing"):
            files(str(tmp_path / pattern)).prepare()


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may look into every folder")
def test_a_closed_folder_stops_the_run_before_it_begins(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "a\n")
    (tmp_path / "closed").mkdir(0)
    with pytest.raises(PermissionError, match="closed"):
        files(str(tmp_path / "**" / "*.txt")).prepare()


async def test_a_file_that_takes_the_place_of_one_is_a_dead_letter(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "1\n2\n")
    source = files(path)
    splits = list(source.splits())
    write(tmp_path / "b", "3\n4\n")
    os.utime(tmp_path / "b", ns=(1, 1))
    os.replace(tmp_path / "b", tmp_path / "a")
    reading = Reading(source)
    for split in splits:
        await reading.split(split)
    assert reading.tuples == []
    assert "another file has taken the place" in reading.dead[0].reason


def test_a_pipe_is_refused_with_advice(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="standard input"):
        files(str(tmp_path / "pipe")).prepare()


@pytest.mark.parametrize(
    ("patterns", "options", "message"),
    [
        ((), {}, "at least one path"),
        (("x",), {"split_bytes": 0}, "split_bytes"),
        (("x",), {"format": "tsv"}, "text, jsonl, csv"),
        (("x",), {"encoding": "utf-16"}, "iconv"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    patterns: tuple[str, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        files(*patterns, **options)


async def test_a_read_is_about_as_long_as_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "f", ("x" * 59 + "\n") * 20_000)
    source = files(path)
    reader = source.open(next(source.splits()), context())
    sizes = []
    while (chunk := await reader.read(1024, 256 * 1024)) is not None:
        sizes.append(len(chunk.tuples))
    assert 900 < max(sizes) < 1200


async def test_a_remainder_is_small_and_exact_after_every_read(tmp_path: Path) -> None:
    """Half a long line is read again, not carried along with every position."""
    lines = [f"{n} {'x' * (n % 7 * 3000)}" for n in range(60)]
    source = files(write(tmp_path / "f", "\n".join(lines)))
    split: Split | None = next(source.splits())
    tuples: list[str] = []
    while split is not None:
        reader = source.open(split, context())
        came = False
        while split is not None and not came:  # a line may be longer than what is read at once
            chunk = await reader.read(3, 10_000)
            came = chunk is not None and bool(chunk.tuples)
            tuples += chunk.tuples if chunk is not None else []
            split = reader.remainder()
            assert len(msgspec.msgpack.encode(split)) < 5000
        reader.close()
    assert tuples == lines
