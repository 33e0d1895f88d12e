"""What the agent may neglect: boards, its journal, the bounds of operators, what it must end."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from anabranch.runtime.live.agent import pins, roster, run_journal, state_dir
from anabranch.runtime.live.agent.attendants import Attendants
from anabranch.runtime.live.agent.drains import Drains
from anabranch.runtime.live.agent.journal_writer import RunJournalWriter
from anabranch.runtime.live.agent.roster import Member, Roster
from anabranch.runtime.live.agent.run_journal import Claimed, Pinned, RunRecord
from anabranch.runtime.live.agent.watchdog import Watchdog
from anabranch.runtime.live.link.messages import LeaveAnswer
from anabranch.runtime.plan.ends import Split
from anabranch.runtime.ports.disk import store
from anabranch.runtime.sources.board import Board
from anabranch.runtime.world.lapses import Lapse
from anabranch.runtime.world.lapses_of_channels import does_nothing

Method = Callable[..., Any]


# -- boards --------------------------------------------------------------------------------------


def _to_two(claim: Method) -> Method:
    def twice(board: Board[Any], holder: Any) -> Split | None:
        held = holder in board.held
        split: Split | None = claim(board, holder)
        if split is not None and not held and board.claims == 1:
            board.returned.append(split)
        return split

    return twice


def _without_rest(release: Method) -> Method:
    def forgetting(board: Board[Any], holder: Any, _rest: Split | None, *args: Any) -> Any:
        return release(board, holder, None, *args)

    return forgetting


# -- its journal -----------------------------------------------------------------------------------


def _no_claims(log: Method) -> Method:
    def some(writer: RunJournalWriter, record: RunRecord) -> None:
        if not isinstance(record, Claimed):
            log(writer, record)

    return some


def _no_pins(log: Method) -> Method:
    def some(writer: RunJournalWriter, record: RunRecord) -> None:
        if not isinstance(record, Pinned):
            log(writer, record)

    return some


def _any_may_leave(_right: Method) -> Method:
    return lambda _seen: False


def _none(_right: Any) -> tuple[()]:
    return ()


def _not_replaced(_replace_file: Method) -> Method:
    def in_place(path: Path, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        with closing(store().open(path, flags)) as file:
            file.append(data)

    return in_place


# -- among the instances ---------------------------------------------------------------------------


def _whoever_leaves(_right: Method) -> Method:
    def granted(members: Roster, member: Member) -> LeaveAnswer:
        members.let_go(member, True)
        return LeaveAnswer(granted=True, reason="")

    return granted


def _as_many_as_asked(_right: Method) -> Method:
    return lambda n, *_: (n, "")


def _told_once(_right: Method) -> Method:
    async def drain(drains: Drains, host: str) -> None:
        drains.hosts.drained.add(host)
        for member in drains.movable(host):
            drains.tell(member)

    return drain


LAPSES = (
    Lapse("gives a claim twice", "two instances read the first split", Board, "claim", _to_two),
    Lapse(
        "forgets what is left of a claim",
        "what an instance gives back is read by no other",
        Board,
        "release",
        _without_rest,
        "leavers",
    ),
    Lapse(
        "does not write claims down",
        "another agent gives again what is claimed",
        RunJournalWriter,
        "log",
        _no_claims,
        crashes="all",
    ),
    Lapse(
        "does not sync what others act upon",
        "what the agent knew is lost with the power",
        run_journal,
        "SYNCED",
        _none,
        crashes="all",
    ),
    Lapse(
        "writes the file of the run in place",
        "a death or a loss of power leaves half of it",
        state_dir,
        "replace_file",
        _not_replaced,
        crashes="all",
    ),
    Lapse(
        "gives up what waits for room",
        "what the agent cannot write at once it does not write later",
        RunJournalWriter,
        "_postpone",
        does_nothing,
        crashes="all",
    ),
    Lapse("lets all go", "whoever asks may leave", Roster, "may_leave", _whoever_leaves),
    Lapse(
        "drains at once or never",
        "one whose relocation has failed stays on a host that is drained",
        Drains,
        "drain",
        _told_once,
    ),
    Lapse(
        "tells the keeper to leave",
        "an operator does not come to the number that a user has said",
        pins,
        "_is_no_keeper",
        _any_may_leave,
    ),
    Lapse(
        "forgets pins",
        "another agent does not know the numbers that a user has said",
        RunJournalWriter,
        "log",
        _no_pins,
        crashes="all",
    ),
    Lapse("makes too many", "an operator has too many", roster, "places", _as_many_as_asked),
    Lapse(
        "lets processes hang",
        "no process is ended that waits for ever",
        Watchdog,
        "_end",
        does_nothing,
        crashes="all",
    ),
)

SERVICES_NOT_WATCHED = Lapse(
    "services not watched",
    "the agent looks at no service that has fallen silent, such as the gateway to Spark",
    Attendants,
    "present",
    lambda _right: property(lambda attendants: iter(())),
)
"""Shows only where a pipeline has a service."""
