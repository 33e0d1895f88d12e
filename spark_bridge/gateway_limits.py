"""Bounds of a gateway, units last in the name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    connections_max: int = 512
    hello_timeout_s: float = 10.0
    """A client that has not proved its membership by then is disconnected."""
    spool_file_bytes: int = 4 * 2**20
    """A staged part is cut into files of about this size: what one source instance reads."""
    batch_bytes_max: int = 16 * 2**30
    """Of one Spark batch on disk; a larger one is refused with advice."""
    unread_bytes_max: int = 2**30
    """Committed but not read by source instances; beyond, Spark's tasks wait."""
    unread_files_max: int = 4096
    stage_ttl_s: float = 3600.0
    """A staged part that was neither committed nor aborted for so long is dropped."""
    sweep_period_s: float = 5.0
    journal_bytes_max: int = 8 * 2**20
    """A longer journal is written anew with only what still counts."""
    wait_period_s: float = 2.0
    """How often a waiting Spark task is told that the gateway lives."""
    poll_s: float = 0.01
    """How often the logs of results are looked at while a reader waits for rows."""
    block_rows: int = 10_000
    block_bytes: int = 2 * 2**20
    """Size of the record batches of results: about so many rows or encoded bytes."""
