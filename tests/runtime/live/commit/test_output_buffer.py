"""Pieces on their way to a target: recorded first, then put, then forgotten; in their order."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from anabranch.runtime.live.commit import output_buffer as puts_module
from anabranch.runtime.live.commit.output_buffer import OutputBuffer
from anabranch.runtime.live.journal.journal import JournalError
from anabranch.runtime.storage.patience import Patience
from tests.runtime.processes import PATIENCE_S


class Story:
    """A journal, and a target, that write down what is asked of them."""

    path = Path("journals/out.journal")

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.at_target: list[tuple[int, bytes]] = []

    def keep(self, kind: str, number: int, data: bytes) -> None:
        self.told.append(("keep", number))

    def drop(self, kind: str, number: int) -> None:
        self.told.append(("drop", number))

    async def committed(self) -> None:
        self.told.append(("committed",))

    async def put(self, number: int, data: bytes) -> None:
        self.told.append(("put", number))
        self.at_target.append((number, data))


class NoPatience:
    async def outlast(self, work: Any, error: OSError | None = None) -> Any:
        return await work()


def made(story: Story) -> OutputBuffer:
    return OutputBuffer("letters", cast(Any, story), story.put, cast(Patience, NoPatience()))


async def test_a_piece_is_put_when_it_is_recorded_and_forgotten_when_it_is_put() -> None:
    story = Story()
    output_buffer = made(story)
    output_buffer.add(b"a")
    output_buffer.add(b"")  # nothing to say is no piece
    output_buffer.add(b"b")
    assert (output_buffer.number, output_buffer.done, output_buffer.waiting) == (2, 0, True)
    await output_buffer.all_done()
    assert story.told == [
        ("keep", 1),
        ("keep", 2),
        ("committed",),
        ("put", 1),
        ("drop", 1),
        ("put", 2),
        ("drop", 2),
    ]
    assert (output_buffer.number, output_buffer.done, output_buffer.waiting) == (2, 2, False)


async def test_what_is_put_makes_room_again_byte_by_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(puts_module, "WAITING_BYTES_MAX", 10)
    story = Story()
    output_buffer = made(story)
    for _ in range(20):
        output_buffer.add(bytes(10))
        assert output_buffer.has_room
        output_buffer.add(b"x")
        assert not output_buffer.has_room
        waiting = asyncio.ensure_future(output_buffer.room())
        await output_buffer.all_done()
        await asyncio.wait_for(waiting, PATIENCE_S)


async def test_the_next_incarnation_puts_what_was_recorded_and_goes_on_with_the_numbers() -> None:
    story = Story()
    output_buffer = made(story)
    output_buffer.restore(7, {7: b"seven", 6: b"six"}, last_put=6)
    assert (output_buffer.number, output_buffer.done, output_buffer.waiting) == (7, 5, True)
    output_buffer.add(b"eight")
    await output_buffer.all_done()
    assert story.at_target == [(6, b"six"), (7, b"seven"), (8, b"eight")]
    assert output_buffer.done == 8


@pytest.mark.parametrize(("last_put", "refused"), [(7, False), (8, True)])
def test_a_target_that_is_ahead_of_the_journal_is_refused(last_put: int, refused: bool) -> None:
    output_buffer = made(Story())
    if not refused:
        output_buffer.restore(7, {}, last_put)
        return
    with pytest.raises(
        JournalError,
        match=r"has piece 8 of this instance, and its journal 'journals/out\.journal' ends",
    ):
        output_buffer.restore(7, {}, last_put)
