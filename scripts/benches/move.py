"""What a move of key groups costs, while tuples of all keys come at a steady rate.

State of several sizes goes to a newcomer, which gets half of it; and from one of two instances at
work to the other. Of keys that stay where they are: p99 of the latency, from the decision until
the last tuple that waited is processed, against before. Of keys that move: the longest pause,
which is the greatest latency of their tuples.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

import anabranch as ab
from anabranch.panels import FAINT, IN, OUT, PictureUnavailable, head, new_figure, prepare
from anabranch.runtime.policies.script import parse_script
from benches.figures import percentile, ratios, spread
from benches.move_load import GROUPS, KEY_BYTES, PER_S, Filling, Rows, pipeline_of, read_rows
from benches.result import Result, Settings

ABOUT = f"state of keys of {KEY_BYTES:,} bytes goes elsewhere, under {PER_S:,.0f} tuples/s"
SIZES_MB = (1, 5, 20, 50, 100)
BETWEEN_MB = (50,)
JUDGED_MB = 50
RUNS, SECONDS = 3, 3.0
SETTLE_S = 1.0
PICTURE = Path("move.svg")


class Move(NamedTuple):
    """`share`: of the key groups, that moved."""

    share: float
    before_ms: float
    meanwhile_ms: float
    pause_ms: float
    took_ms: float


Moves = dict[tuple[str, int], list[Move]]


def measure(settings: Settings) -> Result:
    result = Result("move", ABOUT)
    moves: Moves = defaultdict(list)
    for number in range(settings.runs_or(RUNS)):
        for what, sizes in (("to a newcomer", SIZES_MB), ("between two", BETWEEN_MB)):
            for size_mb in sizes:
                one = run(settings, what, size_mb, result)
                if one is not None:
                    moves[what, size_mb].append(one)
                    settings.say(f"move: run {number + 1}, {size_mb} MB {what}: {told(one)}")
    for (what, size_mb), many in moves.items():
        describe(f"{size_mb} MB {what}", many, result, judged=size_mb == JUDGED_MB)
    try:
        draw(moves, PICTURE)
        result.notes.append(f"drawn in {PICTURE.resolve()}")
    except PictureUnavailable as error:
        result.notes.append(f"no picture: {error}")
    return result


def run(settings: Settings, what: str, size_mb: int, result: Result) -> Move | None:
    """One move of about `size_mb`, half of what the giver has."""
    instances = 1 if what == "to a newcomer" else 2
    keys = 2 * instances * size_mb * 1_000_000 // KEY_BYTES
    seconds = settings.seconds_or(SECONDS)
    load = Filling(keys, SETTLE_S, 2 * seconds)
    action = "duplicate" if instances == 1 else "move"
    script = parse_script(f"{load.filled_s + seconds} hold {action}")
    table = settings.folder / "rows.npy"
    pipeline = pipeline_of(load, table, instances, settings.folder / "dead.jsonl")
    report = ab.start(pipeline, script=script, scaling=False, warm=2).wait()
    name = f"{size_mb} MB {what}"
    if not report.ok:
        result.faults.append(f"{name}: {report.ledger.faults[:2] or report.ended}")
        return None
    decided = [e.t for e in report.events if e.kind == "decided" and e.operator == "hold"]
    if not decided:
        result.faults.append(f"{name}: nothing was decided, so this run says nothing")
        return None
    found = judged(read_rows(table), load.filled_s, decided[0])
    if found is None:
        result.faults.append(f"{name}: nothing has moved, so this run says nothing")
    return found


def judged(rows: Rows, steady_at_s: float, decided_s: float) -> Move | None:
    """None if no group has moved."""
    owners_before = dict(zip(rows.group, rows.pid, strict=True))
    at_last = dict(zip(rows.group, rows.pid, strict=True))
    for group, pid in zip(rows.group[::-1], rows.pid[::-1], strict=True):
        owners_before[group] = pid
    gone = {group for group, pid in at_last.items() if owners_before[group] != pid}
    if not gone:
        return None
    latency_ms = 1000 * (rows.done - rows.born)
    moved = np.isin(rows.group, list(gone))
    arrived = moved & (rows.pid == [at_last[group] for group in rows.group])
    first_s = rows.done[arrived].min()
    over_s = rows.done[arrived & (rows.born <= first_s)].max()
    before = ~moved & (rows.born >= steady_at_s) & (rows.done < decided_s)
    meanwhile = ~moved & (rows.done >= decided_s) & (rows.born <= over_s)
    return Move(
        len(gone) / GROUPS,
        percentile(latency_ms[before].tolist(), 0.99),
        percentile(latency_ms[meanwhile].tolist(), 0.99),
        float(latency_ms[moved & (rows.done >= decided_s)].max()),
        float(1000 * (over_s - decided_s)),
    )


def told(move: Move) -> str:
    return (
        f"p99 {move.before_ms:.1f}, then {move.meanwhile_ms:.1f} ms; pause {move.pause_ms:.0f} ms"
    )


def describe(name: str, many: list[Move], result: Result, *, judged: bool) -> None:
    before, meanwhile = [m.before_ms for m in many], [m.meanwhile_ms for m in many]
    pauses = [m.pause_ms for m in many]
    result.add(f"{name}: p99 of keys that stay, before", "ms", before)
    result.add(f"{name}: p99 of keys that stay, meanwhile", "ms", meanwhile)
    result.add(f"{name}: longest pause of keys that move", "ms", pauses)
    result.add(f"{name}: from the decision to the end", "ms", [m.took_ms for m in many])
    if judged:
        result.at_least(f"{name}: p99 before/meanwhile", ratios(before, meanwhile), 0.5)
        result.at_least(f"{name}: a second/longest pause", [1000 / p for p in pauses], 1.0)


def draw(moves: Moves, path: Path) -> None:
    """Raises `PictureUnavailable` without matplotlib."""
    figure = new_figure(7, 5.5, "State that moves to a newcomer")
    pause, latency = figure.subplots(2, 1, sharex=True)
    own = {size: many for (what, size), many in sorted(moves.items()) if what == "to a newcomer"}
    for axes, title in ((pause, "longest pause of keys that move"), (latency, "p99 of the others")):
        prepare(axes, 1.05 * max(own, default=1))
        head(axes, title, "ms")
    sizes = list(own)
    for axes, colour, name, field in (
        (pause, IN, "pause", "pause_ms"),
        (latency, FAINT, "before", "before_ms"),
        (latency, OUT, "meanwhile", "meanwhile_ms"),
    ):
        spreads = [spread([getattr(m, field) for m in own[size]]) for size in sizes]
        axes.plot(sizes, [s.median for s in spreads], marker="o", color=colour, label=name)
        axes.fill_between(
            sizes, [s.low for s in spreads], [s.high for s in spreads], color=colour, alpha=0.2
        )
    pause.axhline(1000, linestyle="--", linewidth=1, color=FAINT)
    for axes in (pause, latency):
        axes.set_ylim(bottom=0)
    latency.legend(frameon=False)
    latency.set_xlabel("state moved (MB)")
    figure.savefig(path)
