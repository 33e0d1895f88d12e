"""`scripts/chaos.py`: its plan, its oracle and its judge can fail, and real runs stand it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from faults import health, processes, settings
from faults.blamed import REASON, blamed
from faults.clocked import LOOK_S, Clocked, begins_at
from faults.flow import KEYS, OPERATORS, SCALED, SINGLE, WORD_NUMBERS, name, write_input
from faults.incarnation import Happening
from faults.inflicting import Blow
from faults.judge import judge
from faults.oracle import Expected, expected_counted, expected_traced
from faults.plan import KINDS, STOP_S_MAX, plan
from faults.processes import MARK, Seen, has_mark, instances, marked, seen, send
from faults.recovery import Call, in_the_middle, percentiles, read_calls, recoveries
from faults.runner import SCOPE
from faults.settings import Settings
from faults.storm import Times, script_of

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.plan.ends import Reader, RunContext
from anabranch.runtime.sources import generate
from tests.runtime.processes import PATIENCE_S
from tests.scripts import SCRIPTS, script

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="looks at processes as Linux shows them"
)
chaos = script("chaos")


def small(folder: Path, **changes: Any) -> Settings:
    """A second of input."""
    made = Settings(folder, folder, 3, 0.0, lines_per_s=60, made_per_s=200)
    return replace(made, **changes)


# --- the plan ---------------------------------------------------------------------------------


def test_a_plan_follows_from_its_seed() -> None:
    assert plan(5, 60, SCOPE) == plan(5, 60, SCOPE)
    assert plan(5, 60, SCOPE) != plan(6, 60, SCOPE)


@pytest.mark.parametrize("seed", range(5))
def test_a_plan_has_every_kind_in_its_beginning(seed: int) -> None:
    faults = plan(seed, 120, SCOPE)
    assert {fault.kind for fault in faults[: len(KINDS)]} == set(KINDS)
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    assert faults[-1].at_s < 120


def test_the_keepers_of_all_operators_are_hit_in_turn() -> None:
    hit = [fault.operator for fault in plan(1, 600, SCOPE) if fault.kind == "keeper"]
    turns = len(OPERATORS)
    assert set(hit[:turns]) == set(OPERATORS)
    assert hit[turns : 2 * turns] == hit[:turns]


def test_a_stop_lasts_no_longer_than_a_third_of_the_run_or_half_a_minute() -> None:
    for seconds in (30.0, 6000.0):
        lasting = [fault.for_s for fault in plan(2, seconds, SCOPE, ["stop"])]
        assert 0 < max(lasting) <= min(STOP_S_MAX, seconds / 3)
    assert max(lasting) > STOP_S_MAX / 2


def test_only_wanted_kinds_are_planned() -> None:
    assert {fault.kind for fault in plan(1, 100, SCOPE, ["child", "cut"])} == {"child", "cut"}
    assert plan(1, 100, SCOPE, ()) == []


def test_everyone_that_can_scale_is_told_to() -> None:
    text = script_of(1, SCOPE, 20)
    times = Times(text, SCALED)
    for operator in SCALED:
        assert times.next(operator, "duplicate", 0) is not None
    assert times.next("lines", "move", 0) is None
    assert times.next("trail", "move", 0) is not None
    first = times.next("split", "leave", 0)
    assert first is not None
    second = times.next("split", "leave", first + 0.001)
    assert second is not None
    assert second > first
    assert times.next("split", "leave", 20) is None
    assert not any(name in text for name in SINGLE)


def test_a_resumed_run_is_told_nothing_that_is_past() -> None:
    times = Times(script_of(1, SCOPE, 20, passed_s=100), SCALED)
    for operator in SCALED:
        first = times.next(operator, "duplicate", 0)
        assert first is not None
        assert 100 < first < 105
    assert times.next("split", "leave", 118) is not None


def test_a_script_without_time_left_tells_nobody() -> None:
    times = Times(script_of(1, SCOPE, 0.5), SCALED)
    assert {times.next(name, "duplicate", 0) for name in SCALED} == {None}
    never = times.next("lines", "leave", 0)
    assert never is not None
    assert never > 10**6


# --- the oracle and the judge -----------------------------------------------------------------


Results = list[tuple[str, int, int]]


def results_of(expected: Expected) -> Results:
    """In an order that is as right as the oracle's own."""
    found: Results = []
    for key, numbers in expected.sums.items():
        total = 0
        for n, number in enumerate(reversed(numbers), 1):
            total += number
            found.append((key, n, total))
    for key, rows in expected.rows.items():
        found += [(key, n, total) for n, total in rows]
    return found


