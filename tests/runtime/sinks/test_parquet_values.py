"""A value comes back out of its column as it was, or does not come into it; a type is named as
Arrow prints it, and a mistake is found while the pipeline is built."""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.runtime.columns.schemas import arrow_schema
from anabranch.runtime.columns.tables import table_of
from anabranch.runtime.columns.types import type_called
from anabranch.runtime.sinks.parquet import parquet
from anabranch.runtime.values.checks import PipelineError

UTC = dt.UTC
NOON = dt.datetime(2026, 1, 1, 12)
FINE = NOON.replace(microsecond=5)
FIRST, LAST = dt.datetime.min, dt.datetime.max
EAST, WEST = (dt.timezone(dt.timedelta(hours=hours)) for hours in (14, -12))


class Level(IntEnum):
    LOW = 1


class Mood(StrEnum):
    GOOD = "good"


def written(values: list[Any], kind: Any) -> tuple[list[Any], list[Any]]:
    """What is in the column, and what became dead letters."""
    schema = None if kind is None else arrow_schema({"v": kind})
    table, dead = table_of([{"v": value} for value in values], schema)
    held = [] if table is None else table.column("v").to_pylist()
    return held, [letter.tuple["v"] for letter in dead]


MASKED = np.ma.array([1, 2], mask=[False, True])
FITTING = [
    (int, [1, None, -1, 2.0, np.int64(5), Level.LOW]),
    ("int8", [127, -128]),
    (float, [1.5, 1, np.float32(0.5), np.int64(3), float("inf")]),
    ("float", [0.5, 16777216, float("-inf"), 0.0]),
    (bool, [True, np.True_]),
    (str, ["a", Mood.GOOD, np.str_("b")]),
    (bytes, [b"a", bytearray(b"b")]),
    ("decimal128(10, 2)", [Decimal("1.25"), 3]),
    ("timestamp[us]", [FINE]),
    ("timestamp[ms]", [NOON]),
    ("timestamp[us, tz=UTC]", [one.replace(tzinfo=UTC) for one in (FINE, FIRST, LAST)]),
    ("timestamp[us, tz=UTC]", [LAST.replace(tzinfo=EAST)]),
    ("date32", [dt.date(2026, 1, 1)]),
    ("time32[ms]", [dt.time(1, 2, 3, 4000)]),
    ("duration[s]", [dt.timedelta(seconds=5)]),
    ("list<int64>", [[1, 2], [], [None]]),
    ("struct<a: int64, b: string>", [{"a": 1, "b": "x"}, OrderedDict(a=1, b=None)]),
    ("dictionary<values=string, indices=int32>", ["a", "a", "b"]),
    (None, [1, 2.5, None]),
    (None, [NOON, FINE]),
]


@pytest.mark.parametrize(("kind", "values"), FITTING, ids=str)
def test_values_come_back_as_they_were(kind: Any, values: list[Any]) -> None:
    assert written(values, kind) == (values, [])


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (
            int,
            [1.5, -0.99, True, np.True_, "1", 2**63, Decimal("1.5"), np.float32(1.5), float("nan")],
        ),
        ("int8", [128, -129]),
        ("uint8", [-1]),
        (float, [2**53 + 1, np.int64(2**53 + 1), True, "1.5", Decimal("1.5"), 10**400]),
        ("float", [1e300, 1e-300, 2**24 + 1, "1"]),
        ("float16", [65_520.0, 1e6]),
        (bool, [1, 0.0, "True"]),
        (str, [b"a", 1, "\ud800"]),
        (bytes, ["a", [1]]),
        ("decimal128(5, 2)", [Decimal("1.234"), Decimal("1234.5"), 1.5, True]),
        ("timestamp[ms]", [FINE, NOON.replace(tzinfo=UTC), 5, dt.date(2026, 1, 1), "2026-01-01"]),
        ("timestamp[us, tz=UTC]", [NOON, 5, LAST.replace(tzinfo=WEST), FIRST.replace(tzinfo=EAST)]),
        ("timestamp[us, tz=Asia/Tokyo]", [LAST.replace(tzinfo=UTC)]),
        ("timestamp[ns]", [NOON.replace(year=9999)]),
        ("date32", [NOON, 5]),
        ("time32[ms]", [dt.time(1, 2, 3, 4), 5]),
        ("duration[ms]", [dt.timedelta(microseconds=5), 5]),
        ("list<int64>", [[1, 2.5], "12", {"a": 1}, 5, np.array([1.5]), MASKED]),
        ("list<item: int64 not null>", [[None]]),
        ("struct<a: int64>", [{"a": 1, "b": 2}, {"a": 1.5}, [1]]),
        ("map<string, int64>", [{"k": 1.5}, [("k", True)], {1: 1}]),
        ("dictionary<values=int64, indices=int32>", [1.5]),
    ],
    ids=str,
)
def test_values_that_would_be_others_are_dead_letters(kind: Any, bad: list[Any]) -> None:
    for one in bad:
        held, dead = written([one], kind)
        assert (held, len(dead)) == ([], 1), one


