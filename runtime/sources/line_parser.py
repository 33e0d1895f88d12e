"""Whole lines in, tuples or JSON values out, or dead letters that name the place."""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

import msgspec

from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.sources.utf16_text import refuse_wide_text

Cut = tuple[list[Any], list[DeadLetter]]
HEAD_BYTES = 120
"""How much of an overlong line its dead letter shows."""
_LINE_END = re.compile(rb"\r\n|\n|\r")
_LF = re.compile(rb"\n")


class LineParser:
    """`place`: name of the stream in dead letters. `line`: number of lines before the next one;
    None if unknown."""

    def __init__(
        self, place: str, line: int | None, *, jsonl: bool, encoding: str, line_bytes_max: int
    ) -> None:
        self.place = place
        self.line = line
        self.line_end = _LF if jsonl else _LINE_END
        self._jsonl = jsonl
        self.encoding = encoding
        self._limit = line_bytes_max
        self._decode_json = msgspec.json.Decoder().decode

    def parse(self, data: bytes, position: int) -> Cut:
        """Complete lines, of which the first begins at `position`. The fast ways do not look at
        single ones; the slow way finds the bad. Raises `InputError` if the stream is no text that
        can be cut at single bytes."""
        self.refuse_wide(data, position)
        if position == 0 and data.startswith(codecs.BOM_UTF8) and self.encoding == "utf_8":
            position = len(codecs.BOM_UTF8)
            data = data[position:]
        if len(data) > self._limit:
            return self._parse_slowly(data, position)
        try:
            tuples = self._json_values(data) if self._jsonl else self._text_lines(data)
        except (ValueError, RecursionError):
            return self._parse_slowly(data, position)
        self.count_lines(len(tuples))
        return tuples, []

    def _text_lines(self, data: bytes) -> list[Any]:
        text = data.decode(self.encoding)
        if b"\r" in data:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        return lines

    def _json_values(self, data: bytes) -> list[Any]:
        if self.encoding != "utf_8":
            data = data.decode(self.encoding).encode()
        rows = data.split(b"\n")
        if not rows[-1]:
            rows.pop()
        return list(map(self._decode_json, rows))

    def _parse_slowly(self, data: bytes, position: int) -> Cut:
        tuples: list[Any] = []
        dead: list[DeadLetter] = []
        start = 0
        while start < len(data):
            end = self.line_end.search(data, start)
            row = data[start : end.start() if end else len(data)]
            self._one(row, position + start, tuples, dead)
            self.count_lines(1)
            start = end.end() if end else len(data)
        return tuples, dead

    def refuse_wide(self, data: bytes, position: int) -> None:
        if position == 0:
            refuse_wide_text(repr(self.place), data, self.encoding)

    def count_lines(self, n: int) -> None:
        if self.line is not None:
            self.line += n

    def _one(self, row: bytes, position: int, tuples: list[Any], dead: list[DeadLetter]) -> None:
        if len(row) > self._limit:
            dead.append(self._overlong(row, len(row), position))
            return
        try:
            text = row.decode(self.encoding)
            if not self._jsonl:
                tuples.append(text)
            elif text.strip(" \t\r"):
                tuples.append(json.loads(text))
        except UnicodeDecodeError as error:
            dead.append(self.not_text(error, row, position))
        except json.JSONDecodeError as error:
            # Its own words name line 1, which is this line alone.
            reason = f"not JSON: {error.msg} at character {error.colno}"
            dead.append(DeadLetter(reason, text, self.where(position)))
        except (ValueError, RecursionError) as error:
            dead.append(DeadLetter(f"not JSON: {error}", text, self.where(position)))

    def not_text(self, error: UnicodeDecodeError, row: bytes, position: int) -> DeadLetter:
        bad = f"byte 0x{row[error.start]:02x} at position {error.start}: {error.reason}"
        reason = f"not {self.encoding.replace('_', '-')} text: {bad}"
        return DeadLetter(reason, row, self.where(position))

    def skip(self, head: bytes, length: int, position: int) -> DeadLetter:
        """A line of this length, of which not all was held."""
        self.refuse_wide(head, position)
        letter = self._overlong(head, length, position)
        self.count_lines(1)
        return letter

    def _overlong(self, head: bytes, length: int, position: int) -> DeadLetter:
        reason = f"a line of {length:,} bytes is above the limit of {self._limit:,}"
        return DeadLetter(reason, head[:HEAD_BYTES], self.where(position))

    def where(self, position: int) -> str:
        """`a.txt:17` if the number of the line is known, else `a.txt, byte 1234`."""
        if self.line is not None:
            return f"{self.place}:{self.line + 1}"
        return f"{self.place}, byte {position}"