def written(path: Path, results: Results) -> Path:
    path.write_text("".join(json.dumps([key, [n, total]]) + "\n" for key, n, total in results))
    return path


def both(folder: Path) -> tuple[Expected, Expected]:
    made = small(folder)
    write_input(made)
    return expected_counted(made), expected_traced(made)


def test_the_oracle_counts_every_kept_word_and_every_number(tmp_path: Path) -> None:
    counted, traced = both(tmp_path)
    words = [key for key in counted.sums if key.islower()]
    letters = [key for key in counted.sums if key.isupper()]
    assert words
    assert {word[0].upper() for word in words} == set(letters)
    assert sum(len(counted.sums[w]) for w in words) == sum(len(counted.sums[k]) for k in letters)
    assert len([key for key in traced.rows if key[0] == "t"]) == KEYS
    assert traced.rows["t1"] == [[1, 1], [2, 42], [3, 123], [4, 244], [5, 405]]
    assert traced.rows["s1"] == [[5, 405]]
    first = json.loads((tmp_path / "lines.jsonl").read_text().splitlines()[1])[1].split()
    at, word = next((at, int(word)) for at, word in enumerate(first) if int(word) % 3)
    assert WORD_NUMBERS + at in counted.sums[name(word)]


def test_right_results_are_right_in_any_order_of_tuples(tmp_path: Path) -> None:
    for expected in both(tmp_path):
        verdict = judge(written(tmp_path / "out", results_of(expected)), expected)
        assert verdict.right, verdict.words
        assert verdict.results == expected.results


@pytest.mark.parametrize("branch", [0, 1])
def test_the_judge_names_what_is_lost_doubled_or_out_of_order(tmp_path: Path, branch: int) -> None:
    expected = both(tmp_path)[branch]
    good = results_of(expected)
    at = next(i for i, (_, n, _) in enumerate(good) if n == 3)

    lost = judge(written(tmp_path / "out", [*good[:at], *good[at + 1 :]]), expected)
    assert (lost.lost, lost.doubled) == (1, 0)
    assert good[at][0] in lost.words[0]
    doubled = judge(written(tmp_path / "out", [*good, good[at]]), expected)
    assert (doubled.lost, doubled.doubled) == (0, 1)
    swapped = [*good[: at - 1], good[at], good[at - 1], *good[at + 1 :]]
    disordered = judge(written(tmp_path / "out", swapped), expected)
    assert (disordered.lost, disordered.doubled, disordered.disordered) == (0, 0, 2)
    stranger = judge(written(tmp_path / "out", [*good, ("nobody", 1, 1)]), expected)
    assert stranger.doubled == 1
    assert "nobody" in stranger.words[0]


def test_the_judge_sees_a_state_that_took_another_tuple(tmp_path: Path) -> None:
    """Every result is there once and in order, but one tuple came twice and another never."""
    expected = both(tmp_path)[0]
    good = results_of(expected)
    key = next(key for key, numbers in expected.sums.items() if len(set(numbers)) > 3)
    other = [(k, n, total + 1 if k == key and n > 1 else total) for k, n, total in good]
    verdict = judge(written(tmp_path / "out", other), expected)
    assert (verdict.lost, verdict.doubled, verdict.disordered, verdict.wrong) == (0, 0, 0, 1)
    assert verdict.words[0].startswith(f"out: {key}: 1 missing")


def test_half_a_line_and_a_missing_file_are_not_right(tmp_path: Path) -> None:
    expected = both(tmp_path)[0]
    path = written(tmp_path / "out", results_of(expected))
    path.write_bytes(path.read_bytes() + b'["a", [1')
    assert judge(path, expected).wrong == 1
    assert not judge(tmp_path / "none", expected).right


def letter_file(path: Path, operator: str, item: object, reason: str = REASON) -> None:
    letter = {"operator": operator, "reason": reason, "tuple": item}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(letter) + "\n")


