"""Recorded loads read from files, as values per interval, ready for a `Trace` curve.

Three forms are understood, plain or gzip:

- `counts`: a header, then a time stamp and how many arrived in the interval from it on
  (`timestamp,value` or `period,count`). The interval is the commonest step between rows.
- `values`: one number a line (or columns of numbers under a header, without time stamps).
- `arrivals`: a header, then one row per single request with its time stamp; they are counted.

Time stamps are ISO 8601 with a blank or a T, without zone or all of one zone.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

import numpy as np

from anabranch.workloads.curve_base import CurveError, FloatArray

Form = Literal["counts", "values", "arrivals"]


@dataclass(frozen=True)
class Recording:
    """A load as it was recorded: `values[i]` arrivals in the i-th interval of `interval_s`.

    `filled`: intervals that the recording lacks; they repeat the one before.
    """

    values: tuple[float, ...]
    interval_s: float
    filled: int = 0

    def rebin(self, bin_s: float) -> Recording:
        """The same load in longer intervals; a last one that is not full is left out."""
        ratio = bin_s / self.interval_s
        group = round(ratio)
        if group < 1 or abs(ratio - group) > 1e-6:
            raise CurveError(
                f"trace: expected bin_s to be a multiple of {self.interval_s:g} s, got {bin_s:g}"
            )
        whole = len(self.values) // group * group
        if not whole:
            raise CurveError(f"trace: the recording is shorter than one bin of {bin_s:g} s")
        sums = np.asarray(self.values[:whole]).reshape(-1, group).sum(axis=1)
        return replace(self, values=tuple(sums.tolist()), interval_s=group * self.interval_s)

    def smooth(self, smooth_s: float) -> Recording:
        """Each value the mean of those in the `smooth_s` around it; at the ends, of those there."""
        each = round(smooth_s / self.interval_s)
        if not 1 <= each <= len(self.values):
            length = len(self.values) * self.interval_s
            raise CurveError(
                f"trace: expected smooth_s from {self.interval_s:g} to {length:g} s, "
                f"got {smooth_s:g}"
            )
        around = np.ones(each)
        sums = np.convolve(self.values, around, mode="same")
        counts = np.convolve(np.ones(len(self.values)), around, mode="same")
        return replace(self, values=tuple((sums / counts).tolist()))

    def cut(self, begin_s: float = 0.0, length_s: float | None = None) -> Recording:
        """The part from `begin_s` on, `length_s` long (recorded seconds)."""
        first = int(begin_s / self.interval_s)
        end = None if length_s is None else first + max(1, round(length_s / self.interval_s))
        part = self.values[first:end]
        if begin_s < 0 or not part:
            length = len(self.values) * self.interval_s
            raise CurveError(f"trace: expected begin_s from 0 to {length:g} s, got {begin_s:g}")
        return replace(self, values=part)


def read_recording(
    path: str | Path,
    *,
    form: Form | None = None,
    column: str | None = None,
    interval_s: float | None = None,
) -> Recording:
    """Read a recorded load; `form` is recognised by the content unless given.

    `column`: which column holds the numbers (default: the second beside time stamps, else the
    first). `interval_s`: seconds per line of `values` or per bin of `arrivals` (default 1).
    Raises `CurveError` that names file and line for what it cannot read, `OSError` for no file.
    """
    place = Path(path)
    text = _text(place)
    bare = _bare_numbers(text)
    if bare is not None and form in (None, "values") and column is None:
        return Recording(bare, interval_s or 1.0)
    header, rows = _rows(place, text)
    stamped = bool(rows) and _stamp(rows[0][1][0]) is not None
    if not stamped or form == "values":
        values = _column(place, header, rows, column, default=0)
        return Recording(tuple(values), interval_s or 1.0)
    times = _times(place, rows)
    if form == "arrivals" or (form is None and not _is_regular(times)):
        return _count_arrivals(times, interval_s or 1.0)
    values = _column(place, header, rows, column, default=1)
    return _place(times, np.asarray(values))


def _text(place: Path) -> str:
    try:
        raw = place.read_bytes()
        return (gzip.decompress(raw) if place.suffix == ".gz" else raw).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CurveError(f"{place}: not a text file ({error.reason})") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CurveError(f"{place}: not a whole gzip file ({error})") from error


def _bare_numbers(text: str) -> tuple[float, ...] | None:
    """One number a line and nothing else: the millions of lines that a log of seconds has."""
    try:
        values = np.array(text.split(), dtype=np.float64)
    except ValueError:
        return None
    if not len(values) or not np.all(np.isfinite(values)) or values.min() < 0:
        return None
    return tuple(values.tolist())


Rows = list[tuple[int, list[str]]]


def _rows(place: Path, text: str) -> tuple[list[str], Rows]:
    rows = [(n, row) for n, row in enumerate(csv.reader(text.splitlines()), start=1) if row]
    if rows and _number(rows[0][1][0]) is None and _stamp(rows[0][1][0]) is None:
        header, rows = rows[0][1], rows[1:]
    else:
        header = []
    if not rows:
        raise CurveError(f"{place}: holds no recorded values")
    return header, rows


def _column(
    place: Path, header: list[str], rows: Rows, column: str | None, default: int
) -> list[float]:
    index = default
    if column is not None:
        if column not in header:
            known = ", ".join(header) or "none, it has no header"
            raise CurveError(f"{place}: has no column {column!r}; columns: {known}")
        index = header.index(column)
    values = []
    for line, row in rows:
        value = _number(row[index]) if index < len(row) else None
        if value is None or not 0 <= value < float("inf"):
            raise CurveError(f"{place}:{line}: expected a number of 0 or more, got {row!r}")
        values.append(value)
    return values


def _times(place: Path, rows: Rows) -> FloatArray:
    """Seconds since the earliest row."""
    stamps: list[datetime] = []
    for line, row in rows:
        stamp = _stamp(row[0])
        if stamp is None:
            raise CurveError(f"{place}:{line}: expected a time stamp, got {row[0]!r}")
        stamps.append(stamp)
    try:
        first = min(stamps)
        return np.array([(s - first).total_seconds() for s in stamps])
    except TypeError as error:
        raise CurveError(f"{place}: some time stamps have a zone and some have none") from error


def _is_regular(times: FloatArray) -> bool:
    if len(times) < 2:
        return True
    _, most = _commonest_step(times)
    return most * 2 > len(times) - 1


def _commonest_step(times: FloatArray) -> tuple[float, int]:
    steps = Counter(np.round(np.diff(np.sort(times)), 3).tolist())
    step, most = max(steps.items(), key=lambda item: (item[1], item[0]))
    return float(step), most


def _count_arrivals(times: FloatArray, interval_s: float) -> Recording:
    if interval_s <= 0:
        raise CurveError(f"trace: interval_s must be above 0, got {interval_s}")
    counts = np.bincount((times / interval_s).astype(np.int64))
    return Recording(tuple(counts.astype(np.float64).tolist()), interval_s)


def _place(times: FloatArray, values: FloatArray) -> Recording:
    """Rows on a regular grid; two of one interval are averaged, gaps repeat what was before."""
    step = _commonest_step(times)[0] if len(times) > 1 else 1.0
    if step <= 0:
        raise CurveError("trace: most rows have the same time stamp; is it form=arrivals?")
    slots = np.round(times / step).astype(np.int64)
    rows = np.bincount(slots)
    sums = np.bincount(slots, weights=values)
    here = np.maximum.accumulate(np.where(rows > 0, np.arange(len(rows)), 0))
    placed = sums[here] / rows[here]
    return Recording(tuple(placed.tolist()), step, filled=int((rows == 0).sum()))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _stamp(text: str) -> datetime | None:
    # Python 3.11 reads at most six digits of a second; recordings have seven and nine.
    head, dot, digits = text.strip().partition(".")
    try:
        return datetime.fromisoformat(f"{head}.{digits[:6]}" if dot else head)
    except ValueError:
        return None
