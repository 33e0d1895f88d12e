"""`anabranch report --parquet`: reports of runs as tables."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from anabranch.cli import main
from anabranch.report_tables import TABLES, read
from anabranch.runtime.reporting.report import Event, HostReport, Samples, write_report
from anabranch.runtime.values.kinds import EventKind
from anabranch.spark_engine.report import SparkReport
from tests.anabranch.fakes import operator_report, report

PAGE = Path(__file__).parents[2] / "docs" / "reports.md"


def called(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / table).to_pylist()
    return found


def written(path: Path, **changes: Any) -> Path:
    samples = Samples(
        t=[0.5, 1.0],
        instances=[1, 2],
        load=[0.1, 0.95],
        rate_in=[0.0, 10.0],
        rate_out=[0.0, 20.0],
        queue=[0, 3],
        held=[0, 1],
        latency_p50_ms=[None, 1.5],
        latency_p99_ms=[None, 9.0],
    )
    out = operator_report(
        "out", "sink", samples=samples, latency_ms={"p50": 1.5}, late={"bury": 2}, capacity=7.5
    )
    lines = operator_report("lines", "source", sent_to={"out": 1000}, left_out={"too old": 2})
    joined = Event(t=3.2, operator="out", kind=EventKind.JOINED, instances=2, instance="out.1")
    given = {
        "operators": [lines, out],
        "events": [joined],
        "dead_reasons": {"too odd": 3},
        "hosts": [HostReport(processors=2, cpu_s=None, agent_cpu_s=0.1, seconds=12.3)],
        "latency_ms": {"p99": 9.0},
        "ledger": {"faults": ["lines.0 made 5 results"], "lost": 1},
        **changes,
    }
    write_report(report(**given), path)
    return path


def test_the_page_describes_each_column_of_each_table() -> None:
    tables = re.findall(r"^`(\w+)`: (.*?)(?=^`|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    columns = re.compile(r"^\| `([\w*]+)` \| (\S+) \|", re.MULTILINE)
    every = re.compile(r"latency_p\d+_ms")
    known = {
        name: {every.sub("latency_*_ms", c) if name != "metrics" else c: t for c, t in of.items()}
        for name, of in TABLES.items()
    }
    assert {name: dict(columns.findall(text)) for name, text in tables} == known


def test_what_a_report_has_is_in_the_tables(tmp_path: Path) -> None:
    path, folder = written(tmp_path / "run.json"), tmp_path / "runs"
    done = called("--parquet", folder, path)
    assert (done.exit_code, done.output) == (0, f"1 run in {folder}: {', '.join(TABLES)}\n")
    (run,) = rows(folder, "runs")
    assert run["started_at"] == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert (run["pipeline"], run["engine"], run["file"]) == ("headlines", "processes", str(path))
    assert (run["latency_p50_ms"], run["latency_p99_ms"]) == (None, 9.0)
    lines, out = rows(folder, "operators")
    assert (lines["operator"], lines["late_bury"], lines["capacity"]) == ("lines", 0, None)
    assert (out["late_bury"], out["latency_p50_ms"], out["capacity"]) == (2, 1.5, 7.5)
    assert [(m["t"], m["load"], m["latency_p99_ms"]) for m in rows(folder, "metrics")] == [
        (0.5, 0.1, None),
        (1.0, 0.95, 9.0),
    ]
    one = {"run": run["run"]}
    assert rows(folder, "streams") == [one | {"operator": "lines", "to": "out", "tuples": 1000}]
    (event,) = rows(folder, "events")
    assert (event["kind"], event["instance"], event["cause"]) == ("joined", "out.1", None)
    (ledger,) = rows(folder, "ledgers")
    assert (ledger["lost"], ledger["faults"]) == (1, ["lines.0 made 5 results"])
    assert [b["operator"] for b in rows(folder, "balances")] == ["out"]
    assert rows(folder, "dead_reasons") == [one | {"reason": "too odd", "tuples": 3}]
    too_old = {"operator": "lines", "reason": "too old", "tuples": 2}
    assert rows(folder, "left_out") == [one | too_old]
    assert rows(folder, "hosts")[0]["cpu_s"] is None


def test_runs_are_added_and_one_that_comes_again_is_there_once(tmp_path: Path) -> None:
    first, second = written(tmp_path / "1.json"), written(tmp_path / "2.json", seed=2)
    spark = tmp_path / "spark.json"
    job = SparkReport("headlines", "batch", wall_s=1.5)
    job.add(
        {"out": {"received": 5, "delivered": 4, "dead": 1, "late_drop": 2, "left out: too old": 3}}
    )
    spark.write_text(job.to_json())
    folder = tmp_path / "runs"
    assert called("--parquet", folder, first).exit_code == 0
    assert called("--parquet", folder, first, second, spark).output.startswith("3 runs in ")
    found = {run["run"]: run for run in rows(folder, "runs")}
    assert sorted(run["file"] for run in found.values()) == [str(first), str(second), str(spark)]
    (of_spark,) = [run for run in found.values() if run["engine"] == "spark"]
    assert (of_spark["started_at"], of_spark["seconds"]) == (None, 1.5)
    (out,) = [one for one in rows(folder, "operators") if one["run"] == of_spark["run"]]
    assert (out["tuples_in"], out["tuples_out"], out["dead"], out["late_drop"]) == (5, 4, 1, 2)
    assert len(rows(folder, "ledgers")) == 2
    too_old = {"operator": "out", "reason": "too old", "tuples": 3}
    assert {"run": of_spark["run"], **too_old} in rows(folder, "left_out")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"engine": "spark"}', '{"pipeline": 5}', "\xff"])
def test_what_is_no_report_is_refused_before_anything_is_written(tmp_path: Path, text: str) -> None:
    good, bad = written(tmp_path / "good.json"), tmp_path / "bad.json"
    bad.write_text(text, encoding="latin-1")
    done = called("--parquet", tmp_path / "runs", good, bad)
    assert done.exit_code == 2
    assert f"{bad}: expected a report as `anabranch run --report` writes it" in done.output
    assert not (tmp_path / "runs").exists()


def test_a_file_that_is_not_there_and_a_folder_that_cannot_be_written_are_named(
    tmp_path: Path,
) -> None:
    done = called("--parquet", tmp_path / "runs", tmp_path / "none.json")
    assert (done.exit_code, str(tmp_path / "none.json") in done.output) == (2, True)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "runs").touch()
    done = called("--parquet", tmp_path / "runs", written(tmp_path / "run.json"))
    assert done.exit_code == 1
    assert f"cannot write to {tmp_path / 'runs' / 'runs'}" in done.output


def test_each_table_has_its_types_also_without_rows(tmp_path: Path) -> None:
    read(written(tmp_path / "run.json", operators=[], events=[])).write(tmp_path)
    schema = pq.read_schema(next((tmp_path / "metrics").iterdir()))
    assert schema.names == list(TABLES["metrics"])
    assert str(schema.field("queue").type) == "int64"


def test_a_report_that_is_named_twice_is_one_run(tmp_path: Path) -> None:
    path, folder = written(tmp_path / "r.json"), tmp_path / "runs"
    done = called("--parquet", folder, path, path)
    assert (done.exit_code, done.output) == (0, f"1 run in {folder}: {', '.join(TABLES)}\n")
    assert len(rows(folder, "runs")) == 1
