"""Schemas as texts of Spark, and which tuples fit them."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.columns.schemas import SchemaError, arrow_schema, check_schema
from anabranch.runtime.columns.tables import pieces, table_of

ALL = (
    "s string, b binary, o boolean, y tinyint, h smallint, i int, l long, f float, d double, "
    "t timestamp, n timestamp_ntz, a date, c decimal(10, 2), r array<int>, "
    "m map<string, array<double>>, u struct<x: int, y: string>"
)


def fitted(schema: str, *tuples: Any) -> tuple[list[dict[str, Any]], list[tuple[Any, str]]]:
    """The rows as Spark would get them, and the dead ones."""
    wanted = arrow_schema(schema, sparks=True)
    table, dead = table_of(list(tuples), wanted, as_spark=True)
    letters = [(letter.tuple, letter.reason) for letter in dead]
    if table is None:
        return [], letters
    table.validate(full=True)
    assert table.schema.equals(wanted)
    return table.to_pylist(), letters


def test_a_text_of_spark_is_the_schema_that_it_names() -> None:
    text = "Text STRING, `a ``b,`: bigint NOT NULL, m map<string,array<real>>, u Struct<x: long>"
    assert arrow_schema(text, sparks=True).equals(
        pa.schema(
            [
                ("Text", pa.string()),
                pa.field("a `b,", pa.int64(), nullable=False),
                ("m", pa.map_(pa.string(), pa.list_(pa.field("element", pa.float32())))),
                ("u", pa.struct([("x", pa.int64())])),
            ]
        )
    )


def test_a_dict_may_have_names_of_spark_and_a_text_those_of_arrow() -> None:
    assert arrow_schema({"n": "bigint", "at": "timestamp[ms]"}) == arrow_schema(
        "n int64, at timestamp[ms]"
    )


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("", "expected a name and a type, .* got ''"),
        ("text", "expected a name and a type, .* got 'text'"),
        ("a string,", "expected a name and a type, .* got ''"),
        ("text varchar", "column 'text': expected Spark's, .* got 'varchar'"),
        ("n uint8", "column 'n': expected Spark's, .* .there is no type 'uint8'"),
        ("n list<int>", "there is no type 'list<int>'"),
        ("n array<uint8>", "there is no type 'uint8'"),
        ("a string b long", "got 'string b long'"),
        ("a array<string", "there is no type 'array<string'"),
        ("a string, A long", "column 'A' is there more than once"),
        ("a string not", "got 'string not'"),
        ("a " + "array<" * 40 + "int" + ">" * 40, "nested more than 16 deep"),
    ],
)
def test_a_text_that_cannot_be_read_says_what_is_expected(schema: str, expected: str) -> None:
    with pytest.raises(SchemaError, match=expected):
        check_schema(schema, sparks=True)


@given(st.text(max_size=40) | st.text("ab <>,:`()[]", max_size=30))
def test_any_text_is_a_schema_or_a_schema_error(text: str) -> None:
    with contextlib.suppress(SchemaError):
        check_schema(text)


def test_dicts_tuples_lists_and_bare_values_are_rows() -> None:
    class Row(NamedTuple):
        text: str
        n: int

    rows, dead = fitted(
        "text string, n long",
        {"text": "a", "n": 1},
        ("b", 2),
        ["c", None],
        Row("d", 4),
        {"n": 5},
    )
    assert dead == []
    assert [tuple(r.values()) for r in rows] == [
        ("a", 1),
        ("b", 2),
        ("c", None),
        ("d", 4),
        (None, 5),
    ]
    rows, dead = fitted("n long", 1, None, (3,), [4], {"n": 5})
    assert ([r["n"] for r in rows], dead) == ([1, None, 3, 4, 5], [])
    rows, dead = fitted("r array<int>", [1, 2], (3,), {"r": []})
    assert [one for one, _ in dead] == [(3,)]
    assert [r["r"] for r in rows] == [[1, 2], []]
    rows, dead = fitted("m map<string,int>", {"m": 1})
    assert (rows, dead) == ([{"m": [("m", 1)]}], [])


@pytest.mark.parametrize(
    ("schema", "tuples"),
    [
        ("text string, n long", [{"text": "a", "n": 1}, {"n": 2}]),
        ("text string, n long", [("a", 1), ("b", 2)]),
        ("text string, n long", [["a", 1], ("b", 2)]),
        ("text string", ["a", None]),
    ],
)
def test_tuples_that_are_alike_become_the_same_as_one_by_one(
    schema: str, tuples: list[Any]
) -> None:
    whole, dead = fitted(schema, *tuples)
    single = [row for one in tuples for row in fitted(schema, one)[0]]
    among_others, (other,) = fitted(schema, *tuples, object())
    assert (whole, dead, among_others) == (single, [], single)
    assert "object" in other[1]


def test_every_type_arrives_as_it_was() -> None:
    when = dt.datetime(2020, 2, 29, 12, 30, 1, 5, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    row = {
        "s": "ä\U0001f600",
        "b": b"\x00\xff",
        "o": True,
        "y": -128,
        "h": 32767,
        "i": -(2**31),
        "l": 2**63 - 1,
        "f": 0.5,
        "d": 1e300,
        "t": when,
        "n": when.replace(tzinfo=None),
        "a": dt.date(1, 1, 1),
        "c": Decimal("1.25"),
        "r": [1, None],
        "m": {"k": [1.0, None]},
        "u": {"x": 1, "y": None},
    }
    rows, dead = fitted(ALL, row, dict.fromkeys(row))
    assert dead == []
    assert rows[0] == {**row, "m": [("k", [1.0, None])]}
    assert set(rows[1].values()) == {None}


def test_times_without_a_zone_are_meant_as_utc() -> None:
    noon = dt.datetime(2020, 1, 1, 12)
    rows, dead = fitted("t timestamp, r array<timestamp>", (noon, [noon]))
    aware = noon.replace(tzinfo=dt.UTC)
    assert (rows, dead) == ([{"t": aware, "r": [aware]}], [])


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ("x string", 1, "expected string, got int 1"),
        ("x string", "\ud800", "surrogates not allowed"),
        ("x binary", "a", "expected binary, got str 'a'"),
        ("x boolean", 1, "expected boolean, got int 1"),
        ("x tinyint", 128, "expected byte, got int 128"),
        ("x long", 2**63, "expected long"),
        ("x long", True, "expected long, got bool True"),
        ("x long", 1.5, "expected long, got float 1.5"),
        (
            "x array<struct<a: int, b: decimal(4,2)>>",
            1,
            "expected array<struct<a: int, b: decimal(",
        ),
        ("x map<string, date>", 1, "expected map<string, date>, got int 1"),
        ("x double", "1", "expected double, got str '1'"),
        ("x double", 10**400, "too large"),
        ("x double", 2**53 + 1, "outside of the range exactly representable"),
        ("x float", 1e300, "too large"),
        ("x float", -1e300, "too large"),
        ("x float", 1e-300, "too small"),
        ("x timestamp", 0, "expected timestamp"),
        ("x timestamp_ntz", dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "it has a time zone"),
        ("x date", dt.datetime(2020, 1, 1), "expected date"),
        ("x array<int>", [1, "2"], "expected array<int>, got list"),
        ("x map<string,int>", {None: 1}, "null"),
        ("x long not null", None, "null, where none may be"),
        ("x string", {"y": "a"}, "there is no column 'y'"),
        ("x string, y long", ("a",), "expected 2 values, got 1"),
        ("x string, y long", "a", "expected a dict by column, got str"),
    ],
)
def test_what_does_not_fit_is_dead_with_the_reason(schema: str, value: Any, reason: str) -> None:
    rows, dead = fitted(schema, value)
    assert rows == []
    assert len(dead) == 1
    assert dead[0][0] is value
    assert reason in dead[0][1]


def test_one_bad_tuple_does_not_take_its_neighbours_along() -> None:
    rows, dead = fitted("n long", 1, "two", 3)
    assert ([r["n"] for r in rows], [d[0] for d in dead]) == ([1, 3], ["two"])


def test_a_float_among_others_is_not_made_infinite() -> None:
    rows, dead = fitted("x float", 0.5, 1e300, None, 0.0, 1e-300, math.inf)
    assert [row["x"] for row in rows] == [0.5, None, 0.0, math.inf]
    assert [one for one, _ in dead] == [1e300, 1e-300]


def test_members_of_enums_are_their_texts() -> None:
    class Mood(str, Enum):  # noqa: UP042 - whose str() is another text
        GOOD = "good"

    rows, dead = fitted("x string", Mood.GOOD, "bad")
    assert ([row["x"] for row in rows], dead) == (["good", "bad"], [])


def test_whole_numbers_fit_doubles_and_numpy_scalars_fit_theirs() -> None:
    rows, dead = fitted("d double, l long", (1, np.int64(2)), (np.float32(0.5), 3.0))
    assert dead == []
    assert [tuple(r.values()) for r in rows] == [(1.0, 2), (0.5, 3)]


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.text(),
            st.integers(),
            st.floats(),
            st.binary(max_size=5),
            st.lists(st.integers(), max_size=3),
            st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
            st.datetimes(timezones=st.none() | st.just(dt.UTC)),
            st.dates(),
        ),
        max_size=6,
    ),
    st.sampled_from(["x " + column.split(" ", 1)[1] for column in ALL.split(", ")[:10]]),
)
def test_every_tuple_becomes_a_row_or_a_dead_letter(values: list[Any], column: str) -> None:
    rows, dead = fitted(column, *[(v,) for v in values])
    assert len(rows) + len(dead) == len(values)


class Classless:
    """A proxy whose object has gone."""

    @property  # type: ignore[misc]  # it is one of the type, and raises
    def __class__(self) -> type:
        raise RuntimeError("gone")


@pytest.mark.parametrize(
    "make",
    [
        lambda one: one,
        lambda one: [one],
        lambda one: {"a": [1, one]},
        lambda one: np.array([one], dtype=object),
    ],
    ids=["bare", "in a list", "in a dict", "in an array"],
)
def test_a_value_that_does_not_say_its_class_is_a_dead_letter(make: Callable[[Any], Any]) -> None:
    """pyarrow would end the process."""
    odd = {"v": make(Classless())}
    table, dead = table_of([odd, {"v": 1}, odd], None)
    assert table.to_pylist() == [{"v": 1}]
    assert [letter.tuple for letter in dead] == [odd, odd]
    assert table_of([odd], None)[0] is None


@given(st.lists(st.text(max_size=50), max_size=40), st.integers(1, 300))
def test_pieces_of_a_batch_are_small_or_one_row_and_together_all(
    texts: list[str], bytes_good: int
) -> None:
    batch = pa.record_batch({"x": pa.array(texts, pa.string())})
    found = list(pieces(batch, bytes_good))
    assert [text for piece in found for text in piece.column("x").to_pylist()] == texts
    assert all(piece.nbytes <= bytes_good or piece.num_rows == 1 for piece in found)


def test_arrow_schemas_are_sparks_own() -> None:
    types = pytest.importorskip("pyspark.sql.pandas.types")
    spark = pytest.importorskip("pyspark.sql.types")
    given = spark.StructType(
        [
            spark.StructField("t", spark.TimestampType()),
            spark.StructField("n", spark.TimestampNTZType()),
            spark.StructField("c", spark.DecimalType(10, 2)),
            spark.StructField("r", spark.ArrayType(spark.IntegerType())),
            spark.StructField("u", spark.StructType([spark.StructField("x", spark.LongType())])),
            spark.StructField("m", spark.MapType(spark.StringType(), spark.DateType()), False),
        ]
    )
    ours = arrow_schema(
        "t timestamp, n timestamp_ntz, c decimal(10, 2), r array<int>, u struct<x: long>, "
        "m map<string,date> not null",
        sparks=True,
    )
    assert types.to_arrow_schema(given, timezone="UTC").equals(ours)
