"""What is written ahead of its turn."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from anabranch.runtime.live.journal import Journal, read_journal
from anabranch.runtime.live.recovery import Past
from anabranch.runtime.live.turns import Turns
from anabranch.runtime.patience import Patience


class Kept:
    """Two values that change together, and their journal."""

    def __init__(self, path: Path, *, power: bool = False) -> None:
        self.value = 0
        self.journal = Journal(path, power=power)
        self.turns = Turns(
            self.journal,
            self._fail,
            patience=Patience("me", lambda *_: None),
            keeps_batches=True,
            standing=lambda: (),
            pictures=lambda: iter(()),
            ending=lambda: None,
        )
        self.turns.part("core", lambda: self.value)
        self.turns.part("ahead", lambda: self.value)
        self._path = path

    def _fail(self, error: Exception) -> None:
        raise error

    async def begin(self) -> None:
        self.turns.begin()
        await self.turns.committed()

    @property
    def written(self) -> dict[str, Any]:
        past = Past()
        for record in read_journal(self._path, power=self.journal.power):
            past.take(record)
        return {name: past.parts[name] for name in ("core", "ahead")}


@pytest.fixture(params=[False, True], ids=["process", "power"])
async def kept(tmp_path: Path, request: Any) -> Any:
    made = Kept(tmp_path / "a.journal", power=request.param)
    await made.begin()
    yield made
    made.turns.abandon()


async def test_a_part_is_written_ahead_of_its_turn_and_the_turn_has_the_last_word(
    kept: Kept,
) -> None:
    kept.value = 1
    await kept.turns.write_down("ahead")
    assert kept.written == {"core": 0, "ahead": 1}
    kept.value = 2
    await kept.turns.committed()
    assert kept.written == {"core": 2, "ahead": 2}
    kept.value = 1
    await kept.turns.committed()
    assert kept.written == {"core": 1, "ahead": 1}


async def test_before_the_first_picture_it_waits_for_that(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a.journal")
    kept.turns.begin()
    kept.value = 1
    await kept.turns.write_down("ahead")
    assert kept.written == {"core": 1, "ahead": 1}
    kept.turns.abandon()


@pytest.mark.parametrize("soon", [False, True])
async def test_it_waits_for_a_disk_that_refuses_and_comes_behind_older_turns(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, soon: bool
) -> None:
    real, full = kept.journal.append, asyncio.Event()
    full.set()

    def append(record: Any) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        real(record)

    monkeypatch.setattr(kept.journal, "append", append)
    kept.value = 1
    turn = asyncio.ensure_future(kept.turns.committed())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if soon:
        full.clear()
    kept.value = 2
    ahead = asyncio.ensure_future(kept.turns.write_down("ahead"))
    await asyncio.sleep(0)
    full.clear()
    await asyncio.gather(turn, ahead)
    assert kept.written == {"core": 2, "ahead": 2}
