"""Marks of instances that have ended: a cleaner that removes them makes no neighbour wait."""

from __future__ import annotations

from pathlib import Path

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.live.channel.ended import EndedMarks, has_mark, leave_mark


def at(number: int) -> InstanceId:
    return InstanceId(OperatorName("work"), number)


def test_marks_that_were_removed_are_there_again(tmp_path: Path) -> None:
    marks = EndedMarks(tmp_path)
    leave_mark(tmp_path, at(0))
    marks.renew("work", [0])
    assert not marks.are_to_renew("work")
    (tmp_path / "work").unlink()
    assert marks.are_to_renew("work")
    marks.renew("work", [0, 2])
    assert [has_mark(tmp_path, at(n)) for n in range(3)] == [True, False, True]


def test_an_instance_that_ends_behind_the_cleaner_hides_no_mark_that_is_gone(
    tmp_path: Path,
) -> None:
    marks = EndedMarks(tmp_path)
    marks.renew("work", [0])
    (tmp_path / "work").rename(tmp_path / "taken")
    leave_mark(tmp_path, at(1))
    assert marks.are_to_renew("work")
    marks.renew("work", [0, 1])
    assert [has_mark(tmp_path, at(n)) for n in range(2)] == [True, True]
