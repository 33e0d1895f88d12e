"""`anabranch verify`, as it is typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from anabranch.commands.verify import command
from anabranch.protocol.table import TABLE
from anabranch.runtime.broken_protocols.variants import VARIANTS
from tests.runtime.processes import PATIENCE_S, still_alive_after

TIMEOUT_S = PATIENCE_S


def verify(*words: str) -> Result:
    return CliRunner().invoke(command, ["--quiet", "--jobs", "1", *words])


def test_an_own_scope_is_searched_and_counted() -> None:
    done = verify("--instances", "1,2", "--joins", "1", "--leaves", "2")
    assert done.exit_code == 0
    assert "1,2 joins=1 leaves=2" in done.output
    assert "267 states, 573 transitions" in done.output
    assert "nothing found" in done.output


def test_processes_die_where_that_is_asked_for() -> None:
    done = verify("--instances", "1,2,1", "--keyed", "1", "--moves", "1", "--crashes", "1")
    assert done.exit_code == 0
    assert "1,2,1 moves=1 crashes=1 keyed=1" in done.output
    mortal = int(done.output.splitlines()[-1].split()[2].replace(",", ""))
    immortal = verify("--scope", "1,2,1 moves=1 keyed=1").output.splitlines()[-1].split()[2]
    assert mortal > int(immortal.replace(",", ""))


def test_a_scope_in_words_is_searched_too() -> None:
    done = verify("--scope", "1,1 joins=1 tuples=1", "--scope", "2,1 tuples=1 finish")
    assert done.exit_code == 0
    assert done.output.splitlines()[-1].startswith("2 scopes, 106 states, 201 transitions")


def test_a_fault_is_told_and_drawn_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (variant,) = (v for v in VARIANTS if v.name == "D1: an idle newcomer drops tuples")
    for cell, broken in variant.patch.items():
        monkeypatch.setitem(TABLE, cell, broken)
    done = verify("--scope", "1,1 joins=1 tuples=1", "--svg", str(tmp_path / "charts"))
    assert done.exit_code == 1
    assert "   4. O1.1 receives tuple from O0.0  [Idle]" in done.output
    assert "=> S1: the tuple is dropped at O1.1" in done.output
    assert "NOT as it should be" in done.output
    assert (tmp_path / "charts" / "found-1.svg").read_text().startswith("<svg")


def test_a_search_that_was_cut_short_is_no_success() -> None:
    done = verify("--scope", "1,2 joins=1 leaves=2", "--states-max", "10")
    assert done.exit_code == 1
    assert "not finished" in done.output


def test_the_published_protocols_faults_are_told_and_drawn(tmp_path: Path) -> None:
    done = verify("--published", "--svg", str(tmp_path))
    assert done.exit_code == 0
    assert "PF3: published protocol, charitable reading" in done.output
    assert "14 steps, 14 in protocol.md" in done.output
    assert "NOT FOUND" not in done.output
    assert len(list(tmp_path.glob("PF*.svg"))) == 13


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--scope", "smal"), "no scope 'smal'; named are small, deep, deepest, sessions"),
        (("--scope", "1,2 jions=1"), "'jions=1' says nothing about a scope"),
        (("--json",), "--json says how the coverage is printed"),
        (("--joins", "1"), "an own scope begins with --instances"),
        (("--instances", "1,b"), "'1,b' is not a list of numbers"),
    ],
)
def test_wrong_usage_says_what_is_right(words: tuple[str, ...], complaint: str) -> None:
    done = verify(*words)
    assert done.exit_code == 2
    assert complaint in done.output


@pytest.mark.parametrize("option", ["--mutants", "--published"])
def test_an_installed_package_says_where_broken_protocols_are(
    option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "anabranch.runtime.broken_protocols", None)
    done = verify(option)
    assert done.exit_code == 2
    assert done.output.startswith(f"anabranch: {option} needs protocols that are broken on purpose")
    assert "use it in a clone" in done.output


def test_two_processes_find_the_same() -> None:
    words = ["--quiet", "--jobs", "2", "--scope", "1,1 joins=1 tuples=1", "--scope", "1,1 joins=2"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0
    assert "2 scopes" in done.output


def test_coverage_tells_what_was_met_and_beside_what() -> None:
    done = verify("--coverage", "--scope", "1,1 fresh=1 sibling=1")
    assert done.exit_code == 0
    rows = {tuple(line.split()[:2]): line.split() for line in done.output.splitlines()}
    columns = rows["what", "in"][2:]
    marks = dict(zip(columns, rows["BecomeKeeper", "Active+Migrating"][2:], strict=True))
    assert marks["hand-over"] == "n", "the one that offers"
    assert marks["leave"] == "."
    assert "Could be met, and is not in these scopes:" in done.output
    assert "    Leave              Active, Active+Freezing children," in done.output
    assert "nothing but Migrating asks for it: it would be refused (I4):" in done.output


def test_coverage_as_json_is_nothing_but_json() -> None:
    done = verify("--coverage", "--json", "--scope", "1,1 joins=1")
    assert done.exit_code == 0
    found = json.loads(done.output)
    met = {(cell["what"], cell["in"]): cell for cell in found["cells"]}
    assert met["JoinAck", "Active+Joining children"]["near"] == ["join"]
    assert {"what": "Leave", "in": "Idle", "why": None} in found["never"]


def test_coverage_of_other_scopes_is_compared_with_that_of_the_small_ones() -> None:
    words = ("--scope", "1,1 joins=1 tuples=1", "--scope", "1,1 joins=1 leaves=2 tuples=1")
    done = verify("--coverage", *words)
    assert "Reached by no small scope:" in done.output
    beyond = done.output.split("Reached by no small scope:")[1]
    assert "Leave              Active                               near leave" in beyond
    assert "JoinAck" not in beyond


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_ctrl_c_ends_all_processes_of_a_search_at_once() -> None:
    command = [sys.executable, "-m", "anabranch.cli", "verify", "--jobs", "2"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, start_new_session=True) as searching:
        children = Path(f"/proc/{searching.pid}/task/{searching.pid}/children")
        deadline = time.monotonic() + TIMEOUT_S
        while len(workers := children.read_text().split()) < 3:  # with the tracker of resources
            assert time.monotonic() < deadline
            assert searching.poll() is None
            time.sleep(0.05)
        os.killpg(searching.pid, signal.SIGINT)
        _, said = searching.communicate(timeout=TIMEOUT_S)
    assert searching.returncode == 130
    assert b"anabranch: interrupted\n" in said
    assert not still_alive_after(map(int, workers[1:]))
