"""`anabranch verify`, as it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from anabranch.commands.verify import command
from anabranch.protocol.table import TABLE
from anabranch.runtime.explorer.variants import VARIANTS


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
    assert "P3: published protocol, charitable reading" in done.output
    assert "14 steps, 14 in protocol.md" in done.output
    assert "NOT FOUND" not in done.output
    assert len(list(tmp_path.glob("P*.svg"))) == 13


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--scope", "smal"), "no scope 'smal'; named are small, deep, deepest, sessions"),
        (("--scope", "1,2 jions=1"), "'jions=1' says nothing about a scope"),
        (("--joins", "1"), "an own scope begins with --instances"),
        (("--instances", "1,b"), "'1,b' is not a list of numbers"),
    ],
)
def test_wrong_usage_says_what_is_right(words: tuple[str, ...], complaint: str) -> None:
    done = verify(*words)
    assert done.exit_code == 2
    assert complaint in done.output


def test_two_processes_find_the_same() -> None:
    words = ["--quiet", "--jobs", "2", "--scope", "1,1 joins=1 tuples=1", "--scope", "1,1 joins=2"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0
    assert "2 scopes" in done.output
