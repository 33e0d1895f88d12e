"""What measuring costs: processor time of a chain with all measures, and with those alone that the
flow of tuples needs (rates and capacity, by which windows of credit follow the speed).

Runs with and without take turns. Others on the machine only ever add to processor time, so the
least of each kind is compared. Where these others are many, that is too coarse for a hundredth: the
calls are timed by themselves, too, as a share of what a full batch and a second take.
"""

from __future__ import annotations

import time
import timeit
from typing import Any

from anabranch.protocol.limits import Limits
from anabranch.protocol.replay_order import ReplayOrder
from anabranch.runtime.live.channel.totals import Closed
from anabranch.runtime.live.instance.intake import Intake, Queued
from anabranch.runtime.measuring.cpu import HostUse
from anabranch.runtime.measuring.slot_meter import SlotMeter
from benches.chain import check
from benches.chain_functions import expected_results, write_lines
from benches.contestants import compete
from benches.figures import in_turns
from benches.result import Result, Settings

ABOUT = "the chain's lines through three operators, which do next to nothing"
RUNS = 8
WITH, WITHOUT = "measured", "unmeasured"
MOST = 1.01
HOPS = 5
"""Instances that a line passes: what a line costs is shared by them."""
TICKS_PER_S = 10
NEIGHBOURS = 16
CALLS, REPEATS = 2_000, 25


def measure(settings: Settings) -> Result:
    result = Result("measuring", f"{settings.lines:,} lines: {ABOUT}")
    path = settings.folder / "lines.txt"
    write_lines(path, settings.lines)
    expected = expected_results(path)
    runs: dict[str, list[dict[str, Any]]] = {WITH: [], WITHOUT: []}
    for number in range(settings.runs_or(RUNS)):
        for kind in in_turns((WITH, WITHOUT), number):
            figures = compete("measuring_ours", path, kind, folder=settings.folder)
            runs[kind].append(figures)
            check(kind, figures, expected, result)
            used = 1e6 * figures["cpu_s"] / settings.lines
            settings.say(f"measuring: round {number + 1}, {kind}: {used:.3f} us/line")
    used = {kind: [1e6 * f["cpu_s"] / settings.lines for f in many] for kind, many in runs.items()}
    for kind, took in used.items():
        result.add(f"{kind}: processor time", "us/line", took)
    least = {kind: min(took) for kind, took in used.items()}
    result.at_most("the least of each, measured/unmeasured", [least[WITH] / least[WITHOUT]], MOST)
    add_calls(result, least[WITHOUT])
    return result


def add_calls(result: Result, us_per_line: float) -> None:
    """`us_per_line`: what a line takes without measuring, through all hops."""
    batch_us, tick_us = 1e6 * of_a_batch_s(), 1e6 * of_a_tick_s()
    result.add("measures of a batch", "us", [batch_us])
    result.add("measures of a look", "us", [tick_us])
    tuples = Limits().batch_tuples_max
    result.at_most("share of a full batch", [batch_us / (us_per_line / HOPS * tuples)], MOST - 1)
    result.at_most("share of a second", [tick_us * TICKS_PER_S / 1e6], MOST - 1)


def least_s(call: Any) -> float:
    return min(timeit.repeat(call, number=CALLS, repeat=REPEATS, timer=time.process_time)) / CALLS


def of_a_batch_s() -> float:
    """It comes, is worked off in one slice, and goes."""
    intake, slots = Intake(Limits(), ReplayOrder(lambda _: None)), SlotMeter(1.0, 0.0)
    item: Any = Queued(None, 1, 1, 0.0, b"")  # type: ignore[arg-type]
    clock = time.monotonic

    def batch() -> None:
        item.gone = 0
        intake.here.add(1, clock())
        slots.received(1)
        slots.processed(1, 0.001)
        intake.worked_off(item, 1, last=True)

    return least_s(batch)


def of_a_tick_s() -> float:
    """A look, with some neighbours on each side."""
    closed, slots, host = Closed("a.0"), SlotMeter(1.0, 0.0), HostUse(time.monotonic())
    neighbours: Any = [Neighbour(f"b.{i}") for i in range(2 * NEIGHBOURS)]

    def look() -> None:
        closed.streams(neighbours)
        slots.look(1, 1.0, 1.0, 0.5)
        host.look(time.monotonic())

    return least_s(look)


class Neighbour:
    """What is asked of a channel."""

    tuples = 1

    def __init__(self, name: str) -> None:
        self.peer = self.incoming = self.outgoing = self
        self.operator = name.partition(".")[0]
