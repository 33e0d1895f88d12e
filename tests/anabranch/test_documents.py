"""What documents show runs, and does what they say: every example in Python, the costs and bounds
that they tell, and what their commands are called with (`test_document_commands`)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.commands.failing import INTERRUPTED, WRONG_USAGE
from anabranch.commands.run import command
from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.live.agent import deaths, starter, watchdog
from anabranch.runtime.live.instance import poison_guard
from anabranch.runtime.pipeline.definition import DELIVERIES
from anabranch.runtime.reporting.report import Report
from tests.anabranch.fakes import operator_report, report
from tests.runtime.agent_runs import until
from tests.runtime.processes import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
COMMAND = [sys.executable, "-m", "anabranch.cli"]
TIMEOUT_S = PATIENCE_S
CALLS = 200_000


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def examples(page: str) -> list[str]:
    """The Python blocks of a page, in their order."""
    return re.findall(r"```python\n(.*?)```", text(page), re.DOTALL)


def run(page: str, number: int = 0) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(examples(page)[number], f"{page}, example {number}", "exec"), names)
    return names


BY_KEY, FAILURES, DELIVERY = "docs/state-by-key.md", "docs/failures.md", "docs/delivery.md"
TESTING = "docs/testing.md"
HEADLINES = examples("README.md")[0]
HOSTS = "docs/hosts.md"
RUN_HERE = {
    "README.md": 2,
    "docs/scaling.md": 1,
    HOSTS: 1,
    BY_KEY: 2,
    TESTING: 3,
    FAILURES: 1,
    DELIVERY: 1,
}
RUN_ELSEWHERE = {
    "docs/backfill.md": ("test_backfill_page.py", 1),
    "docs/mqtt.md": ("test_mqtt_page.py", 1),
    "docs/policies.md": ("test_policies_page.py", 6),
    "docs/spark.md": ("../spark_bridge/test_spark_page.py", 2),
    "docs/spark-engine.md": ("../spark_engine/test_spark_ends.py", 1),
}


def test_every_example_in_python_runs_in_a_test() -> None:
    """Whoever adds one adds its test, and counts it here."""
    found = {p.relative_to(ROOT).as_posix(): len(examples(str(p))) for p in PAGES}
    counted = RUN_HERE | {page: number for page, (_, number) in RUN_ELSEWHERE.items()}
    assert {page: number for page, number in found.items() if number} == counted
    for page, (file, _) in RUN_ELSEWHERE.items():
        assert Path(page).name in (Path(__file__).parent / file).read_text()


def test_the_first_pipeline_writes_its_long_words(tmp_path: Path) -> None:
    (tmp_path / "headlines.py").write_text(HEADLINES)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("so much depends\nupon a red wheel\n")
    done = subprocess.run(
        [*COMMAND, "run", "headlines.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert "balanced: every tuple is accounted for" in done.stdout, done.stderr
    words = (tmp_path / "words.jsonl").read_text().splitlines()
    assert sorted(map(json.loads, words)) == ["depends", "much", "upon", "wheel"]


def test_the_pipeline_of_three_hosts_squares_numbers(tmp_path: Path) -> None:
    (tmp_path / "squares.py").write_text(examples("README.md")[1])
    done = subprocess.run(
        [*COMMAND, "run", "squares.py", "--duration", "1"],
        cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert "balanced: every tuple is accounted for" in done.stdout, done.stderr
    found = (tmp_path / "squares.jsonl").read_text().splitlines()
    assert sorted(map(int, found)) == [n * n for n in range(len(found))]


def test_the_pipeline_that_scales_splits_lines() -> None:
    outcome = testing.run(run("docs/scaling.md")["pipeline"], {"lines": ["a b", "c"]})
    assert sorted(outcome["out"]) == ["a", "b", "c"]


def test_the_pipeline_that_says_where_its_instances_may_be_is_one() -> None:
    pipeline = run(HOSTS)["pipeline"]
    pipeline.validate()
    assert [name for name, o in pipeline.operators.items() if o.place.near] == ["detect", "out"]
    assert testing.run(pipeline, {"camera": [-1, 2]})["out"] == [1, 2]


@pytest.mark.slow
def test_the_forecast_is_what_the_command_prints(tmp_path: Path) -> None:
    """With the costs that the block shows as measured. The figures of a seed change with the code
    of live runs, so below the costs only the first word of each line is compared, and one seed is
    as good as five."""
    block = re.search(r"```console\n(.*?)```", text("docs/simulate.md"), re.DOTALL)
    assert block is not None
    shown = re.sub(r" *#.*", "", block[1]).replace("\\\n", "").partition("$ anabranch simulate")[2]
    arguments, _, told = shown.partition("\n")
    (tmp_path / "headlines.py").write_text(HEADLINES)
    (tmp_path / "report.json").write_bytes(measured().to_json())
    done = subprocess.run(
        [*COMMAND, "simulate", *arguments.split(), "--seeds", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "5 seeds" in told
    told = told.replace("5 seeds", "1 seed")
    assert outlined(done.stdout) == outlined(told), "the page shows what was printed before"


def outlined(told: str) -> tuple[str, list[str]]:
    """The costs as they are, and what the other lines begin with."""
    costs, _, rest = told.partition("\n\noperator  instances")
    return costs, [line.split()[0] for line in rest.splitlines()[1:] if line]


def measured() -> Report:
    return report(
        operators=[
            operator_report("lines", "source", tuples_in=572_601, tuples_out=572_601),
            operator_report("split", tuples_in=572_601, tuples_out=3_275_050, capacity=811e3),
            operator_report("long", tuples_in=3_275_050, tuples_out=1_998_050, capacity=6.91e6),
            operator_report(
                "out", "sink", tuples_in=1_998_050, tuples_out=1_998_050, capacity=1.85e6
            ),
        ]
    )


def test_clicks_are_counted_by_user_quiet_time_and_minute() -> None:
    pipeline = ab.Pipeline("clicks")
    run(BY_KEY)["build"](pipeline.source("clicks", ab.items([])))
    said = [(1, "u", "/"), (5, "u", "/a"), (50, "v", "/"), (70, "u", "/"), (72, "u", "/b")]
    clicks = [{"user": u, "phone": "p", "at": float(at), "page": page} for at, u, page in said]
    outcome = testing.run(pipeline, {"clicks": clicks})
    assert outcome["counts"][-1] == ("u", 4)
    assert sorted(outcome["quiet"]) == [("u", 2, 2), ("u", 2, 2), ("v", 1, 1)]
    told = [(r.key, r.start, r.value) for r in outcome["out"]]
    assert sorted(told) == [("u", 0.0, 2), ("u", 60.0, 2), ("v", 0.0, 1)]


def test_the_examples_for_pytest_pass() -> None:
    for example, tests in enumerate((3, 1, 1)):
        names = run(TESTING, example)
        found = [name for name in names if name.startswith("test_")]
        assert len(found) == tests
        for name in found:
            names[name]()


def test_the_ready_pipelines_can_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("scipy", reason="the pipeline quotes fits with SciPy")
    monkeypatch.chdir(tmp_path)
    names = run(BY_KEY, 1)
    for name in ("words", "tops", "fits", "means"):
        names[name].validate()


# -- when things break -----------------------------------------------------------------------------


def call(n: int) -> dict[str, Any]:
    return {"user": f"u{n % 100}", "cents": n % 7}


@pytest.fixture
def bill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ab.Pipeline:
    """The pipeline of the page, beside its input."""
    pytest.importorskip("pyarrow", reason="the example writes Parquet files")
    monkeypatch.chdir(tmp_path)
    Path("bill.py").write_text(examples(DELIVERY)[0])
    Path("calls.jsonl").write_text("".join(f"{json.dumps(call(n))}\n" for n in range(CALLS)))
    pipeline: ab.Pipeline = run(DELIVERY)["pipeline"]
    return pipeline


def rows() -> Counter[tuple[str, int]]:
    from pyarrow import parquet

    tables = map(parquet.read_table, Path("totals").glob("*.parquet"))
    return Counter((row["user"], row["cents"]) for table in tables for row in table.to_pylist())


def expected_rows() -> Counter[tuple[str, int]]:
    totals: defaultdict[str, int] = defaultdict(int)
    found: Counter[tuple[str, int]] = Counter()
    for n in range(CALLS):
        user = call(n)["user"]
        totals[user] += call(n)["cents"]
        found[user, totals[user]] += 1
    return found


def test_the_program_that_kills_an_instance_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "headlines.py").write_text(HEADLINES)
    (tmp_path / "killing.py").write_text(examples(FAILURES)[0])
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "topics.txt").write_text("so much depends upon a red wheel\n" * 100_000)
    done = subprocess.run(
        [sys.executable, "killing.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    (told,) = re.findall(r"while it works, and prints `(.*?)`\.", text(FAILURES))
    assert done.stdout == f"{told}\n", done.stderr


def test_the_bill_is_right_although_every_process_of_it_dies(bill: ab.Pipeline) -> None:
    with ab.start(bill) as going:
        for operator in ("calls", "total", "out"):
            until(lambda: going.snapshot().operator("total").tuples_in)
            os.kill(going.snapshot().operator(operator).members[0].pid, signal.SIGKILL)
        report = going.wait(TIMEOUT_S)
    assert report.ok
    assert sum(o.deaths for o in report.operators) == 3
    assert rows() == expected_rows()


def test_the_bill_is_right_although_all_its_processes_die_at_once(bill: ab.Pipeline) -> None:
    kept, resumed = re.findall(r"anabranch (run bill\.py .*?) +# (?:keep|all)", text(DELIVERY))
    with subprocess.Popen([*COMMAND, *kept.split()], stdout=subprocess.DEVNULL) as first:
        until(lambda: [*Path("totals").glob("*.parquet")])
        first.kill()
    again = subprocess.run([*COMMAND, *kept.split()], capture_output=True, timeout=TIMEOUT_S)
    assert b"go on with it with --resume" in again.stderr
    second = subprocess.run([*COMMAND, *resumed.split()], capture_output=True, timeout=TIMEOUT_S)
    assert second.returncode == 0, second.stderr
    assert b"balanced: every tuple is accounted for" in second.stdout
    assert rows() == expected_rows()
    assert [*Path("bill.state").iterdir()] == []


def test_the_unit_for_systemd_knows_options_and_exit_codes() -> None:
    unit = dict(re.findall(r"^    (\w+)=(.*)$", text("docs/service.md"), re.MULTILINE))
    _, _, arguments = unit["ExecStart"].partition(" run ")
    values = command.make_context("run", arguments.split()).params
    assert values["resume_or_begin"]
    assert values["state"] == Path("bill.state")
    assert int(unit["RestartPreventExitStatus"]) == WRONG_USAGE
    assert int(unit["SuccessExitStatus"]) == INTERRUPTED


def test_every_kind_of_delivery_is_told() -> None:
    told = re.findall(r'^\| `"(\S+)"`', text(DELIVERY), re.MULTILINE)
    assert told == [*DELIVERIES]


def test_bounds_that_are_told_are_those_of_the_code() -> None:
    told = text(FAILURES)
    first_s, last_s = DEFAULT_LIMITS.reconnect_first_s, DEFAULT_LIMITS.reconnect_max_s
    assert f"dies {deaths.RESUMES_MAX + 1} times within {deaths.RESUMES_WINDOW_S:g} s" in told
    assert f"More than {poison_guard.IN_A_ROW_MAX} in a row fail the run" in told
    assert f"a resumption is tried for {starter.START_TRIES_S:g} s" in told
    assert f"reported after {watchdog.HANG_S:g} s" in told
    assert f"dialled again, {first_s:g} to {last_s:g} s later" in told


def test_mistakes_are_told_as_the_page_of_the_command_line_shows(tmp_path: Path) -> None:
    block = text("docs/cli.md").partition("Mistakes point at your line:\n\n")[2]
    shown = re.findall(r"^    \$ anabranch (.*)\n((?:    (?!\$).*\n)+)", block, re.MULTILINE)
    wrong = [HEADLINES.replace("flat_map", "flat_mpa"), HEADLINES]
    assert len(shown) == len(wrong)
    for (arguments, told), content in zip(shown, wrong, strict=True):
        (tmp_path / "headlines.py").write_text(content)
        done = subprocess.run(
            [*COMMAND, *arguments.split()],
            cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        assert done.returncode == WRONG_USAGE
        assert done.stderr == "".join(f"{line[4:]}\n" for line in told.splitlines())
