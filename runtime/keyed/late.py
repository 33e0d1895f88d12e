"""A tuple that came too late to count, where it is wanted as a result."""

from __future__ import annotations

from typing import Any, NamedTuple


class Late(NamedTuple):
    """`by_s`: how far event time had gone beyond the moment until which the tuple would have
    counted: the end of its last window, and what lateness is allowed."""

    key: Any
    tuple: Any
    by_s: float
