"""Time stamps in texts, as the seconds by which event time is counted."""

from __future__ import annotations

from datetime import UTC, datetime


def seconds_of(stamp: str) -> float:
    """Seconds since 1970 of a stamp in ISO 8601; UTC unless it names a zone."""
    moment = datetime.fromisoformat(stamp)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
