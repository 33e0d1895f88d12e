"""How `anabranch verify --coverage` shows what a search has reached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anabranch.runtime.explorer.coverage import EVERY, Beside, Cell, Coverage, Open
from anabranch.runtime.explorer.impossible import possible_cells, why_never

LEGEND = """\
What was met in which state, with which own operation under way; and which other operations were
open at the same moment: h here, at the instance itself, n near it, at a neighbour or a sibling,
b both, . never."""


def told(coverage: Coverage, small: Coverage | None = None) -> Iterator[str]:
    """Lines for a terminal. `small`: what the small scopes go through, if that is something else
    than `coverage`, which then has what goes beyond."""
    yield f"\n{LEGEND}\n"
    yield _row("what", "in", [_name(one) for one in EVERY])
    for (what, where), beside in sorted(coverage.cells.items()):
        yield _row(what, where, [_mark(beside, one) for one in EVERY])
    for reason, cells in grouped(never(coverage)):
        yield f"\n{reason or 'Could be met, and is not in these scopes'}:"
        yield from (f"    {what:18} {', '.join(where)}" for what, where in cells)
    if small is not None:
        yield "\nReached by no small scope:\n"
        for (what, where), side, one in sorted(coverage.pairs - small.pairs):
            yield f"{what:18} {where:36} {side} {_name(one)}"
    yield ""
    yield total(coverage)


def total(coverage: Coverage) -> str:
    gaps = sum(not why for _, _, why in never(coverage))
    return (
        f"{len(coverage.cells)} cells met, {len(coverage.pairs)} pairs with an operation that was "
        f"open beside it, {gaps} cells not met that could be"
    )


def plain_values(coverage: Coverage) -> dict[str, Any]:
    """The same for a program."""
    return {
        "cells": [
            {
                "what": what,
                "in": where,
                "here": [_name(one) for one in EVERY if beside.here & one],
                "near": [_name(one) for one in EVERY if beside.near & one],
            }
            for (what, where), beside in sorted(coverage.cells.items())
        ],
        "never": [
            {"what": what, "in": where, "why": why or None} for what, where, why in never(coverage)
        ],
    }


def never(coverage: Coverage) -> list[tuple[str, str, str]]:
    """Cells with a rule in the table that no scope has reached, with the reason, if there is
    one: without, it is a gap."""
    missing: set[Cell] = set(possible_cells()) - coverage.cells.keys()
    return [(what, where, why_never(what, where)) for what, where in sorted(missing)]


def grouped(
    missing: list[tuple[str, str, str]],
) -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    """Unreached cells by the reason, and by message or event; those without a reason first."""
    by_reason: dict[str, dict[str, list[str]]] = {}
    for what, where, why in missing:
        reason = f"Never met: {why}" if why else ""
        by_reason.setdefault(reason, {}).setdefault(what, []).append(where)
    for reason in sorted(by_reason):
        yield reason, list(by_reason[reason].items())


def _row(what: str, where: str, columns: list[str]) -> str:
    return f"{what:18} {where:36} {' '.join(f'{c:9}' for c in columns)}".rstrip()


def _name(one: Open) -> str:
    return str(one.name).lower().replace("_", "-")


def _mark(beside: Beside, one: Open) -> str:
    return ".hnb"[bool(beside.here & one) + 2 * bool(beside.near & one)]
