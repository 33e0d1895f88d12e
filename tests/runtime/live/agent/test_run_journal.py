"""What the agent has written and is not as it was: what a death leaves is gone on from, and of
everything else it is said what is the matter, rather than begin anew over the results."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from anabranch.runtime.live.agent.recovery import Recorded, rebuild, snapshot
from anabranch.runtime.live.agent.run_journal import (
    EndedEarly,
    Passed,
    Pinned,
    RunJournal,
    RunRecord,
    read_records,
)
from anabranch.runtime.reporting.failure import RunFailed
from anabranch.runtime.storage.extent import ExtentFile, extent_path
from anabranch.runtime.storage.record_log import CannotSync, LogDamaged, framed
from anabranch.runtime.storage.state_folder import StateError
from tests.runtime.agent_runs import finish, start
from tests.runtime.fake_instance import Endless, three_operators

pytestmark = pytest.mark.usefixtures("usual_behaviour")


def unsynced(n: int) -> RunRecord:
    return Passed(seconds=n)


def synced(n: int) -> RunRecord:
    return EndedEarly(operator=f"lines{n}")


def written(path: Path, records: list[RunRecord], *, power: bool = False) -> list[int]:
    """Returns where each record begins, and where the last one ends."""
    journal, ends = RunJournal(path, power=power), [0]
    for record in records:
        journal.append(record)
        ends.append(path.stat().st_size)
    journal.close()
    return ends


def damage(path: Path, at: int, with_bytes: bytes = b"\xff") -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(with_bytes)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("place", range(12))
def test_a_damaged_record_before_others_that_were_acted_upon_is_told(
    tmp_path: Path, place: int, power: bool
) -> None:
    path = tmp_path / "agent.journal"
    ends = written(path, [synced(n) for n in range(4)])
    damage(path, ends[1] + place)  # in its length, its check, or what it says
    with pytest.raises(LogDamaged, match=rf"^agent\.journal is damaged at byte {ends[1]}$"):
        read_records(path, power=power)


def test_a_loss_of_power_may_leave_anything_behind_the_last_record_that_was_synced(
    tmp_path: Path,
) -> None:
    path = tmp_path / "agent.journal"
    ends = written(path, [synced(0), unsynced(1), unsynced(2)], power=True)
    with path.open("ab") as file:  # written, and not yet synced
        file.write(framed(msgspec.msgpack.encode(synced(3))))
    damage(path, ends[1])
    assert read_records(path, power=True) == [synced(0)]


@pytest.mark.parametrize("lost", range(1, 5))
def test_a_journal_without_its_last_records_is_refused(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "agent.journal"
    ends = written(path, [synced(n) for n in range(4)])
    os.truncate(path, ends[-1 - lost])
    told = "has lost .*, was" if lost < 4 else "is gone or empty: it had"
    with pytest.raises(LogDamaged, match=rf"^agent\.journal {told} {ends[-1]:,} bytes"):
        read_records(path)


def test_a_journal_of_an_earlier_edition_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "agent.journal"
    journal = RunJournal(path)
    journal.append(synced(0))
    older = path.read_bytes()
    journal.replace([synced(1)])
    assert read_records(path) == [synced(1)]
    journal.append(synced(2))
    journal.close()
    assert read_records(path) == [synced(1), synced(2)]
    path.write_bytes(older)
    with pytest.raises(LogDamaged, match=r"^agent\.journal has lost its last records"):
        read_records(path)


def test_a_journal_without_its_extent_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "agent.journal"
    written(path, [synced(0)])
    extent_path(path).unlink()
    with pytest.raises(LogDamaged, match=r"^agent\.journal: cannot read its extent"):
        read_records(path)


def test_a_death_while_a_journal_is_made_leaves_none_without_its_extent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agent.journal"

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ExtentFile, "__init__", dies)
        with pytest.raises(KeyboardInterrupt):
            RunJournal(path)
    assert read_records(path) == []


@pytest.mark.parametrize("zeros", [4, 8, 100])
def test_zeros_at_the_end_are_no_records(tmp_path: Path, zeros: int) -> None:
    path = tmp_path / "agent.journal"
    (_, end) = written(path, [synced(0)])
    os.truncate(path, end + zeros)
    assert read_records(path, power=True) == [synced(0)]
    RunJournal(path).close()
    assert path.stat().st_size == end


@pytest.mark.parametrize("loss", ["damaged", "emptied", "removed"])
def test_a_run_whose_agent_cannot_know_how_far_it_was_is_not_begun_anew(
    tmp_path: Path, loss: str
) -> None:
    start(three_operators(Endless()), state=tmp_path).stop()
    (tmp_path / "journals" / "0.0.journal.1").touch()  # as instances other than these make them
    path = tmp_path / "agent.journal"
    kept = path.read_bytes()
    match loss:
        case "damaged":
            damage(path, 10)
        case "emptied":
            os.truncate(path, 0)
        case _:
            path.unlink()
    for wish in ("resume", "resume_or_begin"):
        with pytest.raises(
            StateError, match=r"agent\.journal (is|has) .*; put it back .* --fresh$"
        ):
            start(three_operators(Endless()), state=tmp_path, **{wish: True})
    path.write_bytes(kept)
    run = start(three_operators(Endless()), state=tmp_path, resume=True)
    run.end_input()
    assert finish(run).ok


def test_what_users_have_said_of_operators_is_in_the_journal_also_when_it_is_shortened() -> None:
    nothing: Any = SimpleNamespace(last_s=0.0, living=list)
    recorded = Recorded(nothing, nothing, nothing, {}, {})
    said = [("a", 3), ("b", 2), ("a", 4), ("b", None), ("c", None)]
    rebuild(recorded, [Pinned(operator=name, instances=n) for name, n in said])
    assert recorded.pinned == {"a": 4}
    empty: Any = SimpleNamespace(
        last_s=0.0, finals=SimpleNamespace(summed={}, latest=[]), events=[], resumed=0,
        events_dropped=0, period_s=1.0, ticks=[], living=list, next_number={}, snapshots=list,
    )  # fmt: skip
    written = [*snapshot(Recorded(empty, empty, empty, {}, recorded.pinned), 0.0)]
    assert Pinned(operator="a", instances=4) in written


def test_a_run_that_finds_a_bad_disk_when_it_is_resumed_does_not_start_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(three_operators(Endless()), state=tmp_path)
    run.stop()

    def unknown(*_: object) -> None:
        raise CannotSync("what is on the disk now is unknown: Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(RunJournal, "replace", unknown)
        with pytest.raises(RunFailed, match=r"did not start: cannot begin in .*Input/output"):
            start(three_operators(Endless()), state=tmp_path, resume=True)
    run = start(three_operators(Endless()), state=tmp_path, resume=True)
    run.end_input()
    assert finish(run).ok