@pytest.mark.parametrize(
    ("operator", "words", "letters", "trails", "counted_spans"),
    [("count", 1, 1, 0, 0), ("letters", 0, 1, 0, 0), ("wait", 0, 0, 1, 1), ("spans", 0, 0, 0, 1)],
)
def test_a_tuple_that_kills_made_a_dead_letter_is_not_missed_nor_what_comes_of_it(
    tmp_path: Path, operator: str, words: int, letters: int, trails: int, counted_spans: int
) -> None:
    counted, traced = both(tmp_path)
    word = next(key for key in counted.sums if key.islower() and len(counted.sums[key]) > 1)
    number = counted.sums[word][0]
    of_words = {"count": [word, number], "letters": [word, [1, number]]}
    letter_file(small(tmp_path).dead, operator, of_words.get(operator, [1, 41]))
    letter_file(small(tmp_path).dead, "count", [word, counted.sums[word][1]], "ValueError: no")
    without = blamed(small(tmp_path))
    assert without.count == 1
    less = expected_counted(small(tmp_path), without)
    assert len(counted.sums[word]) - len(less.sums[word]) == words
    assert (number in less.sums[word]) == (not words)
    letter = word[0].upper()
    assert len(counted.sums[letter]) - len(less.sums[letter]) == letters
    rows = expected_traced(small(tmp_path), without).rows
    assert len(traced.rows["t1"]) - len(rows["t1"]) == trails
    assert traced.rows["s1"][0][0] - rows["s1"][0][0] == counted_spans
    assert [n for n, _ in rows["t1"]] == [*range(1, len(rows["t1"]) + 1)]


@pytest.mark.parametrize("branch", [0, 1])
def test_a_result_that_is_a_dead_letter_at_its_sink_counts_as_found(
    tmp_path: Path, branch: int
) -> None:
    expected = both(tmp_path)[branch]
    good = results_of(expected)
    at = next(i for i, (_, n, _) in enumerate(good) if n == 3)
    key, n, total = good[at]
    path = written(tmp_path / "out", [*good[:at], *good[at + 1 :]])
    assert judge(path, expected, [[key, [n, total]]]).right
    assert not judge(path, expected, [[key, [n, total + 1]]]).right


def test_a_dead_letter_of_a_window_is_placed_where_its_window_is(tmp_path: Path) -> None:
    """The last window is the shortest, so its total is the least."""
    windows = [[3, 30], [3, 60], [1, 25]]
    for at, letter in enumerate(windows):
        there = [("s1", n, total) for n, total in [*windows[:at], *windows[at + 1 :]]]
        path = written(tmp_path / "out", there)
        assert judge(path, Expected({}, {"s1": windows}), [["s1", letter]]).right


# --- the clock of the input -------------------------------------------------------------------


async def test_input_is_not_read_before_it_is_due_nor_by_whoever_goes_on_with_it() -> None:
    source = Clocked(generate(int, count=12), per_s=1000.0, epoch_s=0.0, clock=lambda: 0.0)
    context = RunContext("p", "made", "made.0", Path(), 0.0, DEFAULT_LIMITS)
    first = source.open(next(source.splits()), context)
    assert (await timed(first))[0] == [0, 1, 2, 3]
    tuples, took_s = await timed(first)
    assert (tuples, took_s >= 0.004) == ([4, 5, 6, 7], True)
    rest = first.remainder()
    assert rest is not None
    assert begins_at(rest) == 8
    tuples, took_s = await timed(source.open(rest, context))
    assert (tuples, took_s >= 0.008) == ([8, 9, 10, 11], True)


async def test_the_tail_of_the_input_waits_until_all_is_healed(tmp_path: Path) -> None:
    numbers, healed = generate(int, count=12), tmp_path / "healed"
    source = Clocked(numbers, per_s=1000.0, epoch_s=0.0, seconds=0.008, released=healed)
    context = RunContext("p", "made", "made.0", Path(), 0.0, DEFAULT_LIMITS)
    reader = source.open(next(source.splits()), context)
    for first in (0, 4):
        assert (await timed(reader))[0] == [*range(first, first + 4)]
    reading = asyncio.create_task(timed(reader))
    done, _ = await asyncio.wait([reading], timeout=2 * LOOK_S)
    assert not done
    healed.touch()
    assert (await reading)[0] == [8, 9, 10, 11]


async def timed(reader: Reader) -> tuple[list[Any], float]:
    """The next four tuples, and how long they took."""
    began_s = time.monotonic()
    chunk = await reader.read(4, 1000)
    assert chunk is not None
    return chunk.tuples, time.monotonic() - began_s


# --- processes --------------------------------------------------------------------------------


SLEEPER = """
from anabranch.runtime.live.process.orphans import set_process_name
set_process_name("ab:words.7")
print("ready", flush=True)
input()
"""


@contextmanager
def sleeper(mark: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, MARK: mark},
    ) as popen:
        assert popen.stdout is not None
        assert popen.stdout.readline() == "ready\n"
        try:
            yield popen
        finally:
            popen.kill()


