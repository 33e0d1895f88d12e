"""Schemas in Spark's DDL, and whether tuples fit them."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
from enum import Enum
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.spark_bridge.arrow_rows import arrow_schema, to_batch
from anabranch.spark_bridge.ddl import ArrayOf, Column, MapOf, Scalar, SchemaError, parse
from anabranch.spark_bridge.fit import Fitter

ALL = (
    "s string, b binary, o boolean, y tinyint, h smallint, i int, l long, f float, d double, "
    "t timestamp, a date, r array<int>, m map<string, array<double>>"
)


def fitted(schema: str, *tuples: Any) -> tuple[list[dict[str, Any]], list[tuple[Any, str]]]:
    """The rows as Spark would get them, and the dead ones."""
    columns = parse(schema)
    found = Fitter(columns).fit(tuples)
    plain = msgpack.unpackb(found.payload, use_list=False)
    batch = to_batch([list(c) for c in plain], arrow_schema(columns))
    batch.validate(full=True)
    assert batch.num_rows == found.rows
    return batch.to_pylist(), found.dead


def test_ddl_is_read_as_spark_reads_it() -> None:
    assert parse("Text STRING, `a ``b`: bigint NOT NULL, m map<string,array<real>>") == (
        Column("Text", Scalar("string")),
        Column("a `b", Scalar("long"), nullable=False),
        Column("m", MapOf(Scalar("string"), ArrayOf(Scalar("float")))),
    )


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("", "a column name at the end"),
        ("text", "a type at the end"),
        ("text varchar", "not 'varchar'"),
        ("a string,", "a column name at the end"),
        ("a string b long", "',' or the end, not 'b'"),
        ("a array<string", "'>'"),
        ("a string, A long", "'a' is there twice"),
        ("a string not", "NULL after NOT"),
        ("a " + "array<" * 40 + "int" + ">" * 40, "nested at most"),
    ],
)
def test_a_schema_that_cannot_be_read_says_what_is_expected(schema: str, expected: str) -> None:
    with pytest.raises(SchemaError, match=expected.replace("<", "[<]")):
        parse(schema)


@given(st.text(max_size=40))
def test_any_text_is_a_schema_or_a_schema_error(text: str) -> None:
    with contextlib.suppress(SchemaError):
        assert parse(text)


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
    assert dead == [((3,), "column 'r': expected array<int>, got int 3")]
    assert [r["r"] for r in rows] == [[1, 2], []]
    rows, dead = fitted("m map<string,int>", {"m": 1})
    assert (rows, dead) == ([{"m": [("m", 1)]}], [])


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
        "a": dt.date(1, 1, 1),
        "r": [1, None],
        "m": {"k": [1.0, None]},
    }
    rows, dead = fitted(ALL, row, dict.fromkeys(row))
    assert dead == []
    assert rows[0] == {**row, "m": [("k", [1.0, None])]}
    assert set(rows[1].values()) == {None}


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ("x string", 1, "expected string, got int 1"),
        ("x string", "\ud800", "no text that UTF-8 can hold"),
        ("x binary", "a", "expected binary"),
        ("x boolean", 1, "expected boolean"),
        ("x tinyint", 128, "128 is out of range of byte"),
        ("x long", 2**63, "out of range of long"),
        ("x long", True, "expected long, got bool True"),
        ("x long", 1.0, "expected long, got float 1.0"),
        ("x double", "1", "expected double"),
        ("x double", 10**400, "out of range of double"),
        ("x double", 2**53 + 1, "is no double: the nearest is 9007199254740992.0"),
        ("x float", 1e300, "out of range of float"),
        ("x float", -1e300, "out of range of float"),
        ("x float", 1e-300, "too small for float"),
        ("x timestamp", 0, "expected timestamp"),
        ("x date", dt.datetime(2020, 1, 1), "expected date"),
        ("x array<int>", [1, "2"], "expected int, got str '2'"),
        ("x map<string,int>", {None: 1}, "null key"),
        ("x long not null", None, "it is NOT NULL"),
        ("x string", {"y": "a"}, "'y' is no column; the columns are x string"),
        ("x string, y long", ("a",), "1 values for 2 columns"),
        ("x string, y long", "a", "expected a dict, tuple or list with x string, y long"),
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


def test_an_object_that_misbehaves_is_dead() -> None:
    class Bad(dict[str, Any]):
        def get(self, *args: Any) -> Any:
            raise RuntimeError("never")

    bad = Bad(a="x", b=1)
    rows, dead = fitted("a string, b long", bad)
    assert (rows, [d[1] for d in dead]) == ([], ["never"])


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
    rows, dead = fitted("d double, l long", (1, np.int64(2)), (np.float32(0.5), 3))
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
            st.datetimes(timezones=st.just(dt.UTC)),
            st.dates(),
        ),
        max_size=6,
    ),
    st.sampled_from([c.strip() for c in ALL.replace("string, array", "string;array").split(",")]),
)
def test_whatever_passes_the_check_becomes_arrow(values: list[Any], column: str) -> None:
    rows, dead = fitted(column.replace(";", ","), *[(v,) for v in values])
    assert len(rows) + len(dead) == len(values)


def test_arrow_schemas_are_sparks_own() -> None:
    types = pytest.importorskip("pyspark.sql.pandas.types")
    spark = pytest.importorskip("pyspark.sql.types")
    given = spark.StructType(
        [
            spark.StructField("t", spark.TimestampType()),
            spark.StructField("r", spark.ArrayType(spark.IntegerType())),
            spark.StructField("m", spark.MapType(spark.StringType(), spark.DateType()), False),
        ]
    )
    ours = arrow_schema(parse("t timestamp, r array<int>, m map<string,date> not null"))
    assert types.to_arrow_schema(given, timezone="UTC").equals(ours)
    assert isinstance(ours, pa.Schema)
