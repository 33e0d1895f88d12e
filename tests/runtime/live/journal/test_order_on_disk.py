"""Files that are made aside: on the disk before they get their name, and the name before it counts.

A death never shows the difference, a loss of power does.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from anabranch.runtime.live.agent.run_journal import EndedEarly, Passed, RunJournal
from anabranch.runtime.live.journal.journal import Journal, Record
from anabranch.runtime.live.journal.journal import _records as read_segment
from anabranch.runtime.ports.disk import using
from anabranch.runtime.storage.extent import extent_path
from anabranch.runtime.storage.replaced import replace_file
from anabranch.runtime.world.disk import MemoryDisk
from tests.runtime.recorded_disk import RecordedDisk
from tests.runtime.sinks.test_parquet import opened

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names of open files")


async def test_a_file_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = opened(tmp_path)
    data, _ = writer.stage([{"n": 1}])
    disk = RecordedDisk(monkeypatch)
    await writer.put(1, data)
    monkeypatch.undo()
    (path,) = (tmp_path / "rows").glob("*.parquet")
    draft = f".{path.stem}.draft"
    assert disk.asked == [("write", draft), ("sync", draft), ("name", path.name), ("sync", "rows")]


def test_what_a_run_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RecordedDisk(monkeypatch)
    replace_file(tmp_path / "run.json", b"{}")
    aside = "run.json.new"
    assert disk.asked == [
        ("write", aside),
        ("sync", aside),
        ("name", "run.json"),
        ("sync", tmp_path.name),
    ]


def test_a_journal_of_the_agent_that_is_said_in_fewer_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is noted of its length beside it comes last: until then the old one counts."""
    path = tmp_path / "agent"
    journal = RunJournal(path, power=True)
    disk = RecordedDisk(monkeypatch)
    journal.replace([Passed(seconds=1.0)])
    monkeypatch.undo()
    journal.close()
    assert disk.asked[:4] == [
        ("write", "agent.new"),
        ("sync", "agent.new"),
        ("name", "agent"),
        ("sync", tmp_path.name),
    ]
    assert {name for _, name in disk.asked[4:]} <= {extent_path(path).name}


@pytest.mark.parametrize("synced", [True, False])
def test_a_record_of_the_agent_that_others_act_upon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: bool
) -> None:
    path = tmp_path / "agent"
    journal = RunJournal(path, power=True)
    disk = RecordedDisk(monkeypatch)
    journal.append(EndedEarly(operator="lines") if synced else Passed(seconds=1.0))
    monkeypatch.undo()
    journal.close()
    of_journal = [what for what, name in disk.asked if name == "agent"]
    assert of_journal == (["write", "sync"] if synced else ["write"])


@pytest.mark.parametrize("power", [True, False])
def test_the_end_of_an_incarnation_whose_last_record_was_not_synced(power: bool) -> None:
    """The next one builds on that record, so it is on the disk before anything else is written."""
    path, disk = Path("/journals/one.0"), MemoryDisk()
    first = disk.store_of("first")
    with using(first):
        journal = Journal(path, power=power)
        journal.append(Record([("snapshot",)], []))
        asyncio.run(journal.synced())
        journal.append(Record([("part", "counts", 1)], []))
        first.sync_folder(path.parent)
        first.sync_folder(path.parent.parent)
    first.kill()
    with using(disk.store_of("second")):
        Journal(path, power=power)
    disk.lose_power()
    with using(disk.store_of("third")):
        records = [*read_segment(path.with_name("one.0.1"), power)]
    assert len(records) == (2 if power else 1)
