"""Staying with a run: snapshots to the view, signals to the run."""

from __future__ import annotations

import os
import signal

from anabranch.commands.following import (
    ENDING,
    OUTPUT_LINES_MAX,
    STOPPING,
    Interrupts,
    Output,
    follow,
    interrupts,
)
from tests.anabranch.fakes import FakeRun, FakeView


def test_every_tick_shows_a_snapshot_until_the_report_is_there() -> None:
    view = FakeView()
    report = follow(FakeRun(3), view, Interrupts(), Output())
    assert report.ok
    assert [s.seconds for s in view.shown] == [1.0, 2.0, 3.0]


def test_the_first_interrupt_ends_the_input() -> None:
    noted, view = Interrupts(), FakeView()
    run = FakeRun(100, lambda n: noted.note(signal.SIGINT, None) if n == 2 else None)
    report = follow(run, view, noted, Output())
    assert report.ended == "completed"
    assert run.calls == ["cut short by Ctrl-C"]
    assert view.said == [ENDING]


def test_the_report_is_told_which_signal_came_first() -> None:
    noted = Interrupts()
    run = FakeRun(100, lambda n: noted.note(signal.SIGTERM, None) if n == 2 else None)
    follow(run, FakeView(), noted, Output())
    assert run.calls == ["cut short by SIGTERM"]


def test_the_second_interrupt_stops_at_once() -> None:
    noted, view = Interrupts(), FakeView()
    run = FakeRun(100, lambda n: noted.note(signal.SIGINT, None) if n in (2, 5) else None)
    run.drains = False
    report = follow(run, view, noted, Output())
    assert report.ended == "stopped"
    assert run.calls == ["cut short by Ctrl-C", "stop"]
    assert view.said == [ENDING, STOPPING]


def test_signals_are_noted_only_while_the_run_lasts() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with interrupts() as noted:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert noted.received == 2
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_closed_terminal_is_nothing_to_a_run_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts() as noted:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            assert noted.received == 1
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_operators_print_is_shown_with_their_name() -> None:
    view, output = FakeView(), Output()
    output.put("split.0", "hello")
    run = FakeRun(1, lambda n: output.put("split.1", f"tick {n}"))
    follow(run, view, Interrupts(), output)
    assert view.said == ["split.0: hello", "split.1: tick 1", "split.1: tick 2"]


def test_a_flood_of_printed_lines_is_cut_and_says_so() -> None:
    view, output = FakeView(), Output()
    for n in range(OUTPUT_LINES_MAX + 5):
        output.put("split.0", str(n))
    output.show(view)
    assert view.said[0] == "(5 printed lines were dropped)"
    assert view.said[1] == "split.0: 5"
    assert len(view.said) == OUTPUT_LINES_MAX + 1
    output.put("split.0", "after")
    output.show(view)
    assert view.said[-1] == "split.0: after"


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts() as noted:
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            assert not noted.received
    finally:
        signal.signal(signal.SIGINT, before)
