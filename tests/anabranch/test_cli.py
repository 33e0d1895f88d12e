"""The command line within this process: usage, validation, wrong arguments."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import anabranch as ab
from anabranch import __version__
from anabranch.cli import COMMANDS, main
from anabranch.views.values import in_words
from tests.anabranch.files import GOOD, clean_imports, write


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with clean_imports():
        yield


def called(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.mark.parametrize("command", ["run", "validate"])
def test_ctrl_c_while_the_file_is_read_has_the_code_of_an_interrupt(
    tmp_path: Path, command: str
) -> None:
    result = called(command, write(tmp_path, "raise KeyboardInterrupt"))
    assert (result.exit_code, result.output) == (130, "anabranch: interrupted\n")


def test_the_version_is_one_line() -> None:
    result = called("--version")
    assert (result.exit_code, result.output) == (0, f"anabranch {__version__}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["run", "--help"], ["validate", "-h"]])
def test_every_help_has_examples(arguments: list[str]) -> None:
    result = called(*arguments)
    assert result.exit_code == 0
    assert "Examples:\n  " in result.output.replace("    ", "  ")


def test_help_lists_all_commands_with_a_line_each() -> None:
    output = called("--help").output
    assert all(f"{name} " in output and text in output for name, text in COMMANDS.items())


def test_the_short_help_of_a_command_is_the_line_in_the_list() -> None:
    """The list does not import the commands, so it keeps its own copy."""
    assert called("run", "--help").output.count("Run the pipeline in FILE.py until") == 1
    assert called("validate", "--help").output.count("Check the pipeline in FILE.py") == 1


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["rnu", "x.py"], "did you mean 'run'?"),
        (["x.py"], "did you mean 'anabranch run x.py'?"),
        (["serve"], "commands: run, validate"),
        (["run"], "Missing argument 'FILE.py[:NAME]'"),
        (["run", "x.py", "--jsn"], "--json"),
        (["run", "x.py", "--transport", "mqtt"], "'unix', 'tcp'"),
        (["run", "x.py", "--warm", "-1"], "--warm"),
        (["run", "x.py", "--duration", "soon"], "not a valid float"),
        (["run", "x.py"], "anabranch: no such file: x.py"),
    ],
)
def test_wrong_usage_is_code_2_with_a_hint(arguments: list[str], hint: str) -> None:
    result = called(*arguments)
    assert result.exit_code == 2
    assert hint in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", ["run", "validate"])
@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--set", "split.scale.max_instance=4"], "did you mean 'max_instances'?"),
        (["--set", "split.scale.max_instances=four"], "expected int, got 'four'"),
        (["--set", "out.scale.max_instances=4"], "cannot have several instances"),
        (["--scale-script", "1 splt leave"], "line 1: no operator 'splt'"),
        (["--scale-script", "storm.txt"], "no such file"),
    ],
)
def test_settings_and_scripts_are_checked_by_both_commands(
    tmp_path: Path, command: str, arguments: list[str], hint: str
) -> None:
    text = GOOD.replace("ab.discard()", "ab.stdout()")  # one instance only
    result = called(command, write(tmp_path, text), *arguments)
    assert result.exit_code == 2
    assert hint in result.output
    assert result.output.startswith("anabranch: ")


def test_a_broker_whose_port_is_taken_says_so_in_a_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = called("broker", "--port", str(port))
    assert result.exit_code == 2
    expected = f"anabranch: cannot listen on 127.0.0.1:{port}: Address already in use; "
    assert result.output.startswith(expected)
    assert result.output.count("\n") == 1


def test_a_duration_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    result = called("run", write(tmp_path, GOOD), "--duration", "0")
    assert result.exit_code == 2
    assert "duration_s must be above 0" in result.output


def test_a_report_into_nowhere_is_refused_before_the_run(tmp_path: Path) -> None:
    result = called("run", write(tmp_path, GOOD), "--report", tmp_path / "no" / "report.json")
    assert result.exit_code == 2
    assert "does not exist" in result.output


def test_json_and_a_sink_on_standard_output_exclude_each_other(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("ab.discard()", "ab.stdout()"))
    result = called("run", path, "--json")
    assert result.exit_code == 2
    assert "so does sink 'out'" in result.output


def test_validate_shows_the_graph(tmp_path: Path) -> None:
    result = called("validate", write(tmp_path, GOOD))
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "headlines in headlines.py: 3 operators, valid"
    row = next(line for line in lines if line.startswith("split"))
    assert row.split(maxsplit=3)[:3] == ["split", "flat_map", "lines"]
    assert "1 to 8 at load 0.7" in row


def born(number: int) -> int:
    return number


class Writer:
    def __init__(self, table: str) -> None:
        self.table = table

    def __call__(self, row: object) -> None: ...


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ab.generate(born, rate=50), "Generate(fn=born, rate=50)"),
        (ab.generate(born, count=5), "Generate(fn=born, count=5)"),
        (ab.files(Path("a.txt")), "Files(patterns=('a.txt',))"),
        (ab.discard(), "DiscardSink()"),
        ({"a": str, "b": [int]}, "{'a': str, 'b': [int]}"),
        (Writer("rows"), "Writer"),
        (partial(born, 3), "functools.partial(<function born>, 3)"),
        ([Path("a"), len, str], "['a', len, str]"),
    ],
)
def test_values_are_shown_by_names_and_without_defaults(value: object, text: str) -> None:
    assert in_words(value) == text


def test_validate_shows_no_address(tmp_path: Path) -> None:
    text = GOOD.replace("ab.discard()", "ab.foreach(lambda word: None)")
    text = text.replace('ab.items(["a b", "c"])', "ab.generate(lambda n: str(n), count=3)")
    for more in ((), ("--json",)):
        result = called("validate", write(tmp_path, text), *more)
        assert "fn=<lambda>" in result.output
        assert " at 0x" not in result.output


def test_validate_as_json_has_all_settings(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + "\n    print('noise')\n")
    result = called("validate", path, "--json", "--set", "split.scale.max_instances=4")
    assert result.exit_code == 0
    graph = json.loads(result.stdout)
    assert "noise" in result.stderr
    assert [o["kind"] for o in graph["operators"]] == ["source", "flat_map", "sink"]
    assert graph["operators"][1]["scale"]["max_instances"] == 4
    assert graph["operators"][1]["upstream"] == ["lines"]


def test_validate_as_json_tells_errors_as_json_too(tmp_path: Path) -> None:
    result = called("validate", write(tmp_path, "1 / 0\n"), "--json")
    assert result.exit_code == 2
    told = json.loads(result.stdout)
    assert told["valid"] is False
    assert told["error"].startswith("headlines.py:1: division by zero")


def test_validate_starts_and_opens_nothing(tmp_path: Path) -> None:
    text = GOOD.replace("ab.discard()", f"ab.jsonl({str(tmp_path / 'out.jsonl')!r})")
    text = text.replace('ab.items(["a b", "c"])', "ab.files('no/such/*.txt')")
    assert called("validate", write(tmp_path, text)).exit_code == 0
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["headlines.py"]


def test_a_seed_that_no_message_can_carry_is_refused(tmp_path: Path) -> None:
    result = called("run", write(tmp_path, GOOD), "--seed", str(2**64))
    assert result.exit_code == 2
    assert "seed must fit into 64 bits" in result.output
