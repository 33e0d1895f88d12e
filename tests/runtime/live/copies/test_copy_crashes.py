"""A keeper is killed at any call to the disk, or the power is lost there: what it has said holds
(J4, J5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.protocol.copies import Part, Position
from anabranch.runtime.live.copies.stored import StoredCopy
from anabranch.runtime.live.journal.journal import Journal, Record, segments
from anabranch.runtime.ports.disk import store, using
from anabranch.runtime.world.disk import MemoryDisk
from tests.runtime.crashes import make_lasting, try_all

FOLDER = Path("/run/copies/total.0")
JOURNAL = Path("/run/journals/a.journal")


def written() -> bytes:
    """Two records, as an instance writes them."""
    with using(MemoryDisk().store_of("writer")):
        journal = Journal(JOURNAL)
        for number in range(2):
            journal.append(Record([("part", "core", number)], [bytes(600)]))
        journal.close()
        return store().read(segments(JOURNAL)[0][1])


class Holding:
    """`fenced`, `have`: what others have heard of it."""

    def __init__(self) -> None:
        self.data = written()
        self.fenced = 0
        self.have = Position()

    async def run(self) -> None:
        self.fenced, self.have = 0, Position()
        make_lasting(FOLDER.parent)
        copy = StoredCopy(FOLDER, "1")
        half = len(self.data) // 2
        self._open(copy, 1, ())
        for number in (1, 2):
            self._append(copy, 1, Part(number, 1, half), 0)
            self._append(copy, 1, Part(number, 1, len(self.data)), half)
        copy.drop(1, 2)
        copy.fence(2)
        self.fenced = 2
        self._open(copy, 3, (Part(2, 1, half), Part(3, 3, half)))
        self._append(copy, 3, Part(3, 3, half), 0)
        copy.close()

    def _open(self, copy: StoredCopy, incarnation: int, parts: tuple[Part, ...]) -> None:
        self.have = Position()  # while the writer is told anew
        copy.opened(incarnation, parts)
        self.fenced, self.have = incarnation, copy.holder.position

    def _append(self, copy: StoredCopy, incarnation: int, part: Part, at: int) -> None:
        copy.append(incarnation, part, at, self.data[at : part.size])
        self.have = copy.holder.position

    async def check_process(self) -> None:
        holder = StoredCopy(FOLDER, "1").holder
        assert holder.fenced >= self.fenced
        assert holder.position >= self.have
        for part in holder.parts:
            path = FOLDER / f"{part.number}.{part.author}"
            assert store().read(path) == self.data[: part.size]

    async def check_power(self) -> None:
        copy = StoredCopy(FOLDER, "2")
        assert copy.holder.fenced >= self.fenced
        assert not copy.holder.readable
        sizes = 0, len(self.data) // 2, len(self.data)
        assert {part.size for part in copy.holder.parts} <= {*sizes}
        half = sizes[1]
        offered = Part(2, 1, half), Part(3, 3, half)
        copy.opened(4, offered)
        begin = copy.holder.position
        for part in offered:
            at = begin.size if part.number == begin.number else 0
            if part.number >= begin.number and at < half:
                copy.append(4, part, at, self.data[at:half])
        assert copy.holder.readable
        assert copy.holder.parts == offered


@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
async def test_what_a_keeper_has_said_outlives_it(power: bool) -> None:
    holding = Holding()
    check = holding.check_power if power else holding.check_process
    assert await try_all(holding.run, check, power=power) > 40
