"""What may happen in a run, and why a process may end: enumerations on the wire and in reports.

Their values are what reports have. Text beside them is for people; nothing is decided by it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class EventKind(StrEnum):
    """What happened. A kind that this version does not have is a `NOTE`."""

    STARTED = "started"
    FIRST_BATCH = "first_batch"
    JOINED = "joined"
    LEAVING = "leaving"
    LEFT = "left"
    FINISHED = "finished"
    ENDED = "ended"
    MOVED = "moved"
    HANDED_OVER = "handed_over"
    KEEPER = "keeper"
    NO_KEEPER = "no_keeper"
    DECIDED = "decided"
    WOULD_DO = "would_do"
    """A policy decided, in a run in which decisions are only reported."""
    POLICY_FAILED = "policy_failed"
    """A policy raised an exception; its instance does not decide any more."""
    VETO = "veto"
    REFUSED = "refused"
    """No newcomer can be started; without a detail: no neighbour takes over what was offered."""
    LIMITED = "limited"
    """Fewer instances are started than were asked for: more would exceed `max_instances`."""
    SKIPPED = "skipped"
    """No instance could do what the script orders."""
    SPAWN_FAILED = "spawn_failed"
    START_FAILED = "start_failed"
    DISCARDED = "discarded"
    DIED = "died"
    DIES_OFTEN = "dies_often"
    RESUMED = "resumed"
    RUN_RESUMED = "run_resumed"
    """All processes were gone, that of the agent too; the run goes on."""
    BURIED = "buried"
    """A tuple that ends its process is left out."""
    MAY_REPEAT = "may_repeat"
    BUSY = "busy"
    BUSY_LONG = "busy_long"
    """It has sent nothing for as long as would count as hanging, but its process works."""
    HANGS = "hangs"
    ENDED_BY_FORCE = "ended by force"
    WAITS = "waits"
    GOES_ON = "goes on"
    INPUT_GONE = "input_gone"
    HOST_GIVEN_UP = "host_given_up"
    HOST_BACK = "host_back"
    NOTE = "note"
    """Something that a source or sink of the user's has reported; `label` is its name."""

    @classmethod
    def _missing_(cls, value: object) -> EventKind:
        return cls.NOTE


class Cause(StrEnum):
    """Why a process ended that should not have."""

    SIGNAL = "signal"
    EXIT_CODE = "exit_code"
    OUT_OF_MEMORY = "out_of_memory"
    HANG = "hang"
    """It neither sent nor did anything for `hang_s`, and was ended."""
    STOPPED = "stopped"
    """It was stopped from outside (SIGSTOP), and was ended."""
    SYSTEM = "system"
    """The system refused what it needs: a thread, an open file, a disk that keeps what it takes."""
    STATE = "state"
    """What it keeps of a key cannot be written down."""
    PARENT = "parent"
    """The process that it was forked from ended."""
    LINK = "link"
    """It broke the rules of its link to the agent."""
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> Cause:
        return cls.UNKNOWN


TUPLES_FAULT = frozenset({Cause.SIGNAL, Cause.EXIT_CODE, Cause.OUT_OF_MEMORY, Cause.HANG})
"""Deaths for which the tuple that was being processed can be the reason."""


class Ending(msgspec.Struct, frozen=True):
    """How a process ended. `how`: in words, as `was killed by SIGKILL`."""

    cause: Cause
    how: str
