"""Cells of the table that no search can take, and why; what else is not taken is a gap."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.protocol.table import TABLE, Verdict
from anabranch.runtime.explorer.coverage import CONDITIONS, Cell

ASKED_IN = {
    "JoinAck": "Joining",
    "KeeperAck": "Migrating",
    "OfferResponse": "Offering",
    "AdoptResponse": "Seeking",
    "GroupsFrozen": "Freezing",
    "GroupsTransferred": "Transferring",
    "ChildrenReady": "Spawning",
    "SpawnFailed": "Spawning",
}
"""Answers, and the operation that asks for them: anywhere else they are refused (I4)."""
ASKED_BEFORE = {("KeeperAck", "Transferring to relocate")}
"""START asks for it, and the child answers while the state is on its way (V3)."""


def possible_cells() -> Iterator[Cell]:
    """Every message or event with every condition for which the table has more than a refusal."""
    for (state, subject), cell in TABLE.items():
        if cell is not Verdict.ILLEGAL:
            for where in CONDITIONS:
                if where.partition("+")[0] == state.__name__:
                    yield subject.__name__, where


def why_never(what: str, where: str) -> str:
    """Why a cell is never taken; empty for one that could be."""
    state, _, own = where.partition("+")
    asks = ASKED_IN.get(what)
    if asks and not own.startswith(asks) and (what, own) not in ASKED_BEFORE:
        return f"nothing but {asks} asks for it: it would be refused (I4)"
    for subjects, conditions, reason in RULED_OUT:
        if what in subjects and (where in conditions or state in conditions):
            return reason
    return ""


TO_LEAVE = tuple(c for c in CONDITIONS if c.endswith((" to leave", " to relocate")))
OWN = tuple(c for c in CONDITIONS if "+" in c)
OF_KEYED = tuple(
    c for c in OWN if c.endswith((" new owner", " to leave", " with groups")) or "Freezing" in c
)

RULED_OUT: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (
        ("Drained",),
        OWN,
        "the end of the stream waits for an operation that is under way (E1)",
    ),
    (
        ("StateMoved",),
        TO_LEAVE,
        "one that wants to go promises nothing, one that has promised does not want to go (M1, M3)",
    ),
    (
        ("BecomeKeeper",),
        ("Active+Spawning keeper", "Active+Joining keeper"),
        "of the keepers of an operator one is not about to drop the role; what offers it has it",
    ),
    (
        ("BatchReady",),
        (
            *(f"Active+{own} to leave" for own in ("Freezing", "Joining", "Transferring")),
            *(f"Active+{own} to relocate" for own in ("Freezing", "Transferring")),
        ),
        "all its key groups are at rest",
    ),
    (
        ("BatchReceived",),
        ("Active+Transferring to leave", "Active+Transferring to relocate"),
        "all its senders have answered behind the last tuple of its groups (M6)",
    ),
    (
        ("MoveDecided",),
        ("Idle", "ClosingIn", "Draining", "ClosingOut", "Finished", "Gone"),
        "it owns no key group that could be given away",
    ),
    (
        ("MoveDecided",),
        (
            *(f"Active+Transferring to {aim}" for aim in ("leave", "relocate")),
            "Active+Migrating to relocate",
        ),
        "it has given away all its key groups",
    ),
    (
        ("InputEnded",),
        ("ClosingIn", "Draining", "ClosingOut", "Finished", "Gone"),
        "nothing is done then: a source of a search reads no more after StopIntake",
    ),
    (
        ("InputEnded",),
        (*OF_KEYED, "Active+Transferring children", "Active+Transferring to relocate"),
        "a source has no key groups",
    ),
)
"""Messages or events, the conditions in which they cannot occur, and the reason."""
