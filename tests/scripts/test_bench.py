"""The benches run, with tiny sizes, and say when something does not hold. No figure is judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from benches import durable
from benches.chain import STAGES
from benches.contestants import ContestantFailed, compete
from benches.delivery import SHAPES
from benches.growth import SHAPES as SHAPES_THAT_GROW
from benches.growth import ratio_of, sizes_of
from benches.move import judged
from benches.move_load import GROUPS, Rows
from benches.recovery import Kill, Recovery, describe, draw, recoveries
from benches.recovery_load import Row
from benches.result import Result, Settings
from benches.startup import until_first_tuple_and_exit

from anabranch.runtime.reporting.report import Event
from anabranch.runtime.values.kinds import EventKind
from tests.runtime.processes import PATIENCE_S
from tests.scripts import SCRIPTS, script

TIMEOUT_S = PATIENCE_S


def bench(*arguments: str) -> dict[str, Any]:
    """The results of `scripts/bench.py ... --json` by name."""
    command = [sys.executable, str(SCRIPTS / "bench.py"), *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.stdout, done.stderr
    found = {result["bench"]: result for result in json.loads(done.stdout)["benches"]}
    assert done.returncode == (1 if any(r["faults"] for r in found.values()) else 0)
    return found


def rows(result: dict[str, Any]) -> dict[str, list[float]]:
    assert all(r["min"] <= r["median"] <= r["max"] for r in result["rows"])
    return {row["name"]: row["values"] for row in result["rows"]}


def serious(result: dict[str, Any]) -> list[str]:
    """Faults other than that so short a run was too short."""
    return [fault for fault in result["faults"] if "says nothing" not in fault]


def test_the_chain_gives_every_contestant_its_turn_in_every_round() -> None:
    result = bench("chain", "--lines", "3000", "--runs", "2")["chain"]
    assert not result["faults"]
    figures = rows(result)
    assert all(len(values) == 2 for values in figures.values())
    rate = "a  ours, three hops", "c  bare, three hops"
    ours, bare = (figures[name] for name in rate)
    assert figures["a/c"] == pytest.approx([a / c for a, c in zip(ours, bare, strict=True)])
    notes = result["notes"]
    tables = [i for i, note in enumerate(notes) if note.startswith("microseconds per line")]
    assert len(tables) == 3
    for first, processes in zip(tables, (5, 3, 5), strict=True):
        assert notes[first + 1 + processes + 1].split()[0] == "all"
    stages = dict(zip(STAGES, notes[tables[0] + 7].split()[1:], strict=False))
    assert all(float(spent) > 0 for spent in stages.values()), stages


def test_growth_is_one_where_each_of_many_costs_the_same() -> None:
    assert sizes_of(160) == [10, 40, 160]
    assert ratio_of([1.1, 1.4, 2.6]) == pytest.approx(1.0)
    assert ratio_of([1.0, 1.0, 1.0]) is None
    squared = ratio_of([1 + 0.01 * n * n for n in (10, 40, 160)])
    assert squared is not None
    assert squared > 3


def test_everything_that_may_grow_is_run_with_three_sizes() -> None:
    result = bench("growth", "--lines", "32")["growth"]
    assert not result["faults"]
    figures = rows(result)
    for shape in SHAPES_THAT_GROW:
        assert all(figures[f"{shape.name}: {size}"][0] > 0 for size in (2, 8, 32))
    bounds = [shape.name for shape in SHAPES_THAT_GROW if shape.bound]
    assert [note.partition(":")[0] for note in result["notes"]] == bounds
    assert "input files" in bounds


def test_worlds_of_the_swarm_are_counted_in_processor_time() -> None:
    result = bench("swarm", "--lines", "1", "--runs", "1")["swarm"]
    assert not result["faults"]
    figures = rows(result)
    assert figures["small world"][0] > 0 < figures["large world"][0]
    assert figures["small world, of 500 ms"] == [figures["small world"][0] / 500]


def test_newcomers_are_timed_with_a_warm_and_with_a_cold_pool() -> None:
    result = bench("newcomer", "--seconds", "3", "--runs", "1")["newcomer"]
    assert not serious(result)
    assert all(values[0] > 0 for values in rows(result).values())


def test_windows_of_a_pause_are_found_in_a_real_run() -> None:
    result = bench("pause", "--seconds", "5", "--runs", "1")["pause"]
    assert not serious(result)
    assert "calm: latency p99" in rows(result)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs /proc")
def test_memory_is_told_of_every_kind_of_process() -> None:
    result = bench("idle", "--seconds", "0.1", "--runs", "1")["idle"]
    assert not result["faults"]
    kinds = {"idle source", "idle operator", "idle sink", "warm process", "template process"}
    assert rows(result).keys() == kinds


def test_the_first_tuple_comes_before_the_exit() -> None:
    result = bench("startup", "--runs", "1")["startup"]
    assert not result["faults"]
    figures = rows(result)
    run = "anabranch run, a tiny pipeline"
    assert figures[f"{run}: first tuple"][0] <= figures[f"{run}: exit"][0]


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs /proc")
def test_an_agent_at_rest_is_measured() -> None:
    words = ("--seconds", "0.5", "--runs", "1", "--lines", "2000")
    result = bench("hosts", *words)["hosts"]
    assert not result["faults"]
    figures = rows(result)
    assert figures.keys() == {
        "from the command until it listens",
        "resident memory",
        "private memory",
        "processor time",
        "without certificates",
        "with certificates",
        "with certificates/without certificates",
        "through a broker",
        "through a broker/with certificates",
        "journals without copies",
        "journals with a copy elsewhere",
        "journals with a copy elsewhere/journals without copies",
        "journals without copies: processor time",
        "journals with a copy elsewhere: processor time",
    }
    assert figures["private memory"][0] <= figures["resident memory"][0]


def test_a_storm_is_counted_by_the_ledger_and_by_the_numbers() -> None:
    result = bench("storm", "--seconds", "1.5")["storm"]
    assert not serious(result)
    verdicts = [note for note in result["notes"] if "0 lost, 0 doubled, 0 out of order" in note]
    assert len(verdicts) == 2
    assert [note for note in result["notes"] if note.startswith("memory: ")]


def test_a_slow_sink_gets_everything(tmp_path: Path) -> None:
    # Faster than in earnest, for what is queued has to be worked off.
    program = (
        "import sys; from pathlib import Path\n"
        "from benches import backpressure; from benches.result import Settings\n"
        "backpressure.SINK_PER_S = 50_000\n"
        "settings = Settings(Path(sys.argv[1]), print, seconds=1.0)\n"
        "result = backpressure.measure(settings)\n"
        "lost = [f for f in result.faults if 'grows' not in f]\n"
        "sys.exit(str(lost) if lost or not result.rows else 0)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=SCRIPTS, check=False
    )
    assert done.returncode == 0, done.stderr


def test_words_are_counted_by_every_contestant() -> None:
    result = bench("keyed", "--lines", "8000", "--runs", "2")["keyed"]
    assert not result["faults"]
    figures = rows(result)
    assert all(len(values) == 2 for values in figures.values())
    assert figures["a1 ours, one instance counts"][0] > 0


def test_what_a_move_costs_is_measured_and_drawn(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from benches import move; from benches.result import Settings\n"
        "move.SIZES_MB, move.BETWEEN_MB, move.JUDGED_MB = (1,), (1,), 1\n"
        "move.PICTURE = Path(sys.argv[1]) / 'move.svg'\n"
        "result = move.measure(Settings(Path(sys.argv[1]), print, runs=1, seconds=1.0))\n"
        "assert not result.faults, result.faults\n"
        "print(*(row.name for row in result.rows), sep='\\n')\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=SCRIPTS)
    assert done.returncode == 0, done.stderr
    for what in ("to a newcomer", "between two"):
        assert f"1 MB {what}: longest pause of keys that move" in done.stdout
    assert (tmp_path / "move.svg").read_text().startswith("<?xml")


def test_a_move_is_judged_by_the_tuples_of_groups_that_changed_owner() -> None:
    # Group 0 stays with 7. Group 1 goes from 7 to 8: one tuple waits from 2.0 to 2.5.
    table = [
        (0, 0.5, 0.501, 7),
        (1, 1.0, 1.001, 7),
        (0, 1.5, 1.502, 7),
        (0, 2.1, 2.110, 7),
        (1, 2.0, 2.500, 8),
        (0, 2.6, 2.690, 7),
        (1, 3.0, 3.001, 8),
    ]
    found = judged(Rows(*(np.array(column) for column in zip(*table, strict=True))), 1.0, 1.9)
    assert found is not None
    assert found._replace(share=found.share * GROUPS) == pytest.approx((1, 2, 10, 500, 600))
    stays = [row for row in table if row[0] == 0]
    assert judged(Rows(*(np.array(c) for c in zip(*stays, strict=True))), 1.0, 1.9) is None


def test_every_promise_of_delivery_is_measured_against_the_least() -> None:
    result = bench("delivery", "--lines", "4000", "--runs", "1")["delivery"]
    assert not result["faults"]
    figures = rows(result)
    for name in SHAPES.values():
        most, exact = (figures[f"{name}: {d}"] for d in ("at-most-once", "effectively-once"))
        ratio = [e / m for e, m in zip(exact, most, strict=True)]
        assert figures[f"{name}: effectively-once/at-most-once"] == pytest.approx(ratio)


def test_what_it_costs_to_outlive_a_loss_of_power_is_told_by_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(durable.POWER) == {durable.NONE, *durable.OPERATORS, durable.ALL}
    few = {who: durable.POWER[who] for who in (durable.NONE, "sink")}
    monkeypatch.setattr(durable, "POWER", few)
    result = durable.measure(Settings(tmp_path, print, runs=1, seconds=1, lines=2_000))
    assert not result.faults
    figures = {row.name: row.values for row in result.rows}
    ratio = figures["sink"][0] / figures["nobody"][0]
    assert figures["sink/nobody"] == pytest.approx([ratio])
    assert figures["sink: latency p99"][0] > 0


def test_recovery_is_measured_of_every_kind_of_instance_and_drawn(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from benches import recovery; from benches.result import Settings\n"
        "recovery.PICTURE = Path(sys.argv[1]) / 'recovery.svg'\n"
        "result = recovery.measure(Settings(Path(sys.argv[1]), print, runs=1))\n"
        "assert not result.faults, result.faults\n"
        "print(*(row.name for row in result.rows), sep='\\n')\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=SCRIPTS)
    assert done.returncode == 0, done.stderr
    for what in ("stateless operator", "keyed operator", "sink"):
        assert f"{what}: first results again, p99" in done.stdout
    assert (tmp_path / "recovery.svg").read_text().startswith("<?xml")


def test_recovery_lasts_until_results_of_a_later_process_come(tmp_path: Path) -> None:
    began_s = 100.0
    kills = [Kill(101.0, "work", 1), Kill(102.0, "work", 2), Kill(102.0, "out", 30)]
    rows = [
        Row(100.5, began_s, 1, 20, 30),
        Row(101.1, began_s, 1, 20, 30),  # was on its way when its process died
        Row(101.2, began_s, 2, 20, 30),
        Row(102.3, began_s, 2, 20, 31),
        Row(102.4, began_s, 3, 20, 31),
    ]
    events = [
        Event(t=t, operator=operator, kind=EventKind(kind), instances=1)
        for t, operator, kind in [(1.01, "work", "died"), (1.05, "work", "resumed")]
    ]
    found = recoveries(kills, events, rows)
    assert found["work"][0] == pytest.approx((10, 50, 200))
    assert found["work"][1].output == pytest.approx(400)
    (of_sink,) = found["out"]
    assert of_sink[:2] == (None, None)
    assert of_sink.output == pytest.approx(300)
    result = Result("recovery", "made up")
    describe("sink", [*found["out"], Recovery(5.0, None, None)], result)
    assert result.faults == ["sink: 1 of 2 gave no results any more"]
    draw(found, tmp_path / "recovery.svg")
    assert (tmp_path / "recovery.svg").read_text().startswith("<?xml")


def test_a_bench_without_a_name_or_with_a_wrong_one_is_wrong_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments in ([], ["chains"], ["chain", "--runs", "0"], ["storm", "--seconds", "-1"]):
        with pytest.raises(SystemExit) as ended:
            script("bench").main(arguments)
        assert ended.value.code == 2
    assert "chains" in capsys.readouterr().err


def test_what_does_not_hold_is_shown_and_is_the_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("benches.idle")
    result = Result("idle", "made up", faults=["a tuple is missing"])
    module.measure = lambda settings: result  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benches.idle", module)
    assert script("bench").main(["idle"]) == 1
    assert "NOT RIGHT: a tuple is missing" in capsys.readouterr().out
    result.faults.clear()
    assert script("bench").main(["idle"]) == 0


def test_a_contestant_that_fails_is_a_fault_with_its_last_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("benches.chain")

    def measure(settings: Settings) -> Result:
        compete("chain_bare", "no such file", folder=settings.folder)
        raise AssertionError("it should have failed")

    module.measure = measure  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benches.chain", module)
    assert script("bench").main(["chain"]) == 1
    assert "No such file" in capsys.readouterr().out


def test_a_command_that_prints_something_else_is_no_first_tuple(tmp_path: Path) -> None:
    with pytest.raises(ContestantFailed, match="nothing like it"):
        until_first_tuple_and_exit([sys.executable, "-c", "print('nothing like it')"], tmp_path)


def test_measuring_is_compared_with_a_run_without_and_its_calls_are_timed() -> None:
    result = bench("measuring", "--lines", "64", "--runs", "1")["measuring"]
    assert result["faults"] == []
    rows = {row["name"]: row for row in result["rows"]}
    assert rows["the least of each, measured/unmeasured"]["min"] > 0
    assert 0 < rows["share of a second"]["min"] < 1
    assert 0 < rows["measures of a batch"]["min"] < 1_000
