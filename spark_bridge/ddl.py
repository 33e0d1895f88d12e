"""Schemas as Spark writes them: `"text string, score long, tags array<string>"`.

Enough of Spark's DDL for results of a pipeline; parsed here so that neither the runtime nor its
sinks need PySpark or PyArrow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SCALARS = {
    "string": "string",
    "long": "long",
    "bigint": "long",
    "int": "int",
    "integer": "int",
    "short": "short",
    "smallint": "short",
    "byte": "byte",
    "tinyint": "byte",
    "double": "double",
    "float": "float",
    "real": "float",
    "boolean": "boolean",
    "binary": "binary",
    "timestamp": "timestamp",
    "date": "date",
}
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\W\d]\w*)|(\S))", re.UNICODE)
_NESTED_MAX = 16


class SchemaError(ValueError):
    """The schema cannot be read. The message quotes it and says what is expected."""


@dataclass(frozen=True, slots=True)
class Scalar:
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ArrayOf:
    element: ColumnType

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapOf:
    key: ColumnType
    value: ColumnType

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


ColumnType = Scalar | ArrayOf | MapOf


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: ColumnType
    nullable: bool = True


def parse(schema: str) -> tuple[Column, ...]:
    """The columns of a DDL text. Raises `SchemaError`."""
    return _Parser(schema).columns()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [
            (m[1].replace("``", "`") if m[1] else m[2] or m[3], bool(m[1]))
            for m in _TOKEN.finditer(text)
        ]
        self.at = 0

    def columns(self) -> tuple[Column, ...]:
        found = [self._column()]
        while self._take(","):
            found.append(self._column())
        if self.at < len(self.tokens):
            raise self._error(f"',' or the end, not {self.tokens[self.at][0]!r}")
        names = [c.name.lower() for c in found]
        for name in names:
            if names.count(name) > 1:
                raise self._error(f"different column names, but {name!r} is there twice")
        return tuple(found)

    def _column(self) -> Column:
        name = self._word("a column name")
        self._take(":")
        kind = self._type(0)
        nullable = True
        if self._take("not"):
            if not self._take("null"):
                raise self._error("NULL after NOT")
            nullable = False
        return Column(name, kind, nullable)

    def _type(self, depth: int) -> ColumnType:
        if depth > _NESTED_MAX:
            raise self._error(f"types nested at most {_NESTED_MAX} deep")
        word = self._word("a type").lower()
        if word == "array":
            self._need("<")
            element = self._type(depth + 1)
            self._need(">")
            return ArrayOf(element)
        if word == "map":
            self._need("<")
            key = self._type(depth + 1)
            self._need(",")
            value = self._type(depth + 1)
            self._need(">")
            return MapOf(key, value)
        if word not in _SCALARS:
            raise self._error(
                f"a type such as {', '.join(sorted(set(_SCALARS.values())))}, array<...> "
                f"or map<...>, not {word!r}"
            )
        return Scalar(_SCALARS[word])

    def _word(self, what: str) -> str:
        if self.at >= len(self.tokens):
            raise self._error(f"{what} at the end")
        word, quoted = self.tokens[self.at]
        if not quoted and not (word[0].isalpha() or word[0] == "_"):
            raise self._error(f"{what}, not {word!r}")
        self.at += 1
        return word

    def _take(self, token: str) -> bool:
        here = self.tokens[self.at : self.at + 1]
        if here and not here[0][1] and here[0][0].lower() == token:
            self.at += 1
            return True
        return False

    def _need(self, token: str) -> None:
        if not self._take(token):
            raise self._error(f"{token!r}")

    def _error(self, expected: str) -> SchemaError:
        return SchemaError(f"schema {self.text!r}: expected {expected}")