def test_instances_are_known_by_their_names_and_runs_by_their_marks() -> None:
    with sleeper("mine") as popen:
        found = [one for one in instances(os.getpid()) if one.pid == popen.pid]
        assert [(one.name, one.operator) for one in found] == [("words.7", "words")]
        assert popen.pid in {one.pid for one in marked("mine")}
        assert not has_mark(popen.pid, "min")
        assert seen(os.getpid()) is None, "this process is none of Anabranch's"


def test_a_signal_reaches_nobody_who_only_has_the_number() -> None:
    with sleeper("mine") as popen:
        one = seen(popen.pid)
        assert one is not None
        assert not send(replace(one, began=one.began + 1), signal.SIGKILL)
        assert not send(Seen(one.pid, "words.8", one.began), signal.SIGKILL)
        assert popen.poll() is None
        assert send(one, signal.SIGKILL)
        assert popen.wait(PATIENCE_S) == -signal.SIGKILL
        assert not send(one, signal.SIGKILL)


CUTTING = """
import os, signal, socket, sys
from faults import cutting
cutting.obey()
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
ours, theirs = [], []
for _ in range(3):
    one = socket.socket(socket.AF_UNIX)
    one.connect(sys.argv[1])
    ours.append(one)
    theirs.append(listener.accept()[0])
link, agent = socket.socketpair()
files = len(os.listdir("/proc/self/fd"))
os.kill(os.getpid(), getattr(cutting, sys.argv[2]))
assert len(os.listdir("/proc/self/fd")) == files, "copies are left"
def is_cut(one):
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
link.send(b"x")
assert agent.recv(1) == b"x", "the link to the agent was cut"
assert [is_cut(a) for a in ours] == [is_cut(b) for b in theirs]
print(sum(is_cut(a) for a in ours))
"""


@pytest.mark.parametrize(("signal_name", "cut"), [("CUT_ONE", 1), ("CUT_ALL", 3)])
def test_connections_are_cut_on_both_sides_but_not_the_link(
    tmp_path: Path, signal_name: str, cut: int
) -> None:
    command = [sys.executable, "-c", CUTTING, str(tmp_path / "s"), signal_name]
    done = subprocess.run(command, capture_output=True, text=True, cwd=SCRIPTS, timeout=PATIENCE_S)
    assert done.stdout == f"{cut}\n", done.stderr


# --- what is told -----------------------------------------------------------------------------


def test_recovery_is_counted_from_the_blow_to_the_next_process() -> None:
    blow = Blow(10.0, "keeper", "split.0", 77, deadly=True)
    happenings = [
        Happening(8.0, "split", "died", "split.0", ""),
        Happening(10.02, "split", "died", "split.0", ""),
        Happening(10.05, "split", "died", "split.1", ""),
        Happening(10.3, "split", "resumed", "split.0", ""),
    ]
    text = "split 77 10.0001\nsplit 78 10.1\nsplit 79 10.4\ncount 80 10.2\n"
    calls = read_calls(text, {77: "split.0", 78: "split.1", 79: "split.0", 80: "split.9"})
    assert calls[-1] == Call(10.4, "split.0", 79)
    (found,) = recoveries([blow], happenings, calls)
    assert (found.noticed_s, found.resumed_s, found.first_s) == pytest.approx((0.02, 0.3, 0.4))
    (lost,) = recoveries([blow], happenings[:1], [])
    assert (lost.noticed_s, lost.resumed_s, lost.first_s) == (None, None, None)
    assert recoveries([replace(blow, deadly=False)], happenings, calls) == []
    for other in ("split.0", "agent"):
        again = Blow(10.2, "agent", other, 5, deadly=True)
        found = recoveries([again, blow], happenings, calls)[0]
        assert found.noticed_s == pytest.approx(0.02)
        assert found.resumed_s is None


def test_percentiles_leave_out_what_is_not_known() -> None:
    assert percentiles([0.1, None, 0.3]) == {"p50": 100, "p90": 300, "p99": 300, "max": 300}
    assert percentiles([None]) == {}


def test_a_blow_in_the_middle_follows_the_decision_of_the_same_instance() -> None:
    decided = [Happening(5.0, "a", "decided", "a.0", "told to duplicate")]
    blows = [
        Blow(5.1, "creator", "a.0", 1, True),
        Blow(5.1, "creator", "a.1", 2, True),
        Blow(4.9, "creator", "a.0", 3, True),
        Blow(9.0, "creator", "a.0", 4, True),
    ]
    assert in_the_middle(blows, decided)["creator"] == 1


