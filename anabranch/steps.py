"""Steps of a fused operator: `stream.fuse("prepare", ab.map(clean), ab.filter(long))`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.runtime.plan.operator import Step, step


def map(fn: Callable[..., Any], name: str | None = None, batch: bool = False) -> Step:
    """One result per tuple; `name` (default: the function's) is in dead letters."""
    return step("map", fn, name, batch)


def flat_map(fn: Callable[..., Any], name: str | None = None, batch: bool = False) -> Step:
    """Any number of results per tuple; with `batch=True` `fn` gets and returns a list."""
    return step("flat_map", fn, name, batch)


def filter(fn: Callable[..., Any], name: str | None = None, batch: bool = False) -> Step:
    """Keep tuples for which `fn` is true; with `batch=True` it returns the list kept."""
    return step("filter", fn, name, batch)
