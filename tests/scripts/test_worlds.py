"""`scripts/worlds.py`: its exit codes and its lines."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.scripts import script

worlds = script("worlds")


@pytest.fixture(autouse=True)
def _logging_again() -> Iterator[None]:
    yield
    logging.disable(logging.NOTSET)


def test_valid_worlds_end_well_and_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert worlds.main(["--seeds", "3", "--scene", "windows"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("3 valid, 0 invalid, 0 unknown; ")
    assert lines[0].endswith(" s of processor time each")


def test_an_invalid_world_is_told_with_its_seed_and_ends_badly(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = worlds.found_in

    def wrong(seed: int, scene: str) -> object:
        found = right(seed, scene)
        found.word, found.why = worlds.Word.INVALID, "2 missing"
        return found

    monkeypatch.setattr(worlds, "found_in", wrong)
    assert worlds.main(["--seeds", "1", "--first", "8", "--scene", "chain"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("8 chain invalid: 2 missing (")
    assert lines[1].startswith("0 valid, 1 invalid, 0 unknown; ")


@pytest.mark.parametrize("wrong", [["--seeds", "0"], ["--scene", "none"]])
def test_what_makes_no_sense_is_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        worlds.main(wrong)
    assert refused.value.code == 2
