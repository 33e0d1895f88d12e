"""Records of CSV (RFC 4180): lines, but for line ends within quotes. Pure.

A quote opens at the beginning of a field and closes before its end; within, two of them stand for
one. Blank lines are no records. A quote that is not closed would take everything behind it for one
field: when the end of the file, or the limit of a line, is reached, the line with it is a dead
letter, and the next record begins behind that line.

A record is its text, or with `CsvForm` its fields: a list, or a dict by the names in the first
record of the file.
"""

from __future__ import annotations

import codecs
import csv
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.protocol.limits import Limits
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.sources.line_parser import HEAD_BYTES, Cut
from anabranch.runtime.sources.lines import LineCutter

_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True)
class CsvForm:
    """`header`: whether the first record has the names of the fields, or these names, of files
    that have none; without, records are lists."""

    header: bool | tuple[str, ...] = True
    delimiter: str = ","


def csv_form(header: bool | Sequence[str], delimiter: str) -> CsvForm:
    """Raises `ValueError` for settings that make no sense."""
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise ValueError(f"csv: delimiter must be one ASCII character, got {delimiter!r}")
    if isinstance(header, bool):
        return CsvForm(header, delimiter)
    names = () if isinstance(header, str) else tuple(header)
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"csv: header must be True, False or a list of names, got {header!r}")
    if (twice := _twice(names)) is not None:
        raise ValueError(f"csv: header has the name {twice!r} twice")
    return CsvForm(names, delimiter)


def _twice(names: Sequence[str]) -> str | None:
    return next((name for name in names if names.count(name) > 1), None)


@functools.cache
def _record(delimiter: str) -> re.Pattern[bytes]:
    """One record up to its line end or the end of the bytes, in which group 1 is the line end."""
    d = re.escape(delimiter.encode())
    field = rb'(?:"[^"]*+(?:""[^"]*+)*+"[^%b\r\n]*+|(?!")[^%b\r\n]*+)' % (d, d)
    return re.compile(rb"%b(?:%b%b)*+(\r\n|\n|\r|\Z)" % (field, d, field))


class RecordCutter(LineCutter):
    """Reads its stream from the beginning, or from where another one stood."""

    def __init__(
        self,
        place: str,
        *,
        encoding: str,
        limits: Limits,
        end: int | None = None,
        form: CsvForm | None = None,
    ) -> None:
        super().__init__(place, format="text", encoding=encoding, limits=limits, end=end)
        self._form = form
        self._match = _record(form.delimiter if form else ",").match
        self._skips = False
        """Whether the rest of an overlong line is to be passed over."""
        self._names: list[str] | None = None
        if form is not None:
            csv.field_size_limit(max(csv.field_size_limit(), limits.line_bytes_max))
            if isinstance(form.header, tuple):
                self._names = list(form.header)

    def feed(self, block: bytes, *, final: bool = False) -> Cut:
        tuples: list[Any] = []
        dead: list[DeadLetter] = []
        data = b"".join((*self._held, block))
        at = self._begin(data)
        while not self._is_done(at, len(data), final):
            found = self._match(data, at)
            size = self._length(data, at, found, final)
            if not size:
                break
            is_whole = found is not None and found.end() == at + size
            if found is None or not is_whole or self._skips or size > self._limit:
                self._give_up(data[at : at + size], at, found is not None, dead)
            elif found.start(1) > at:
                self._take_record(data[at : found.start(1)], at, tuples, dead)
            lines = 1 if found is None else len(_LINE_END.findall(data, at, at + size))
            self._parser.count_lines(lines)
            at += size
        self._keep(data[at:], at)
        if tuples:
            self._line_bytes = 0.5 * (self._line_bytes + at / len(tuples))
        return tuples, dead

    def state(self, held_bytes_max: int | None = None) -> dict[str, Any]:
        return {**super().state(held_bytes_max), "names": self._names, "skips": self._skips}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._names, self._skips = state["names"], state["skips"]

    def _begin(self, data: bytes) -> int:
        """Where the first record begins in the first bytes of all."""
        self._parser.refuse_wide(data, self.offset)
        is_marked = self.offset == 0 and self._parser.encoding == "utf_8"
        return len(codecs.BOM_UTF8) if is_marked and data.startswith(codecs.BOM_UTF8) else 0

    def _is_done(self, at: int, size: int, final: bool) -> bool:
        behind = self.end is not None and self.offset + at >= self.end
        self.done = self.done or behind or (final and at >= size)
        return self.done

    def _length(self, data: bytes, at: int, found: re.Match[bytes] | None, final: bool) -> int:
        """Of the next record, with its line end; 0 if that is not known yet. What cannot be a
        record, or is too long for one, is a line."""
        if found is not None:
            end, is_whole = found.end(), final or found[1][-1:] == b"\n"
            if (is_whole or end < len(data)) and end - at <= self._limit:
                return end - at
        if not final and len(data) - at <= self._limit:
            return 0
        line = _LINE_END.search(data, at)
        return (line.end() if line else len(data)) - at

    def _give_up(self, row: bytes, at: int, is_sound: bool, dead: list[DeadLetter]) -> None:
        """It is too long, or has a quote that is not closed."""
        is_rest = self._skips
        self._skips = _LINE_END.search(row) is None
        if is_rest:
            return
        reason = "a quote is not closed"
        if is_sound or len(row) > self._limit:
            reason = f"a record of more than {self._limit:,} bytes is above the limit"
            row = row[:HEAD_BYTES]
        shown = self._readable(row.rstrip(b"\r\n"))
        dead.append(DeadLetter(reason, shown, self._parser.where(self.offset + at)))

    def _readable(self, row: bytes) -> str | bytes:
        """Text, if it is some: the file of dead letters shows bytes as base64."""
        try:
            return row.decode(self._parser.encoding)
        except UnicodeDecodeError:
            return row

    def _take_record(self, bare: bytes, at: int, tuples: list[Any], dead: list[DeadLetter]) -> None:
        """`at`: its place in what is fed."""
        try:
            text = bare.decode(self._parser.encoding)
            fields = text if self._form is None else self._fields(text, self._form)
        except UnicodeDecodeError as error:
            dead.append(self._parser.not_text(error, bare, self.offset + at))
        except (ValueError, csv.Error) as error:
            dead.append(DeadLetter(str(error), text, self._parser.where(self.offset + at)))
        else:
            if fields is not None:
                tuples.append(fields)

    def _fields(self, text: str, form: CsvForm) -> Any:
        """None of a header. Raises `ValueError`, `csv.Error`."""
        fields = next(csv.reader([text], delimiter=form.delimiter))
        if form.header is False:
            return fields
        if self._names is None:
            self._names = fields
            if (twice := _twice(fields)) is not None:
                self.done = True
                raise ValueError(
                    f"the header has the name {twice!r} twice, so the file is not read; give "
                    "names with header=[...], or header=False"
                )
            return None
        if len(fields) != len(self._names):
            there = f"{len(fields)} field{'s' * (len(fields) != 1)}"
            raise ValueError(f"{there}, but the number of names is {len(self._names)}")
        return dict(zip(self._names, fields, strict=True))

    def _keep(self, rest: bytes, at: int) -> None:
        """Of an overlong line without an end nothing is kept."""
        self.offset += at
        self._held = [] if self.done or not rest else [rest]
        self._held_bytes = 0 if self.done else len(rest)
