"""Snapshots, reports and runs that never were."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from anabranch.runtime.reporting.ledger import Balance, Ledger
from anabranch.runtime.reporting.report import Event, OperatorReport, Report
from anabranch.runtime.reporting.snapshot import InstanceSnapshot, OperatorSnapshot, RunSnapshot
from anabranch.runtime.values.kinds import EventKind


def instance(name: str, **changes: Any) -> InstanceSnapshot:
    values: dict[str, Any] = {
        "id": name,
        "pid": 1,
        "state": "Active",
        "keeper": False,
        "load": 0.5,
        "queued": 0,
        "held": 0,
        "blocked_by": None,
        "waiting_for": (),
        "silent_s": 0.1,
    }
    return InstanceSnapshot(**(values | changes))


def operator(name: str, kind: str = "operator", **changes: Any) -> OperatorSnapshot:
    values: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "instances": 1,
        "rate_in": 1234.0,
        "rate_out": 5678.0,
        "load": 0.5,
        "queued": 10,
        "held": 2,
        "tuples_in": 1000,
        "tuples_out": 2000,
        "dead": 0,
        "joins": 0,
        "leaves": 0,
        "latency_p50_ms": None,
        "latency_p99_ms": None,
        "progress": None,
        "service_address": "",
        "members": (instance(f"{name}.0"),),
    }
    return OperatorSnapshot(**(values | changes))


def snapshot(*operators: OperatorSnapshot, **changes: Any) -> RunSnapshot:
    values: dict[str, Any] = {
        "pipeline": "headlines",
        "phase": "running",
        "seconds": 12.3,
        "operators": operators
        or (operator("lines", "source", progress=0.25), operator("out", "sink")),
        "idle": 2,
        "pids": (1, 2),
        "events": (
            Event(t=3.2, operator="out", kind=EventKind.JOINED, instances=2, instance="out.1"),
        ),
    }
    return RunSnapshot(**(values | changes))


def operator_report(name: str, kind: str = "operator", **changes: Any) -> OperatorReport:
    values: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "tuples_in": 1000,
        "tuples_out": 2000,
        "dead": 0,
        "instances_peak": 1,
        "instances_ever": 1,
        "joins": 0,
        "leaves": 0,
        "messages": 12,
    }
    return OperatorReport(**(values | changes))


def report(**changes: Any) -> Report:
    ledger: dict[str, Any] = {
        "tuples_in": 1000,
        "tuples_out": 2000,
        "lost": 0,
        "duplicated": 0,
        "dead_letters": 0,
        "in_flight": 0,
        "balanced": True,
        "channels": 1,
        "operators": [
            Balance(name="out", received=2000, processed=2000, dead=0, queued=0, balanced=True)
        ],
        "faults": [],
    }
    ledger |= changes.pop("ledger", {})
    values: dict[str, Any] = {
        "pipeline": "headlines",
        "seconds": 12.3,
        "ended": "completed",
        "failure": None,
        "failure_detail": "",
        "started_at": "2026-01-01T00:00:00.000+00:00",
        "ledger": Ledger(**ledger),
        "operators": [operator_report("lines", "source"), operator_report("out", "sink")],
        "events": [],
        "events_dropped": 0,
        "latency_ms": {},
        "dead_reasons": {},
        "sample_period_s": 0.25,
        "seed": 1,
    }
    return Report(**(values | changes))


class FakeRun:
    """Goes on until `ticks` snapshots were taken, its input was ended, or it was stopped.

    `on_tick` is called with the number of each wait, as if something happened meanwhile.
    """

    def __init__(self, ticks: int, on_tick: Callable[[int], None] = lambda _: None) -> None:
        self.ticks = ticks
        self.on_tick = on_tick
        self.waits = 0
        self.calls: list[str] = []
        self.drains = True

    def wait(self, timeout_s: float | None = None) -> Report:
        self.waits += 1
        self.on_tick(self.waits)
        if self.waits > self.ticks or (any("cut" in call for call in self.calls) and self.drains):
            return report()
        raise TimeoutError

    def snapshot(self) -> RunSnapshot:
        return snapshot(seconds=float(self.waits))

    def cut_short(self, by: str) -> None:
        self.calls.append(f"cut short by {by}")

    def stop(self) -> Report:
        self.calls.append("stop")
        return report(ended="stopped", ledger={"in_flight": 3, "balanced": False})


class FakeView:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.shown: list[RunSnapshot] = []
        self.closed = False

    def show(self, snapshot: RunSnapshot) -> None:
        self.shown.append(snapshot)

    def say(self, line: str) -> None:
        self.said.append(line)

    def close(self) -> None:
        self.closed = True


def text_of(lines: Iterable[str]) -> str:
    return "\n".join(lines)