@pytest.mark.parametrize(
    ("values", "bad"),
    [
        ([1, "x", 2.5], ["x", 2.5]),
        ([1.5, 2**53 + 1], [2**53 + 1]),
        (["a", b"b"], [b"b"]),
        ([NOON, NOON.replace(tzinfo=UTC)], [NOON.replace(tzinfo=UTC)]),
        ([dt.date(2026, 1, 1), NOON], [NOON]),
        ([True, 1], [1]),
        ([{}], [{}]),
    ],
    ids=str,
)
def test_without_a_schema_the_first_value_makes_the_column(
    values: list[Any], bad: list[Any]
) -> None:
    held, dead = written(values, None)
    assert dead == bad
    assert held == [value for value in values if value not in bad or (value is values[0] and held)]


def test_a_null_in_a_column_without_nulls_is_a_dead_letter() -> None:
    schema = arrow_schema(pa.schema([pa.field("v", pa.int64(), nullable=False)]))
    table, dead = table_of([{"v": 1}, {"v": None}, {}], schema)
    assert table.column("v").to_pylist() == [1]
    assert [letter.reason for letter in dead] == [
        "column 'v': null, where none may be",
    ] * 2


def test_a_short_float_is_the_nearest() -> None:
    assert written([0.1], "float") == ([0.10000000149011612], [])


TYPES = [
    pa.timestamp("us", "UTC"),
    pa.timestamp("s", "+01:00"),
    pa.decimal128(10, 2),
    pa.list_(pa.int64()),
    pa.list_(pa.field("x", pa.int8(), nullable=False)),
    pa.list_(pa.int8(), 3),
    pa.large_list(pa.string()),
    pa.struct([("a", pa.int64()), ("b c", pa.list_(pa.timestamp("us", "UTC")))]),
    pa.map_(pa.string(), pa.list_(pa.struct([("a", pa.float16())]))),
    pa.dictionary(pa.int8(), pa.string()),
    pa.binary(3),
    pa.time64("ns"),
    pa.duration("ms"),
    pa.date64(),
    pa.bool_(),
    pa.large_binary(),
]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_is_called_what_arrow_prints(kind: Any) -> None:
    assert type_called(str(kind))(pa) == kind


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("whole", "column 'v': expected .* got 'whole'"),
        ("int46", "did you mean 'int64'"),
        ("timestamp[h]", "timestamp has units s, ms, us, ns, got 'h'"),
        ("timestamp[us, tz=Nowhere]", "there is no time zone 'Nowhere'"),
        ("decimal128(50, 2)", "decimal128"),
        ("list<>", "there is no type ''"),
        ("struct<int64>", "expected `name: type`"),
        ("map<string>", "cannot be understood"),
        (dict, "got <class 'dict'>"),
        (5, "got 5"),
        (pa.month_day_nano_interval(), "Parquet has no type month_day_nano_interval"),
    ],
    ids=str,
)
def test_a_mistake_in_a_schema_is_found_while_the_pipeline_is_built(
    kind: Any, message: str
) -> None:
    with pytest.raises(PipelineError, match=message):
        parquet("folder", {"v": kind})


def test_a_column_is_there_once() -> None:
    twice = pa.schema([("v", pa.int8()), ("v", pa.int8())])
    with pytest.raises(PipelineError, match="column 'v' is there more than once"):
        parquet("folder", twice)


def test_rows_may_be_of_types_of_their_own() -> None:
    row = namedtuple("row", "a b")
    table, dead = table_of([row(1, Mood.GOOD), OrderedDict(a=Level.LOW), {Mood.GOOD: 1}], None)
    assert dead == []
    assert table.to_pylist() == [
        {"a": 1, "b": "good", "good": None},
        {"a": 1, "b": None, "good": None},
        {"a": None, "b": None, "good": 1},
    ]


class Refusing(Mapping[str, Any]):
    """A row that gives no value when it is asked."""

    def __getitem__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(["v"])

    def __len__(self) -> int:
        return 1


class Unlike(str):
    """Text that does not let itself be compared."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError


@pytest.mark.parametrize("schema", [None, {"v": int}], ids=["found", "given"])
@pytest.mark.parametrize("make", [Refusing, lambda: {Unlike("w"): 2}], ids=["values", "names"])
def test_a_row_that_cannot_be_looked_at_is_a_dead_letter_or_what_it_shows(
    make: Callable[[], Any], schema: Any
) -> None:
    rows = [{"v": 1}, make(), make(), {"v": 3}]
    table, dead = table_of(rows, schema and arrow_schema(schema))
    assert [row["v"] for row in table.to_pylist() if row["v"]] == [1, 3]
    shown = schema is None and make is not Refusing
    assert len(dead) == (0 if shown else 2)
