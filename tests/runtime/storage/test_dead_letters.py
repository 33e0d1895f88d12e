"""Dead letters reach the file whole, readable, and from several processes."""

from __future__ import annotations

import base64
import errno
import json
import math
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.storage.dead_letters import (
    TUPLE_CHARS_MAX,
    DeadLetterFile,
    letters_in,
    tuple_json,
)
from tests.runtime.processes import PATIENCE_S


def open_file(path: Path) -> DeadLetterFile:
    return DeadLetterFile(path, pipeline="p", operator="op", instance="op.0")


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


def test_a_record_says_where_why_and_which_tuple(tmp_path: Path) -> None:
    file = open_file(tmp_path / "dead.jsonl")
    file.write([DeadLetter("ValueError: bad", {"a": [1, None]}, "f.py:3 in g", "clean")])
    file.close()
    (record,) = records(tmp_path / "dead.jsonl")
    assert record.pop("time").endswith("Z")
    assert record == {
        "pipeline": "p",
        "operator": "op",
        "instance": "op.0",
        "step": "clean",
        "reason": "ValueError: bad",
        "where": "f.py:3 in g",
        "tuple": {"a": [1, None]},
    }
    assert file.count == 1


def test_without_letters_there_is_no_file(tmp_path: Path) -> None:
    file = open_file(tmp_path / "dead.jsonl")
    file.write([])
    file.close()
    assert not (tmp_path / "dead.jsonl").exists()


@pytest.mark.parametrize("piece_bytes", [1, 3, 4, 7, 100])
@pytest.mark.parametrize("data", [b"", b"a\nbcdef\n\ng\n", b"a\nhalf"])
def test_a_file_is_read_in_pieces_of_whole_lines(
    data: bytes, piece_bytes: int, tmp_path: Path
) -> None:
    path = tmp_path / "dead.jsonl"
    assert [*letters_in(path, piece_bytes)] == []
    path.write_bytes(data)
    pieces = [*letters_in(path, piece_bytes)]
    assert b"".join(pieces) == data
    assert all(piece.endswith(b"\n") for piece in pieces[:-1])


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError


class Plain:
    def __repr__(self) -> str:
        return "Plain()"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("text\n\u2028é", "text\n\u2028é"),
        ("\ud800", "\ud800"),
        (None, None),
        (b"\xff\x00", {"base64": base64.b64encode(b"\xff\x00").decode()}),
        ([1, b"x"], [1, {"base64": "eA=="}]),
        ((1, Plain()), [1, {"repr": "Plain()"}]),
        (math.nan, {"repr": "nan"}),
        ({(1, 2): 3}, {"repr": "{(1, 2): 3}"}),
        (Mute(), {"repr": "<Mute whose repr raised RuntimeError>"}),
    ],
    ids=range(9),
)
def test_a_tuple_is_shown_as_json_or_with_a_marker(value: Any, shown: Any) -> None:
    assert json.loads(tuple_json(value)) == shown


@pytest.mark.parametrize("value", ["é" * 10**6, b"x" * 10**6, list(range(10**5)), {1: "y" * 10**6}])
def test_a_long_tuple_is_cut_with_its_length(value: Any) -> None:
    text = tuple_json(value)
    assert len(text) < 2 * TUPLE_CHARS_MAX
    assert json.loads(text)["chars"] >= 10**5


@given(st.recursive(st.text() | st.binary() | st.floats(), st.lists, max_leaves=5))
def test_whatever_the_tuple_is_the_line_is_json(value: Any) -> None:
    json.loads(tuple_json(value))


def test_a_value_that_contains_itself_is_shown() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert json.loads(tuple_json(loop)) == {"repr": "[[...]]"}


def _write(path: Path, name: str) -> None:
    file = DeadLetterFile(path, pipeline="p", operator="op", instance=name)
    for _ in range(50):
        file.write([DeadLetter("r", "x" * 500)] * 20)


def test_lines_of_several_processes_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=_write, args=(path, f"op.{n}")) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(PATIENCE_S)
        assert writer.exitcode == 0
    assert len(records(path)) == 3000


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_an_error_that_names_the_file() -> None:
    file = open_file(Path("/dev/full"))
    with pytest.raises(OSError, match="cannot write dead letters") as caught:
        file.write([DeadLetter("r", 1)])
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == "/dev/full"
    assert file.count == 0
    file.close()


def test_a_folder_that_is_not_there_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        open_file(tmp_path / "nowhere" / "dead.jsonl").write([DeadLetter("r", 1)])


def test_a_function_that_changes_the_folder_does_not_move_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    file = open_file(Path("dead.jsonl"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    file.write([DeadLetter("bad", 1)])
    file.close()
    assert [r["tuple"] for r in records(tmp_path / "dead.jsonl")] == [1]


async def test_the_next_incarnation_writes_no_letter_again(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    path.write_text('{"tuple": 0}\n')
    for _ in range(2):
        file = DeadLetterFile(
            path, pipeline="p", operator="op", instance="op.0", lasting_dir=tmp_path
        )
        staged = [file.stage([DeadLetter("bad", 1), DeadLetter("bad", 2)])]
        staged.append(file.stage([DeadLetter("bad", 3)]))
        for number, data in enumerate(staged, 1):
            await file.put(number, data)
        assert (file.count, file.last_put()) == (3, 2)
        file.close()
    assert [r["tuple"] for r in records(path)] == [0, 1, 2, 3]
    assert file.stage([]) == b""


def test_where_nobody_records_anything_letters_of_later_incarnations_follow(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    for n in range(2):
        file = DeadLetterFile(
            path, pipeline="p", operator="op", instance="op.0", lasting_dir=tmp_path
        )
        file.write([DeadLetter("bad", n)])
        file.close()
    assert [r["tuple"] for r in records(path)] == [0, 1]
