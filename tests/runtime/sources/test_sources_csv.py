"""Records of CSV come as Python's own reader has them, wherever their bytes are cut."""

from __future__ import annotations

import csv as plain_csv
import gzip
import io
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.protocol.limits import Limits
from anabranch.runtime.sources import csv, files
from anabranch.runtime.sources.records import CsvForm, RecordCutter
from tests.runtime.reading import Reading

fixture_is_shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
fields = st.text(st.sampled_from('ab"\r\n,; é'), max_size=6)


def write(path: Path, data: bytes | str) -> str:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)


async def read(source: Any, limits: Limits | None = None) -> Reading:
    return await Reading(source, limits or Limits()).all()


def fed(data: bytes, size: int, **options: Any) -> tuple[list[Any], list[Any]]:
    """What a cutter makes of pieces of so many bytes, begun anew behind each."""
    limits = Limits(line_bytes_max=options.pop("limit", 1000))
    tuples: list[Any] = []
    dead: list[Any] = []
    state, at = None, 0
    while True:
        cutter = RecordCutter("f", encoding="utf_8", limits=limits, **options)
        if state is not None:
            cutter.restore(state)
        block = data[at : at + size]
        made, letters = cutter.feed(block, final=not block)
        tuples += made
        dead += letters
        if cutter.done:
            return tuples, dead
        state = cutter.state()
        at = state["next"]


@fixture_is_shared
@given(
    st.lists(st.lists(fields, min_size=2, max_size=3), max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(",;"),
    st.sampled_from([plain_csv.QUOTE_ALL, plain_csv.QUOTE_MINIMAL]),
    st.integers(1, 9),
)
def test_records_are_those_of_pythons_reader(
    rows: list[list[str]], end: str, delimiter: str, quoting: Any, size: int
) -> None:
    if quoting == plain_csv.QUOTE_MINIMAL:  # Python's writer leaves other line ends without quotes
        rows = [[re.sub("[\r\n]", "", field) for field in row] for row in rows]
    text = io.StringIO()
    plain_csv.writer(text, lineterminator=end, delimiter=delimiter, quoting=quoting).writerows(rows)
    form = CsvForm(header=False, delimiter=delimiter)
    assert fed(text.getvalue().encode(), size, form=form) == (rows, [])


async def test_the_text_of_a_record_keeps_its_line_ends(tmp_path: Path) -> None:
    data = 'at,text\r\n1,"two\nlines"\r\n\r\n2,"a ""b\rc"""'
    for content in (data.encode(), gzip.compress(data.encode())):
        reading = await read(files(write(tmp_path / "f", content), format="csv", split_bytes=5))
        assert reading.tuples == ["at,text", '1,"two\nlines"', '2,"a ""b\rc"""']
        assert reading.dead == []


async def test_records_are_dicts_by_the_header_of_their_file(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "\ufeffn,t\n1,x\n")
    write(tmp_path / "b.csv", 't,n\n"y\nz",2\n')
    reading = await read(csv(str(tmp_path / "*.csv")))
    assert reading.tuples == [{"n": "1", "t": "x"}, {"t": "y\nz", "n": "2"}]
    named = await read(csv(str(tmp_path / "a.csv"), header=["a", "b"]))
    assert named.tuples == [{"a": "n", "b": "t"}, {"a": "1", "b": "x"}]
    bare = await read(csv(str(tmp_path / "b.csv"), header=False))
    assert bare.tuples == [["t", "n"], ["y\nz", "2"]]


@pytest.mark.parametrize("reads", [1, 2])
async def test_a_remainder_keeps_the_header(tmp_path: Path, reads: int) -> None:
    rows = "".join(f'{n},"x\ny"\n' for n in range(300))
    source = csv(write(tmp_path / "f", "n,t\n" + rows))
    reading = await Reading(source, tuples_max=10).interrupted(reads)
    assert reading.tuples == [{"n": str(n), "t": "x\ny"} for n in range(300)]
    assert reading.dead == []


def test_a_record_that_does_not_fit_its_header_is_a_dead_letter() -> None:
    tuples, dead = fed(b"a,b\n1,2\n1\n1,2,3\n\xff,2\n3,4\n", 100, form=CsvForm())
    assert tuples == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert [letter.tuple for letter in dead] == ["1", "1,2,3", b"\xff,2"]
    assert [(letter.where, letter.reason) for letter in dead] == [
        ("f:3", "1 field, but the number of names is 2"),
        ("f:4", "3 fields, but the number of names is 2"),
        ("f:5", "not utf-8 text: byte 0xff at position 0: invalid start byte"),
    ]


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_quote_that_is_not_closed_costs_its_line(size: int) -> None:
    tuples, dead = fed(b'1,"a\n2,b\n3,c', size)
    assert tuples == ["2,b", "3,c"]
    assert [(letter.where, letter.tuple, letter.reason) for letter in dead] == [
        ("f:1", '1,"a', "a quote is not closed")
    ]


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_line_above_the_limit_is_one_dead_letter(size: int) -> None:
    for long in (b"x" * 95, b'"' + b"x" * 95):
        tuples, dead = fed(b"1,a\n" + long + b"\n2,b\n", size, limit=20)
        assert tuples == ["1,a", "2,b"]
        assert len(dead) == 1


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_record_above_the_limit_costs_its_first_line(size: int) -> None:
    tuples, dead = fed(b'1,"' + b"x" * 10 + b"\n" + b"y" * 40 + b'"\n2,b\n', size, limit=20)
    assert tuples[-1:] == ["2,b"]
    assert len(tuples) + len(dead) == 3
    assert dead[0].where == "f:1"


@pytest.mark.parametrize(("header", "name"), [(b"a,a", "'a'"), (b"a,,", "''")])
def test_a_header_that_names_two_fields_alike_gives_one_dead_letter(
    header: bytes, name: str
) -> None:
    tuples, dead = fed(header + b"\n1,2,3\n3,4,5\n", 100, form=CsvForm())
    assert tuples == []
    assert [letter.reason.partition(",")[0] for letter in dead] == [
        f"the header has the name {name} twice"
    ]


async def test_records_that_are_appended_after_the_beginning_are_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "f", '1,"a\nb"\n')
    source = files(path, format="csv")
    (split,) = source.splits()
    write(tmp_path / "f", '1,"a\nb"\n2,c\n')
    reading = Reading(source)
    await reading.split(split)
    assert reading.tuples == ['1,"a\nb"']


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": ""}, "one ASCII character"),
        ({"delimiter": '"'}, "one ASCII character"),
        ({"delimiter": "é"}, "one ASCII character"),
        ({"header": []}, "a list of names"),
        ({"header": "ab"}, "a list of names"),
        ({"header": ["a", "a"]}, "the name 'a' twice"),
        ({"header": ["a", "", ""]}, "the name '' twice"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        csv("f", **options)
