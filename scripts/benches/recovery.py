"""How long it takes from the death of a process until its instance gives results again.

Instances of a stateless operator, of a keyed one and of a sink are killed in turn, under load.
"""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import anabranch as ab
from anabranch.panels import OPERATORS as COLOURS
from anabranch.panels import PictureUnavailable, head, new_figure, prepare
from anabranch.runtime.reporting.report import Event
from benches.figures import percentile
from benches.recovery_load import KEYS, OPERATORS, PER_S, Row, pipeline_of, read_rows
from benches.result import Result, Settings

if TYPE_CHECKING:
    from anabranch.runtime.live.agent.launch import Run

ABOUT = f"an instance is killed under {PER_S:,} tuples/s of {KEYS:,} keys"
RUNS = 20
NAMES = {"work": "stateless operator", "tally": "keyed operator", "out": "sink"}
SETTLE_S = 1.0
RESUMED_S_MAX, ENDED_S_MAX = 20.0, 60.0
LOOK_S = 0.02
PICTURE = Path("recovery.svg")


class Kill(NamedTuple):
    at_s: float
    operator: str
    pid: int


class Recovery(NamedTuple):
    """Milliseconds from the kill; None where it did not come to that."""

    noticed: float | None
    resumed: float | None
    output: float | None


def measure(settings: Settings) -> Result:
    result = Result("recovery", ABOUT)
    path = settings.folder / "rows"
    pipeline = pipeline_of(path, settings.folder / "dead.jsonl")
    run = ab.start(pipeline, scaling=False)
    kills: list[Kill] = []
    try:
        kill_in_turn(run, settings, kills)
        run.end_input()
        report = run.wait(ENDED_S_MAX)
    except ab.RunFailed as failed:
        result.faults.append(f"the run failed: {failed}")
        report = failed.report
    except TimeoutError as late:
        result.faults.append(str(late))
        report = run.stop()
    if not report.ok:
        words = report.ledger.faults[:2] or report.failure or report.ended
        result.faults.append(f"the ledger does not balance: {words}")
    found = recoveries(kills, report.events, list(read_rows(path)))
    for operator, many in found.items():
        describe(NAMES[operator], many, result)
    try:
        draw(found, PICTURE)
        result.notes.append(f"drawn in {PICTURE.resolve()}")
    except PictureUnavailable as error:
        result.notes.append(f"no picture: {error}")
    return result


def kill_in_turn(run: Run, settings: Settings, kills: list[Kill]) -> None:
    """Raises `RunFailed` or `TimeoutError` if the run does not stand it."""
    time.sleep(SETTLE_S)
    for number in range(settings.runs_or(RUNS)):
        for operator in OPERATORS:
            pid = new_process(run, operator, [kill.pid for kill in kills])
            os.kill(pid, signal.SIGKILL)
            kills.append(Kill(time.monotonic(), operator, pid))
            time.sleep(settings.seconds_or(SETTLE_S))
        settings.say(f"recovery: round {number + 1}")
    for operator in OPERATORS:
        new_process(run, operator, [kill.pid for kill in kills])


def new_process(run: Run, operator: str, killed: Sequence[int]) -> int:
    """The process of the operator's instance that was not killed.

    Raises `TimeoutError` if none comes, `RunFailed` if the run has ended.
    """
    deadline = time.monotonic() + RESUMED_S_MAX
    while time.monotonic() < deadline:
        snapshot = run.snapshot()
        if snapshot.phase == "ended":
            run.wait()
        for member in snapshot.operator(operator).members:
            if member.pid and member.pid not in killed:
                return member.pid
        time.sleep(LOOK_S)
    raise TimeoutError(f"{operator} was not resumed within {RESUMED_S_MAX:g} s")


def recoveries(
    kills: Sequence[Kill], events: Iterable[Event], rows: Sequence[Row]
) -> dict[str, list[Recovery]]:
    """By operator, in the order of the kills."""
    began_s = rows[0].began_s if rows else 0.0
    times: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        times[event.operator, event.kind].append(began_s + event.t)
    found: defaultdict[str, list[Recovery]] = defaultdict(list)
    killed = {kill.pid for kill in kills}
    for kill in kills:
        output = (
            row.at_s
            for row in rows
            if row.at_s > kill.at_s and _is_new(getattr(row, kill.operator), kill, kills, killed)
        )
        found[kill.operator].append(
            Recovery(
                _ms(kill, times[kill.operator, "died"]),
                _ms(kill, times[kill.operator, "resumed"]),
                _ms(kill, output),
            )
        )
    return dict(found)


def _is_new(pid: int, kill: Kill, kills: Sequence[Kill], killed: set[int]) -> bool:
    """Whether a process is a later one of the instance: not killed, or killed after this one."""
    return pid not in killed or any(k.pid == pid and k.at_s > kill.at_s for k in kills)


def _ms(kill: Kill, times: Iterable[float]) -> float | None:
    at_s = next((t for t in times if t > kill.at_s), None)
    return None if at_s is None else 1000 * (at_s - kill.at_s)


def describe(name: str, many: Sequence[Recovery], result: Result) -> None:
    outputs = [one.output for one in many if one.output is not None]
    if len(outputs) < len(many):
        lost = len(many) - len(outputs)
        result.faults.append(f"{name}: {lost} of {len(many)} gave no results any more")
    for what in ("noticed", "resumed"):
        values = [getattr(one, what) for one in many]
        result.add(f"{name}: death {what}", "ms", [v for v in values if v is not None])
    result.add(f"{name}: first results again", "ms", outputs)
    for share in (0.5, 0.9, 0.99):
        if outputs:
            value = percentile(outputs, share)
            result.add(f"{name}: first results again, p{100 * share:.0f}", "ms", [value])


def draw(found: dict[str, list[Recovery]], path: Path) -> None:
    """Raises `PictureUnavailable` without matplotlib."""
    figure = new_figure(7, 4, "From the death of a process to the first results of the next")
    axes = figure.subplots()
    longest = 1.0
    for (operator, many), colour in zip(found.items(), COLOURS, strict=False):
        outputs = sorted(one.output for one in many if one.output is not None)
        shares = [100 * (n + 1) / len(outputs) for n in range(len(outputs))]
        axes.step([0, *outputs], [0, *shares], where="post", color=colour, label=NAMES[operator])
        longest = max(longest, *outputs)
    prepare(axes, 1.05 * longest)
    axes.set_ylim(0, 105)
    head(axes, "deaths that were over by then", "%")
    axes.legend(frameon=False, loc="lower right")
    axes.set_xlabel("milliseconds since the death")
    figure.savefig(path)
