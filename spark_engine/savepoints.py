"""Savepoints of jobs: what a job begins with, and what a stream leaves when it stops.

Stations keep between two batches what instances keep in their journals: the same changes of the
state of keys, and of event time. So rows of a savepoint become what was kept of a batch before the
first one, and what is kept of the last batch becomes rows.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.journaling import restore
from anabranch.runtime.keyed.watermarks import Stamper
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.spec import Span
from anabranch.runtime.savepoint import folder
from anabranch.runtime.savepoint.folder import Columns, Savepoint, SavepointError
from anabranch.runtime.savepoint.inputs import Position, is_backfill, rows_of_files
from anabranch.runtime.savepoint.opening import open_savepoint
from anabranch.runtime.savepoint.state_rows import (
    KeptState,
    head_of,
    row_of_watermark,
    rows_of_devices,
    rows_of_keys,
    rows_of_source,
)
from anabranch.runtime.savepoint.versions import STATE_FORMAT, version
from anabranch.spark_engine.ends import SparkRows
from anabranch.spark_engine.job import Job
from anabranch.spark_engine.mapping import Station, bucket_of, buckets_of
from anabranch.spark_engine.rows import Kind, Row

# -- at the beginning ----------------------------------------------------------------------------


def opened(pipeline: Pipeline, path: Path | None, given: Mapping[str, object]) -> Savepoint | None:
    """That from which a job begins. Raises `SavepointError`."""
    if path is None:
        return None
    _refuse_rows(pipeline, given)
    return open_savepoint(pipeline, path)


def check_stop(pipeline: Pipeline, state: Path | None, given: Mapping[str, object]) -> None:
    """Raise `SavepointError` unless a stream can leave a savepoint."""
    if state is None:
        raise SavepointError("until_committed needs state, the folder for the savepoint")
    folder.check_package()
    _refuse_rows(pipeline, given)


def free_place(state: str | Path | None) -> Path:
    """For the savepoint of a backfill. Raises `SavepointError`."""
    if state is None:
        raise SavepointError("backfill needs state, the folder for the savepoint")
    folder.check_package()
    path = Path(state).absolute() / folder.SAVEPOINT
    if path.exists():
        raise SavepointError(
            f"state folder {str(path.parent)!r} holds a savepoint already: name another folder, or "
            "move it away"
        )
    return path


def _refuse_rows(pipeline: Pipeline, given: Mapping[str, object]) -> None:
    for operator in pipeline.operators.values():
        if operator.name in given or isinstance(operator.source, SparkRows):
            raise SavepointError(
                f"source {operator.name!r} is a DataFrame, of which a savepoint cannot say how far "
                "it is read; use ab.files"
            )


def state_rows(job: Job, savepoint: Savepoint | None) -> list[Row]:
    """What stations have kept, as if of a batch before the first one."""
    if savepoint is None:
        return []
    kept = KeptState(savepoint)
    stations = {str(s.operator): s for s in job.plan.keeping if not s.reads_time}
    buckets = {name: buckets_of(s, job.groups, job.partitions) for name, s in stations.items()}
    changes = {
        (name, bucket): [_begun(job, station, kept), kept.time(name)]
        for name, station in stations.items()
        for bucket in range(buckets[name])
    }
    for name, bucket, change in kept.keyed(job.groups, lambda o, g: bucket_of(g, buckets[o])):
        changes[name, bucket].append(change)
    rows = [
        Row(Kind.STATE, stations[name].number, bucket=bucket, number=number, data=data)
        for (name, bucket), some in changes.items()
        for number, data in enumerate(some)
    ]
    stamps = kept.stamps()
    rows += [
        Row(Kind.STATE, station.number, data=stamps[station.operator])
        for station in job.plan.keeping
        if station.reads_time and station.operator in stamps
    ]
    return rows


def _begun(job: Job, station: Station, kept: KeptState) -> bytes:
    """As `KeyedWork` keeps it."""
    watermark = kept.watermark(station.operator, reads_time=False)
    reached = {job.plan.stations[name].number: watermark for name in station.inputs}
    return pickle.dumps((reached, watermark), 5)


# -- at the end ----------------------------------------------------------------------------------


def write(
    path: Path,
    pipeline: Pipeline,
    job: Job,
    kept: Iterable[Row],
    positions: Mapping[str, Position],
    counts: Mapping[str, Mapping[str, int]],
    span: Span | None,
) -> None:
    """`kept`: the rows of the last batch; `span`: of the event times that were taken. Raises
    `SavepointError`, `OSError`."""
    passed_s = 0.0 if is_backfill(span) else max(0.0, time.time() - job.started_s)
    head = head_of(pipeline, STATE_FORMAT, version(), passed_s, span)
    rows = chain(
        _of_sources(pipeline, positions), _of_stations(job, kept), [_ledger(pipeline, counts)]
    )
    folder.write(path, head, rows)


def _of_sources(
    pipeline: Pipeline, positions: Mapping[str, Position]
) -> Iterator[tuple[str, Columns]]:
    for name, at in positions.items():
        yield from rows_of_source(name, at.returned, pulled=at.pulled, digest=at.digest)
        source = pipeline.operators[OperatorName(name)].source
        yield from rows_of_files(name, source, at.covered)


def _of_stations(job: Job, kept: Iterable[Row]) -> Iterator[tuple[str, Columns]]:
    """`kept`: sorted by station, bucket and number."""
    told: list[bytes] = []
    place: tuple[int, int] | None = None
    for row in kept:
        if place is not None and place != (row.to, row.bucket):
            yield from _of_bucket(job, *place, told)
            told = []
        place = row.to, row.bucket
        told.append(row.data)
    if place is not None:
        yield from _of_bucket(job, *place, told)


def _of_bucket(
    job: Job, number: int, bucket: int, told: list[bytes]
) -> Iterator[tuple[str, Columns]]:
    station = job.plan.by_number[number]
    operator = job.operators[station.operator]
    name, instance = str(operator.name), f"{operator.name}.{bucket}"
    if station.reads_time:
        assert operator.timing is not None
        stamper = Stamper(operator.timing)
        watermark = stamper.watermark(stamper.restore(told))
        yield row_of_watermark(name, instance, watermark, reads_time=True)
        yield from rows_of_devices(name, stamper.latest)
        return
    held = Holdings(name, job.groups)
    restore(held, told[1:])
    yield from rows_of_keys(name, held)
    yield row_of_watermark(name, instance, held.watermark, reads_time=False)


def _ledger(
    pipeline: Pipeline, counts: Mapping[str, Mapping[str, int]]
) -> tuple[str, dict[str, list[Any]]]:
    names = [*map(str, pipeline.operators)]
    rows = [counts.get(name, {}) for name in names]
    return (
        "ledger",
        {
            "operator": names,
            "tuples_in": [row.get("received", 0) for row in rows],
            "processed": [row.get("received", 0) for row in rows],
            "tuples_out": [row.get("results", row.get("delivered", 0)) for row in rows],
            "dead": [row.get("dead", 0) for row in rows],
            "late": [sum(n for k, n in row.items() if k.startswith("late_")) for row in rows],
        },
    )