def test_memory_that_grows_is_not_right_and_memory_that_is_high_is() -> None:
    samples = 2 * health.JUDGED_SAMPLES
    flat = health.Health(agent_mib=[10.0, *[900.0] * samples], agent_files=[50] * samples)
    assert flat.faults() == []
    growing = health.Health(agent_mib=[float(n) for n in range(samples)])
    assert "the agent grew" in growing.faults()[0]
    leaking = health.Health(agent_files=list(range(samples)), files_max=1000)
    assert len(leaking.faults()) == 2


def test_settings_are_read_as_they_were_written(tmp_path: Path) -> None:
    made = small(tmp_path).begun_at(17.0)
    assert settings.read(made.write()) == made


# --- real runs --------------------------------------------------------------------------------


def test_wrong_usage_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--minutes", "0"], ["--only", "earthquake"], ["--transport", "mqtt"]):
        with pytest.raises(SystemExit) as ended:
            chaos.main(arguments)
        assert ended.value.code == 2
    assert "earthquake" in capsys.readouterr().err


def test_the_plan_is_shown_without_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert chaos.main(["--plan", "--seed", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(plan(4, 60, SCOPE)) + len(KINDS)


def test_a_plan_of_a_report_is_done_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = plan(4, 60, SCOPE)[3:5]
    report = tmp_path / "chaos.json"
    report.write_text(json.dumps({"plan": [asdict(fault) for fault in faults]}))
    assert chaos.main(["--plan", "--replay", str(report)]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [fault.text for fault in faults]


def run(*arguments: str) -> tuple[dict[str, Any], str]:
    """The report of a run of its own, and what it said."""
    command = [sys.executable, str(SCRIPTS / "chaos.py"), *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if told["right"] else 1)
    return told, done.stderr


def test_cuts_stops_and_slow_instances_over_tcp_change_nothing(tmp_path: Path) -> None:
    """Over local sockets all kinds of faults happen in the half minute below."""
    report, kinds = tmp_path / "report.json", "cut_all,slow"
    options = ["--only", kinds, "--minutes", "0.1", "--seed", "11", "--transport", "tcp"]
    told, said = run(*options, "--report", str(report))
    assert told["right"], (told["faults"], said)
    assert json.loads(report.read_text()) == told
    assert {kind for kind, counts in told["injected"].items() if counts["hit"]} == set(
        kinds.split(",")
    )
    assert told["joined"]
    assert told["left"]


def test_what_is_not_right_is_told_with_the_command_that_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import faults.result

    extra = Expected({}, {"t0": [[1, 1]]})
    monkeypatch.setattr(faults.result, "expected_traced", lambda *_: extra)
    monkeypatch.setattr(chaos.tempfile, "tempdir", str(tmp_path))
    assert chaos.main(["--only", "none", "--minutes", "0.02", "--seed", "5"]) == 1
    shown = capsys.readouterr().out
    assert "scripts/chaos.py --minutes 0.02 --seed 5 --transport unix --only none" in shown
    assert "NOT RIGHT: traced.jsonl: t0: of 1 results" in shown
    (kept,) = tmp_path.glob("chaos-*")
    assert json.loads((kept / "chaos.json").read_text())["right"] is False
    assert (kept / "traced.jsonl").stat().st_size


def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "chaos.py"), "--only", "stop", "--seed", "1"]
    with subprocess.Popen(
        [*command, "--keep", str(tmp_path)], stderr=subprocess.PIPE, text=True
    ) as popen:
        assert popen.stderr is not None
        assert "stop" in popen.stderr.readline()
        mark = settings.read(tmp_path / "settings.json").mark
        assert list(processes.marked(mark))
        popen.send_signal(signal.SIGINT)
        said = popen.communicate(timeout=PATIENCE_S)[1]
    assert popen.returncode == 130, said
    assert list(processes.marked(mark)) == []


def stands(minutes: float, seed: int, transport: str) -> None:
    told, said = run("--minutes", str(minutes), "--seed", str(seed), "--transport", transport)
    assert told["right"], (told["faults"], said)
    assert told["died"]
    assert told["recovery_ms"]["agent_resumed"], "no agent has resumed a run"
    faults = ("keeper", "neighbours", "everyone", "stop", "cut", "standby", "parent", "agent")
    for kind in (*faults, "parents"):
        assert told["injected"][kind]["hit"], f"{kind} has not happened, so this says nothing"


@pytest.mark.slow
def test_half_a_minute_of_everything_changes_nothing() -> None:
    stands(0.5, 3, "unix")


@pytest.mark.nightly
@pytest.mark.parametrize(("seed", "transport"), [(1, "unix"), (2, "tcp")])
def test_five_minutes_of_everything_change_nothing(seed: int, transport: str) -> None:
    stands(5, seed, transport)
