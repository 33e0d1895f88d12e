"""Every bound of the runtime in one place. Names end with the unit (P27: nothing is unbounded)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes and times that a run keeps to. The defaults suit one host or a local network."""

    frame_bytes_max: int = 32 * 2**20
    """A longer frame closes its channel: a peer cannot make us allocate more."""
    tuple_bytes_max: int = 16 * 2**20
    """A longer encoded tuple goes to the dead letters."""
    line_bytes_max: int = 8 * 2**20
    """A longer line of a text source goes to the dead letters."""
    batch_tuples_max: int = 2048
    batch_bytes_max: int = 256 * 2**10
    state_chunk_bytes: int = 64 * 2**10
    """State of key groups goes to another instance in pieces of at most so many bytes. To make one
    takes about half a millisecond, in which tuples wait. Larger pieces hardly shorten a move."""
    credit_tuples: int = 8192
    """Tuples that may be under way to one instance on one channel, at most."""
    credit_tuples_min: int = 16
    """At least, however slow that instance is."""
    credit_bytes: int = 4 * 2**20
    outbox_tuples_max: int = 2048
    """Results held for lack of credit before an instance stops its own intake, at most."""
    outbox_tuples_min: int = 64
    """At least, however slow its successors are."""
    linger_s: float = 0.005
    """How long a busy instance may hold a batch that is not full."""
    watermark_period_s: float = 0.02
    """How long an instance that has stated a watermark waits before it states another one."""
    slice_s: float = 0.005
    """How long an operator may work before the instance handles messages."""
    start_deadline_s: float = 30.0
    """How long a newcomer may take to be ready; then the join goes on without it (P39)."""
    reconnect_first_s: float = 0.02
    reconnect_max_s: float = 2.0
    status_period_s: float = 0.25
    trace_rows_max: int = 256


DEFAULT_LIMITS = Limits()
