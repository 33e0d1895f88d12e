"""A tuple that came too late to count, for those who want to see it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Late(NamedTuple):
    """`by_s`: how far event time had gone beyond the end of the last window of the tuple."""

    key: Any
    tuple: Any
    by_s: float
