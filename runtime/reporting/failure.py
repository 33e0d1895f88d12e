"""How a run ends badly, as a value and as an exception."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.runtime.values.kinds import Cause

if TYPE_CHECKING:
    from anabranch.runtime.reporting.report import Report


@dataclass(frozen=True, slots=True)
class Failure:
    """`message`: one line for the user; `detail`: what the process wrote last, may be empty.

    `refused`: a run that was to go on has not, since what was kept of it is not as it was left."""

    message: str
    detail: str = ""
    refused: bool = False

    def __str__(self) -> str:
        return f"{self.message}\n{self.detail}" if self.detail else self.message


class PlainError(Exception):
    """Its message has all: what is the matter, where, what to do. A traceback would hide it."""


class LifeOver(Exception):
    """A process cannot go on, and a new one in its place may: it begins with what is recorded."""

    cause = Cause.SYSTEM


class StateSpoilt(LifeOver):
    """What a function has made of a large state cannot be pickled. The next incarnation does the
    commit again, looks at each state after each call, and so finds the tuple."""

    cause = Cause.STATE


class RunFailed(Exception):
    """The run ended before its input did. `report` is what there was until then."""

    def __init__(self, failure: Failure, report: Report) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.report = report
