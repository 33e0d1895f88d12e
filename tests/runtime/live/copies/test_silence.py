"""For how long a copy keeper has not heard a writer (J8)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from anabranch.protocol.copies import FencedError
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.live.copies import messages
from anabranch.runtime.live.copies.asking import fence, silent_s
from anabranch.runtime.live.copies.client import JournalCopies
from anabranch.runtime.live.copies.silence import LOOK_MAX_S, Silence
from anabranch.runtime.live.journal.journal import Journal, Record
from tests.runtime.live.copies.test_keeper import ME, TOKEN, Keeping
from tests.runtime.processes import PATIENCE_S, eventually
from tests.runtime.virtual_time import in_virtual_time

OTHER = InstanceId(OperatorName("total"), 4)


def near(seconds: float) -> object:
    """Each sleep of the tests' loop takes a little longer."""
    return pytest.approx(seconds, abs=0.2)


@in_virtual_time
async def test_only_the_time_counts_for_which_a_keeper_has_listened() -> None:
    silence = Silence()
    for _ in range(10):
        await asyncio.sleep(1.0)
        silence.look()
    assert silence.seconds("a") == near(10.0)
    silence.heard("a")
    await asyncio.sleep(1.5)
    assert silence.seconds("a") == near(1.5)
    await asyncio.sleep(1000.0)  # it was stopped
    assert silence.seconds("a") == near(1.5 + LOOK_MAX_S)
    silence.forget("a")
    assert silence.seconds("a") == near(11.5 + LOOK_MAX_S)


@pytest.fixture
async def keeping(tmp_path: Path) -> Keeping:
    made = Keeping(tmp_path)
    await made.begin()
    return made


def copies_of(keeping: Keeping, *, shows_life: bool) -> JournalCopies:
    return JournalCopies(
        ME, 1, TOKEN, order=1, holders={"b": keeping.address}, complete=["b"],
        shows_life=shows_life, completed=lambda *_: None,
    )  # fmt: skip


async def test_a_writer_with_nothing_to_copy_is_heard_all_the_same(
    keeping: Keeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.runtime.live.copies.copy_link.LIVES_S", 0.01)
    copies = copies_of(keeping, shows_life=True)
    await copies.prepare(tmp_path / "a.journal")
    journal = Journal(tmp_path / "a.journal", copies=copies)
    journal.append(Record([("part", "core", 1)], []))
    await asyncio.wait_for(journal.synced(), PATIENCE_S)
    heard: list[str] = []
    right = keeping.keeper.silence.heard

    def note(instance: str) -> None:
        heard.append(instance)
        right(instance)

    monkeypatch.setattr(keeping.keeper.silence, "heard", note)
    await eventually(lambda: heard[:3] == [str(ME)] * 3)
    copies.close()
    journal.close()
    keeping.keeper.close()


async def test_a_keeper_says_for_how_long_it_has_heard_nothing(keeping: Keeping) -> None:
    silence = keeping.keeper.silence
    silence._listened_s += 100.0
    assert await silent_s(keeping.address, TOKEN, ME) >= 100.0
    stream, _ = await keeping.writer()
    stream.write(messages.OPEN, 1, [])
    await eventually(lambda: silence.seconds(str(ME)) < 100.0)
    assert await silent_s(keeping.address, TOKEN, ME) < 100.0
    assert await silent_s(keeping.address, TOKEN, OTHER) >= 100.0
    stream.close()
    keeping.keeper.close()


async def test_an_incarnation_that_was_given_up_is_not_heard(keeping: Keeping) -> None:
    stream, answers = await keeping.writer()
    stream.write(messages.OPEN, 1, [])
    assert (await asyncio.wait_for(answers.following(), PATIENCE_S))[0] == messages.HAVE
    await fence(keeping.address, TOKEN, ME, 2)
    keeping.keeper.silence._listened_s += 100.0
    stream.write(messages.LIVES)
    with pytest.raises(FencedError):
        await asyncio.wait_for(answers.following(), PATIENCE_S)
    assert await silent_s(keeping.address, TOKEN, ME) >= 100.0
    keeping.keeper.close()
