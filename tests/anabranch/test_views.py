"""What people see: figures, lines for logs, the table of the terminal, the summary."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from anabranch.commands.agent_options import say_pipelines
from anabranch.runtime.hosts.pipelines import PipelineStatus
from anabranch.runtime.reporting.report import Event
from anabranch.runtime.reporting.snapshot import RunSnapshot
from anabranch.runtime.values.kinds import EventKind
from anabranch.views.figures import bar, duration, milliseconds, plural, rate, table
from anabranch.views.figures_of_run import figures
from anabranch.views.live import LiveView, picture
from anabranch.views.plain import PlainView, line_of
from anabranch.views.summary import summary, verdict
from anabranch.views.view import culprits, held_up
from tests.anabranch.fakes import instance, operator, operator_report, report, snapshot, text_of

DEAD = Path("headlines.dead.jsonl")


@pytest.mark.parametrize(
    ("per_s", "text"),
    [
        (0.0, "0"),
        (0.01, "0"),
        (0.25, "0.25"),
        (12.34, "12.3"),
        (999.4, "999"),
        (999.6, "1k"),
        (1234.0, "1.23k"),
        (480_000.0, "480k"),
        (999_700.0, "1M"),
        (1_600_000.0, "1.6M"),
        (2e12, "2000G"),
    ],
)
def test_rates_have_three_figures(per_s: float, text: str) -> None:
    assert rate(per_s) == text


def test_times_are_in_the_unit_that_people_use() -> None:
    assert [duration(s) for s in (0.31, 99.94, 185.2, 7385.0)] == [
        "0.3 s",
        "99.9 s",
        "3:05 min",
        "2:03:05 h",
    ]
    assert [milliseconds(ms) for ms in (None, 0.123, 68.9, 2345.0)] == [
        "-",
        "0.123 ms",
        "68.9 ms",
        "2.35 s" if f"{2.345:.3g}" == "2.35" else "2.34 s",
    ]


def test_a_bar_is_full_at_one_and_never_longer() -> None:
    assert bar(0.0, 4) == "    "
    assert bar(0.5, 4) == "██  "
    assert bar(9.9, 4) == "████"
    assert {len(bar(n / 37, 6)) for n in range(80)} == {6}


def test_tables_align() -> None:
    assert table([["a", "count"], ["long name", "1"]]) == ["a          count", "long name      1"]
    assert plural(1, "leaf", "leaves") == "1 leaf"
    assert plural(2000, "leaf", "leaves") == "2,000 leaves"


def test_the_line_for_logs_tells_rates_instances_and_progress() -> None:
    line = line_of(snapshot())
    assert line == (
        "headlines: running, 12.3 s; 1,000 read, 25 % of the input (1.23k/s); 2,000 delivered; "
        "instances lines 1 out 1"
    )


def test_the_line_for_logs_names_the_culprit_not_the_victims() -> None:
    """P40: lines waits for split, split waits for count, so count is the one to look at."""
    seen = snapshot(
        operator("lines", "source", members=(instance("lines.0", blocked_by="split.0"),)),
        operator("split", members=(instance("split.0", blocked_by="count.1"),), dead=3),
        operator("count", "sink"),
    )
    assert held_up(seen) == {"lines": "split", "split": "count"}
    assert culprits(seen) == {"count"}
    assert line_of(seen).endswith("3 dead letters; held up by count")


def test_hosts_that_a_run_waits_for_are_named_in_its_line_its_status_and_for_who_scales(
    capsys: pytest.CaptureFixture[str],
) -> None:
    there = operator("up", members=(instance("up.0", host="north"),), pinned=2)
    here = operator("out", "sink", members=(instance("out.0", host="home"),), pinned=2)
    seen = snapshot(there, here, away=("north",))
    assert line_of(seen).endswith("; waits for host north")
    told = figures(seen)
    assert told["away"] == ["north"]
    hindered = [o["hindered"] for o in told["operators"]]
    assert hindered == ["host north does not answer", ""]
    words = ("up@1234", "up", "1234", "home", "up.py", "running", "")
    say_pipelines([PipelineStatus(*words, pid=1, starts=1, run=told, message="")])
    assert (
        capsys.readouterr().out.splitlines()[1] == "  waits for host north, which does not answer"
    )
    assert "waits" not in line_of(snapshot(there, here))


def test_a_copy_counts_only_on_another_host_than_that_of_its_instance() -> None:
    """An instance that began elsewhere, from the copy there, has that copy beside it."""
    one = instance("up.0", host="south", copies=("home", "south"))
    (told,) = figures(snapshot(operator("up", members=(one,))))["operators"]
    assert told["copies"] == {"home": 1}


def test_lines_for_logs_come_less_and_less_often() -> None:
    out = io.StringIO()
    view = PlainView(out)
    for tick in range(4 * 600):
        view.show(snapshot(seconds=tick / 4))
    assert 20 <= out.getvalue().count("\n") <= 30
    view.show(snapshot(seconds=600.1, phase="ending"))
    assert "headlines: ending" in out.getvalue()
    view.say("a word")
    assert out.getvalue().endswith("a word\n")


def test_a_reader_that_is_gone_does_not_disturb_the_run() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    PlainView(Gone()).say("hello")


def drawn(width: int = 120, **changes: object) -> str:
    seen = snapshot(
        operator("lines", "source", progress=0.5),
        operator("split", instances=3, load=1.35, joins=4, leaves=2, dead=7),
        operator("out", "sink", latency_p99_ms=12.0),
        **changes,
    )
    return shown(seen, width)


def shown(seen: RunSnapshot, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(picture(seen, width))
    out = console.file
    assert isinstance(out, io.StringIO)
    return out.getvalue()


def test_the_table_of_the_terminal_shows_load_instances_and_changes() -> None:
    text = drawn()
    row = next(line for line in text.splitlines() if line.startswith("split"))
    for part in ("●●● 3", "1.23k", "5.68k", "████████", "135 %", "4/2", "7 dead letters"):
        assert part in row
    assert "50 %" in text
    assert "12 ms" in text
    assert "out.1 joined" in text


@pytest.mark.parametrize("width", [60, 80, 109, 110, 200])
def test_every_terminal_gets_whole_figures_within_its_width(width: int) -> None:
    text = drawn(width)
    assert max(len(line) for line in text.splitlines()) <= width
    for part in ("split", "1.23k", "5.68k", "135 %", "4/2", "7 dead letters", "out.1 joined"):
        assert part in text


def test_the_table_says_how_to_stop_while_it_ends() -> None:
    assert "Ctrl-C stops at once" in drawn(phase="ending")
    assert "Ctrl-C stops at once" not in drawn()


def test_a_round_that_waits_for_a_silent_neighbour_names_it() -> None:
    """The protocol needs the answer of every neighbour: say whose is missing."""
    split = operator("split", members=(instance("split.0", waiting_for=("out.3", "out.4")),))
    out = operator("out", members=(instance("out.3", silent_s=6.0), instance("out.4")))
    console = Console(file=io.StringIO(), width=140)
    console.print(picture(snapshot(split, out), 140))
    assert isinstance(console.file, io.StringIO)
    assert "waits for out.3, which is silent" in console.file.getvalue()


def test_the_live_view_leaves_the_terminal_clean() -> None:
    out = io.StringIO()
    view = LiveView(Console(file=out, force_terminal=True, width=100, color_system=None))
    view.show(snapshot())
    view.say("printed by an operator")
    view.close()
    assert "printed by an operator" in out.getvalue()
    assert out.getvalue().rstrip().endswith("\x1b[2K")
    assert "\x1b[?25h" in out.getvalue()


def test_the_summary_has_the_operators_and_the_ledger_in_words() -> None:
    made = report(
        operators=[
            operator_report("lines", "source", tuples_in=1000, tuples_out=1000),
            operator_report(
                "out",
                "sink",
                instances_peak=3,
                joins=2,
                leaves=1,
                latency_ms={"p50": 3.0, "p99": 17.0},
            ),
        ]
    )
    text = text_of(summary(made, DEAD))
    assert "headlines: completed after 12.3 s" in text
    assert "ledger: 1,000 read (81.3/s), 2,000 delivered, 0 dead letters, 0 lost" in text
    assert "balanced: every tuple is accounted for" in text
    row = next(line for line in text.splitlines() if line.startswith("out"))
    assert row.split() == ["out", "1,000", "2,000", "0", "3", "2", "1", "3", "ms", "17", "ms"]
    assert "headlines.dead.jsonl" not in text


def test_the_summary_says_what_does_not_balance() -> None:
    wrong = {"lost": 3, "duplicated": 2, "in_flight": 1, "balanced": False}
    faults = [f"split.{n} sent 10 to out.0, which received 9" for n in range(12)]
    text = text_of(summary(report(ledger={**wrong, "faults": faults}), DEAD))
    assert "NOT balanced: 3 lost, 2 duplicated, 1 still on their way" in text
    assert "split.9 sent 10 to out.0, which received 9" in text
    assert "split.10" not in text
    assert "and 2 more" in text
    assert verdict(report(ledger={"balanced": False}).ledger).endswith("counts do not agree")


def test_the_summary_names_what_an_instance_waited_for_until_the_end() -> None:
    went_on, died, lacks = "the disk is full", "it waits and dies", "mqtt://host cannot be reached"
    course = [
        ("out.0", EventKind.WAITS, went_on),
        ("out.0", EventKind.GOES_ON, "after 3.0 s"),
        ("split.0", EventKind.WAITS, died),
        ("split.0", EventKind.DIED, "was killed by SIGKILL"),
        ("temps.0", EventKind.WAITS, went_on),
        ("temps.0", EventKind.WAITS, lacks),
        ("temps.0", EventKind.GOES_ON, "messages are read again"),
        ("temps.0", EventKind.WAITS, lacks),
    ]
    events = [
        Event(t=float(n), operator="o", kind=kind, instances=1, instance=name, detail=detail)
        for n, (name, kind, detail) in enumerate(course)
    ]
    lines = summary(report(events=events), DEAD)
    assert [line for line in lines if "waited" in line] == [
        f"temps.0 waited until the end: {lacks}"
    ]


def test_the_summary_counts_dead_letters_by_reason_and_says_where_they_are() -> None:
    reasons = {f"reason {n}": n for n in range(1, 9)}
    made = report(ledger={"dead_letters": 36}, dead_reasons=reasons)
    text = text_of(summary(made, DEAD))
    assert "dead letters: 36 in headlines.dead.jsonl" in text
    assert "        8  reason 8" in text
    assert "        6  for 3 other reasons" in text


def test_the_summary_shows_the_last_dead_letter_of_each_reason(tmp_path: Path) -> None:
    file = tmp_path / "dead.jsonl"
    letters = [
        {"reason": "ValueError: first", "where": "a.py:3 in f"},
        {"reason": "ValueError: " + "long " * 40, "where": "a.py:4 in f"},
        {"reason": "late"},
        {"reason": 7},
    ]
    lines = [json.dumps(letter) for letter in letters]
    file.write_text("\n".join(["x" * 70_000, *lines, "[]", '{"reas']))
    made = report(ledger={"dead_letters": 4}, dead_reasons={"ValueError": 3, "late": 1})
    text = text_of(summary(made, file))
    assert f"3  ValueError, the last: {('long ' * 20)[:99]}… (a.py:4 in f)" in text
    assert text.endswith("        1  late")


def test_a_run_that_did_not_start_has_no_table_of_zeros() -> None:
    nothing = {"tuples_in": 0, "tuples_out": 0}
    failed = report(ended="failed", failure="did not start", ledger=nothing)
    assert "ledger:" not in text_of(summary(failed, DEAD))
    assert "ledger:" in text_of(summary(report(ledger=nothing), DEAD))


def test_the_summary_tells_why_a_run_failed() -> None:
    made = report(ended="failed", failure="operator 'split': gone", failure_detail="last words")
    text = text_of(summary(made, DEAD))
    assert "headlines: failed after 12.3 s\n  operator 'split': gone\n  last words\n" in text


def test_at_least_once_nobody_is_left_to_think_that_what_the_ledger_calls_lost_is_missing() -> None:
    told, again = "and at-least-once allows for that", "what was lost with them came again"
    lost = report(ledger={"lost": 3, "balanced": False, "excused": True}).ledger
    assert verdict(lost, delivery="at-least-once").endswith(f"{told}; {again}")
    assert verdict(lost, delivery="at-most-once").endswith("at-most-once allows for that")
    twice = report(ledger={"duplicated": 3, "balanced": False, "excused": True}).ledger
    assert verdict(twice, delivery="at-least-once").endswith(told)


def test_a_run_that_was_cut_off_is_not_called_unbalanced() -> None:
    cut = {"balanced": False, "in_flight": 7, "faults": ["a.0 ended without an account"]}
    early = text_of(summary(report(ended="ended early", ended_by="duration"), DEAD))
    assert "headlines: ended early after 12.3 s by --duration; all that was read is fin" in early
    assert "balanced: every tuple is accounted for" in early
    text = text_of(summary(report(ended="stopped", ledger=cut), DEAD))
    assert "not settled: the run stopped with tuples on their way" in text
    assert "ended without an account" not in text
    lost = report(ended="stopped", ledger=cut | {"lost": 2})
    assert "NOT balanced: 2 lost" in text_of(summary(lost, DEAD))


def test_the_table_names_a_key_group_that_is_most_of_a_busy_instance() -> None:
    """P28: more instances do not help then; another key does."""
    hot = instance("count.1", load=0.95, groups=9, hot=((17, 0.62), (3, 0.1)))
    even = instance("count.0", load=0.95, groups=9, hot=((2, 0.3),))
    console = Console(file=io.StringIO(), width=140, force_terminal=True, color_system=None)
    console.print(picture(snapshot(operator("count", members=(even, hot))), 140))
    assert isinstance(console.file, io.StringIO)
    assert "key group 17 is 62 % of count.1" in console.file.getvalue()
    console.print(picture(snapshot(operator("count", members=(even,))), 140))
    assert console.file.getvalue().count("key group") == 1


def test_the_summary_tells_what_was_late_and_what_was_ahead() -> None:
    late = operator_report("means", late={"bury": 3, "drop": 1}, ahead=2)
    text = text_of(summary(report(operators=[late]), DEAD))
    assert "late at means: 3 tuples, dead letters" in text
    assert "late at means: 1 tuple, dropped" in text
    assert "ahead of the clock at means: 2 event times, which did not count" in text


def test_processes_that_died_are_seen_everywhere() -> None:
    died = snapshot(operator("work", deaths=2), operator("out", "sink", deaths=1))
    words = "3 processes died and went on in new ones"
    assert words in line_of(died)
    assert words in shown(died)
    lines = summary(report(operators=[operator_report("work", deaths=1)]), DEAD)
    assert lines[-1] == "1 process died and went on in a new one: work 1"
    assert "died" not in line_of(snapshot())


def test_the_policy_and_the_streams_of_an_operator_are_shown_where_there_is_room() -> None:
    seen = snapshot(
        operator("split", policy="predictive", rate_to={"count": 10.0, "out": 20.0}),
        host_busy=0.5,
    )
    wide = shown(seen, 160)
    assert "predictive to count 10, out 20" in wide
    assert "processors 50" in wide
    assert "predictive" not in shown(seen, 80)


def test_the_summary_names_policies_if_any_decided() -> None:
    split = operator_report("split", policy="predictive(latency_ms=100.0)")
    lines = summary(report(operators=[split, operator_report("out", "sink")]), DEAD)
    assert any(line.endswith("  predictive") for line in lines)
    assert not any("policy" in line for line in summary(report(), DEAD))
