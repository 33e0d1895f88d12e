"""Reports of runs as tables: one folder of Parquet files for each, a file for each run.

`docs/reports.md` describes each column. Pandas, Spark and others read a folder as one table, so
runs are added by writing more files. A run is known by the digest of its report: one that is
written again takes the place of the same file.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from anabranch.runtime.columns.schemas import arrow_schema
from anabranch.runtime.reporting.report import PERCENTILES, OperatorReport, Report, put_report
from anabranch.spark_engine.report import LEFT_OUT

LATE = ("bury", "emit", "drop")
_LATENCY = {f"latency_{name}_ms": "double" for name in PERCENTILES}
_LATE = {f"late_{what}": "long" for what in LATE}

TABLES: dict[str, dict[str, str]] = {
    "runs": {
        "run": "string",
        "file": "string",
        "pipeline": "string",
        "engine": "string",
        "started_at": "timestamp",
        "seconds": "double",
        "ended": "string",
        "ended_by": "string",
        "failure": "string",
        "delivery": "string",
        "resumed": "int",
        "seed": "long",
        **_LATENCY,
    },
    "operators": {
        "run": "string",
        "operator": "string",
        "kind": "string",
        "policy": "string",
        "tuples_in": "long",
        "tuples_out": "long",
        "processed": "long",
        "dead": "long",
        **_LATE,
        "ahead": "long",
        "deaths": "int",
        "joins": "int",
        "leaves": "int",
        "instances_peak": "int",
        "instances_ever": "int",
        "messages": "long",
        "capacity": "double",
        "busy_s": "double",
        "blocked_s": "double",
        "cpu_s": "double",
        "stay_ms": "double",
        **_LATENCY,
    },
    "streams": {"run": "string", "operator": "string", "to": "string", "tuples": "long"},
    "metrics": {
        "run": "string",
        "operator": "string",
        "t": "double",
        "instances": "int",
        "load": "double",
        "rate_in": "double",
        "rate_out": "double",
        "queue": "long",
        "held": "long",
        "latency_p50_ms": "double",
        "latency_p99_ms": "double",
        "offered": "double",
    },
    "events": {
        "run": "string",
        "number": "int",
        "t": "double",
        "operator": "string",
        "instance": "string",
        "kind": "string",
        "instances": "int",
        "detail": "string",
        "cause": "string",
        "label": "string",
    },
    "ledgers": {
        "run": "string",
        "tuples_in": "long",
        "tuples_out": "long",
        "dead_letters": "long",
        "lost": "long",
        "duplicated": "long",
        "in_flight": "long",
        "balanced": "boolean",
        "excused": "boolean",
        "channels": "long",
        "faults": "array<string>",
    },
    "balances": {
        "run": "string",
        "operator": "string",
        "received": "long",
        "processed": "long",
        "dead": "long",
        "queued": "long",
        "balanced": "boolean",
    },
    "dead_reasons": {"run": "string", "reason": "string", "tuples": "long"},
    "left_out": {"run": "string", "operator": "string", "reason": "string", "tuples": "long"},
    "hosts": {
        "run": "string",
        "host": "int",
        "processors": "int",
        "cpu_s": "double",
        "agent_cpu_s": "double",
        "seconds": "double",
    },
}
"""The columns of each table, with their types as Spark names them."""

Row = dict[str, Any]


class NoReport(ValueError):
    """The file is none. The message says what was expected."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Of one run."""

    run: str
    rows: Mapping[str, list[dict[str, Any]]]

    def write(self, folder: Path) -> None:
        """Raises `OSError`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        for name, columns in TABLES.items():
            rows = [{"run": self.run, **row} for row in self.rows[name]]
            table = pa.Table.from_pylist(rows, arrow_schema(columns))
            data = pa.BufferOutputStream()
            pq.write_table(table, data)
            path = folder / name / f"{self.run}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            put_report(data.getvalue().to_pybytes(), path)


def read(path: Path) -> Tables:
    """Of the report in a file. Raises `NoReport` or `OSError`."""
    data = path.read_bytes()
    expected = f"{path}: expected a report as `anabranch run --report` writes it"
    try:
        plain = json.loads(data)
        if not isinstance(plain, dict):
            raise NoReport(f"{expected}, got a {type(plain).__name__}")
        if plain.get("engine") == "spark":
            rows = _of_spark(plain)
        else:
            rows = _of_processes(msgspec.json.decode(data, type=Report))
    except (ValueError, KeyError, AttributeError, msgspec.DecodeError) as error:
        if isinstance(error, NoReport):
            raise
        raise NoReport(f"{expected} ({error})") from None
    run = hashlib.sha256(data).hexdigest()[:16]
    found = {name: rows.get(name, []) for name in TABLES}
    found["runs"][0]["file"] = os.fspath(path)
    return Tables(run, found)


def _of_spark(plain: dict[str, Any]) -> dict[str, list[Row]]:
    """A job has no ledger and no instances."""
    left_out = [
        {"operator": name, "reason": reason.removeprefix(LEFT_OUT), "tuples": tuples}
        for name, counts in plain["operators"].items()
        for reason, tuples in counts.items()
        if reason.startswith(LEFT_OUT)
    ]
    operators = [
        {
            "operator": name,
            "tuples_in": counts.get("received", 0),
            "tuples_out": counts.get("results", 0) + counts.get("delivered", 0),
            "dead": counts.get("dead", 0),
            **{f"late_{what}": counts.get(f"late_{what}", 0) for what in LATE},
        }
        for name, counts in plain["operators"].items()
    ]
    run = {
        "pipeline": plain["pipeline"],
        "engine": "spark",
        "seconds": plain["wall_s"],
        "ended": plain["ended"],
        "failure": plain["failure"] or None,
    }
    return {"runs": [run], "operators": operators, "left_out": left_out}


def _of_processes(report: Report) -> dict[str, list[Row]]:
    return {
        "runs": [_run(report)],
        "operators": [_operator(one) for one in report.operators],
        "streams": [
            {"operator": one.name, "to": to, "tuples": tuples}
            for one in report.operators
            for to, tuples in one.sent_to.items()
        ],
        "metrics": list(itertools.chain.from_iterable(map(_metrics, report.operators))),
        "events": [
            {"number": number, **_plain(event)} for number, event in enumerate(report.events)
        ],
        "ledgers": [_plain(report.ledger)],
        "balances": [{**_plain(one), "operator": one.name} for one in report.ledger.operators],
        "dead_reasons": [
            {"reason": reason, "tuples": tuples} for reason, tuples in report.dead_reasons.items()
        ],
        "left_out": [
            {"operator": one.name, "reason": reason, "tuples": tuples}
            for one in report.operators
            for reason, tuples in one.left_out.items()
        ],
        "hosts": [{"host": number, **_plain(one)} for number, one in enumerate(report.hosts)],
    }


def _run(report: Report) -> Row:
    return {
        **_plain(report),
        "engine": "processes",
        "started_at": dt.datetime.fromisoformat(report.started_at),
        **_latency(report.latency_ms),
    }


def _operator(one: OperatorReport) -> Row:
    late = {f"late_{what}": one.late.get(what, 0) for what in LATE}
    return {**_plain(one), "operator": one.name, **late, **_latency(one.latency_ms)}


def _metrics(one: OperatorReport) -> Iterator[Row]:
    """Lists of the report side by side; the offered load is there only of paced sources."""
    names = [name for name in TABLES["metrics"] if name not in ("run", "operator")]
    lists = (getattr(one.samples, name) for name in names)
    for values in itertools.islice(itertools.zip_longest(*lists), len(one.samples.t)):
        yield {"operator": one.name, **dict(zip(names, values, strict=True))}


def _latency(found: Mapping[str, float]) -> dict[str, float | None]:
    return {f"latency_{name}_ms": found.get(name) for name in PERCENTILES}


def _plain(value: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain
