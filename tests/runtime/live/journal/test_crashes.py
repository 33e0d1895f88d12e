"""Whatever is killed at whatever call to the disk, and whatever a loss of power leaves there: what
others have acted upon is in the journal that the next process reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.runtime.live.agent.run_journal import Passed, RunJournal, Told, read_records
from anabranch.runtime.live.commit.recovery import read_past
from anabranch.runtime.live.journal.journal import DRAWN, Journal, Record
from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage import record_log, replaced
from anabranch.runtime.world.disk import MemoryFile, MemoryStore
from tests.runtime.crashes import NotOutlived, make_lasting, try_all

PATH = Path("/run/journals/a.journal")
LOG = Path("/run/agent.journal")
MODES = pytest.mark.parametrize("power", [False, True], ids=["process", "power"])


class Counting:
    """An instance that counts to `UP_TO`, in two segments. `told`: the last number that others
    have heard of."""

    UP_TO = 4

    def __init__(self, power: bool) -> None:
        self.power = power
        self.told = self.said = 0

    async def run(self) -> None:
        self.told = self.said = 0
        make_lasting(PATH.parent)
        journal = Journal(PATH, power=self.power)
        await self._begin(journal)
        for number in range(1, self.UP_TO + 1):
            self.said = number
            if number == 3:
                journal.begin_segment()
                await self._begin(journal)
            else:
                await self._write(journal, [("part", "core", number)], bytes(600))
            self.told = number
        journal.close()

    async def _begin(self, journal: Journal) -> None:
        """A snapshot, and what is known to be complete."""
        await self._write(journal, [("snapshot",), ("part", "core", self.said)])
        await self._write(journal, [DRAWN])
        journal.snapshot_complete()

    async def _write(self, journal: Journal, entries: list[Any], *pieces: bytes) -> None:
        journal.append(Record(entries, [*pieces]))
        if self.power:
            await journal.synced()

    async def check(self) -> None:
        """And the next incarnation can go on from it, and the one after that."""
        found = self._found()
        assert self.told <= found <= self.said, f"{found} of {self.told} to {self.said}"
        journal = Journal(PATH, power=self.power)
        await self._write(journal, [("snapshot",), ("part", "core", found)])
        await self._write(journal, [DRAWN])
        journal.snapshot_complete()
        journal.close()
        assert self._found() == found

    def _found(self) -> int:
        past = read_past(PATH, power=self.power, owner="", must_be=False)
        return 0 if past is None else int(past.parts["core"])


class Logging:
    """An agent that writes what has passed, and once says it in fewer words."""

    def __init__(self, power: bool) -> None:
        self.power = power
        self.told: list[int] = []
        self.said: list[int] = []

    async def run(self) -> None:
        self.told, self.said = [], []
        make_lasting(LOG.parent)
        journal = RunJournal(LOG, power=self.power)
        for number in range(5):
            self.said.append(number)
            if number == 3:
                journal.replace([self._record(n) for n in self.said])
            else:
                journal.append(self._record(number))
            self.told.append(number)
        journal.close()

    def _record(self, number: int) -> Told:
        return Told(id=["work", number])

    async def check(self) -> None:
        found = self._found()
        assert self.said[: len(found)] == found
        assert found[: len(self.told)] == self.told
        store().make_folder(LOG.parent)
        journal = RunJournal(LOG, power=self.power)
        journal.append(Passed(seconds=1.0))
        journal.append(self._record(9))
        journal.close()
        assert self._found() == [*found, 9]

    def _found(self) -> list[int]:
        records = read_records(LOG, power=self.power)
        return [record.id[1] for record in records if isinstance(record, Told)]


class Replacing:
    """A small file that is replaced as a whole, as `run.json` is."""

    def __init__(self, power: bool) -> None:
        self.told = self.said = b""

    async def run(self) -> None:
        self.told = self.said = b""
        make_lasting(LOG.parent)
        for text in (b"1" * 700, b"2" * 1300):
            self.said = text
            replaced.replace_file(LOG, text)
            self.told = text

    async def check(self) -> None:
        found = store().read(LOG) if store().exists(LOG) else b""
        assert found in (self.told, self.said)


Case = type[Counting] | type[Logging] | type[Replacing]


@MODES
@pytest.mark.parametrize("case", [Counting, Logging, Replacing])
async def test_what_others_have_acted_upon_is_there_after_every_crash(
    case: Case, power: bool
) -> None:
    run = case(power)
    tried = await try_all(run.run, run.check, power=power)
    assert tried > 15


# -- broken variants of the classes, each of which one of these crashes finds ---------------------

Patch = pytest.MonkeyPatch
real_begin, real_append = Journal.begin_segment, Journal.append
real_folder_sync = MemoryStore.sync_folder


def acknowledges_before_it_syncs(patch: Patch) -> None:
    async def synced(self: Journal) -> None:
        pass

    patch.setattr(Journal, "synced", synced)


def syncs_no_name_of_a_segment(patch: Patch) -> None:
    patch.setattr(Journal, "_sync", lambda self, file, folders: file.sync_data())


def syncs_the_name_of_no_extent(patch: Patch) -> None:
    def sync(self: MemoryStore, path: Path) -> None:
        if path.name != "extents":
            real_folder_sync(self, path)

    patch.setattr(MemoryStore, "sync_folder", sync)


def drops_a_segment_before_the_next_one_is_told(patch: Patch) -> None:
    def begin(self: Journal) -> None:
        real_begin(self)
        self.snapshot_complete()

    patch.setattr(Journal, "begin_segment", begin)


def notes_the_length_before_it_writes(patch: Patch) -> None:
    def append(self: Journal, record: Record) -> None:
        self._extent.note(self._number, self.size + 40)
        real_append(self, record)

    patch.setattr(Journal, "append", append)


def syncs_no_record_of_the_agent(patch: Patch) -> None:
    patch.setattr(record_log, "_sync", lambda file: None)


def renames_before_it_syncs(patch: Patch) -> None:
    patch.setattr(MemoryFile, "sync", lambda self: None)


def leaves_what_is_torn(patch: Patch) -> None:
    patch.setattr(MemoryFile, "truncate", lambda self, size: None)


def syncs_no_new_name(patch: Patch) -> None:
    patch.setattr(MemoryStore, "sync_folder", lambda self, path: None)


def writes_in_place(patch: Patch) -> None:
    def replace(path: Path, data: bytes) -> None:
        file = store().open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        file.append(data)
        file.sync()
        file.close()

    patch.setattr(replaced, "replace_file", replace)


@pytest.mark.parametrize(
    ("case", "power", "broken"),
    [
        (Counting, True, acknowledges_before_it_syncs),
        (Counting, True, syncs_no_name_of_a_segment),
        (Counting, True, syncs_the_name_of_no_extent),
        (Counting, True, drops_a_segment_before_the_next_one_is_told),
        (Counting, False, drops_a_segment_before_the_next_one_is_told),
        (Counting, False, notes_the_length_before_it_writes),
        (Logging, True, syncs_no_record_of_the_agent),
        (Logging, True, renames_before_it_syncs),
        (Logging, True, syncs_no_new_name),
        (Logging, False, leaves_what_is_torn),
        (Replacing, True, renames_before_it_syncs),
        (Replacing, True, syncs_no_new_name),
        (Replacing, False, writes_in_place),
    ],
)
async def test_a_crash_finds_each_broken_variant(
    case: Case, power: bool, broken: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    broken(monkeypatch)
    run = case(power)
    with pytest.raises(NotOutlived):
        await try_all(run.run, run.check, power=power)
