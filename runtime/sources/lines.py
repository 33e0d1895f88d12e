"""Blocks of bytes in, lines or JSON values out: what a line is (`LineParser` has what is in it).

A **line** ends with LF, CRLF or a lone CR, as in `open(path)`; nothing else ends one (not the form
feed, U+0085 or U+2028 that `str.splitlines` splits at). The last one needs no end. In a file of
JSON lines only LF ends a record; blank ones are skipped.

Bytes that are no text in the encoding, records that are no JSON and lines above the limit become
dead letters that name the place. An overlong line is not held in memory.

Splits of a file are cut anywhere; the rule is that a **row**, everything up to and including an
LF, belongs to the split in which its first byte lies.
"""

from __future__ import annotations

import codecs
from typing import Any, Literal

from anabranch.protocol.limits import Limits
from anabranch.runtime.sources.line_parser import HEAD_BYTES, Cut, LineParser

Format = Literal["text", "jsonl", "csv"]
FORMATS = ("text", "jsonl", "csv")
_BLOCK_BYTES_MIN = 256
_LINE_BYTES_GUESS = 64.0
_NOT_ASCII_BASED = ("utf_7", "hz", "iso2022", "iso_2022")


def checked_encoding(encoding: str) -> str:
    """The codec's own name; raises `ValueError` if lines cannot be cut in its bytes."""
    try:
        name = codecs.lookup(encoding).name.replace("-", "_")
        newline = "\n".encode(name)
    except (LookupError, UnicodeError):
        raise ValueError(f"unknown text encoding {encoding!r}") from None
    if name == "utf_8_sig":
        return "utf_8"
    if newline != b"\n" or name.startswith(_NOT_ASCII_BASED):
        raise ValueError(
            f"encoding {encoding!r} cannot be cut into lines byte by byte; "
            f"convert the input first, for example: iconv -f {encoding} -t utf-8"
        )
    return name


def checked_format(format: str) -> Format:
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    return format  # type: ignore[return-value]


class LineCutter:
    """Cuts one stream of bytes.

    `place`: name of the stream in dead letters. `offset`: position of the first byte fed.
    `line`: number of lines before it, None if unknown. `end`: rows that begin at or behind this
    position are not ours, None for all. `seek_row`: begin behind the first LF.
    """

    def __init__(
        self,
        place: str,
        *,
        format: Format,
        encoding: str,
        limits: Limits,
        offset: int = 0,
        line: int | None = 0,
        end: int | None = None,
        seek_row: bool = False,
    ) -> None:
        self.offset = offset
        """Position of the first byte that has not become a tuple or dead letter."""
        self.end = end
        self.done = False
        self.in_row = False
        """Whether `offset` stands behind a lone CR, within a row that is ours. What is held never
        has a line end."""
        self.over = 0
        """Bytes seen of an overlong line; then only its first ones are held."""
        self._line_bytes = _LINE_BYTES_GUESS
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._carried = False
        self._seek_row = seek_row
        self._jsonl = format == "jsonl"
        self._limit = limits.line_bytes_max
        self._parser = LineParser(
            place, line, jsonl=self._jsonl, encoding=encoding, line_bytes_max=self._limit
        )

    def feed(self, block: bytes, *, final: bool = False) -> Cut:
        """What `block`, the next bytes, completes. `final`: these were the last ones. Raises
        `InputError` if the stream is no text that can be cut at single bytes.

        Once `done`, the rest is not ours and is ignored.
        """
        if self._carried:
            block, self._carried = b"\r" + block, False
        if not (final or self._jsonl) and block.endswith(b"\r"):
            block, self._carried = block[:-1], True  # an LF may follow
        if self._seek_row:
            block = self._sought(block, final)
        return self._skip(block, final) if self.over else self._take(block, final)

    def _take(self, block: bytes, final: bool) -> Cut:
        """Parse what is complete, hold the rest."""
        cut, is_last = self._cut(block, final)
        if not (cut or is_last):
            self._hold(block)
            return [], []
        data = b"".join((*self._held, block[:cut])) if self._held else block[:cut]
        self._held, self._held_bytes = [], 0
        tuples, dead = self._parser.parse(data, self.offset)
        self.offset += len(data)
        self.done = self.done or is_last
        if not self.done:
            self._hold(block[cut:])
        if tuples:
            self._line_bytes = 0.5 * (self._line_bytes + len(data) / len(tuples))
        return tuples, dead

    def block_bytes(self, tuples_max: int, bytes_max: int) -> int:
        """How long a block to feed for about `tuples_max` lines as long as the last ones were.

        Never above the limit of a line, which keeps the slow way for lines that are too long.
        """
        wanted = max(int(self._line_bytes * tuples_max), self._held_bytes, _BLOCK_BYTES_MIN)
        return min(wanted, bytes_max, self._limit)

    def state(self, held_bytes_max: int | None = None) -> dict[str, Any]:
        """What another cutter needs to go on where this one stands, for MessagePack.

        `next` is the position of the byte to be fed to it first. If more than `held_bytes_max` of
        a line are held, they are left out and have to be fed again.
        """
        held, carried = b"".join(self._held), self._carried
        if held_bytes_max is not None and self._held_bytes > held_bytes_max:
            held, carried = b"", False
        seen = (self.over or len(held)) + carried
        return {
            "next": self.offset + seen,
            "offset": self.offset,
            "line": self._parser.line,
            "held": held,
            "over": self.over,
            "carried": carried,
            "in_row": self.in_row,
            "seek_row": self._seek_row,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.offset, self.over = state["offset"], state["over"]
        self._parser.line = state["line"]
        self._held = [state["held"]] if state["held"] else []
        self._held_bytes = 0 if self.over else len(state["held"])
        self._carried, self.in_row = state["carried"], state["in_row"]
        self._seek_row = state["seek_row"]

    @property
    def _behind_end(self) -> bool:
        return self.end is not None and self.offset >= self.end and not self.in_row

    def _sought(self, block: bytes, final: bool) -> bytes:
        """`block` from its first row on."""
        start = block.find(b"\n") + 1
        self._seek_row = start == 0
        dropped = start or len(block)
        self.offset += dropped
        self.done = self._behind_end or (final and self._seek_row)
        return b"" if self.done else block[dropped:]

    def _cut(self, block: bytes, final: bool) -> tuple[int, bool]:
        """How much of `block` ends complete lines of ours, and whether our last is among them.

        The LF that ends our last row is the first one at or behind `end - 1`.
        """
        if self.done:
            return 0, True
        start = self.offset + self._held_bytes
        if self.end is not None and start + len(block) >= self.end:
            last = block.find(b"\n", max(0, self.end - 1 - start))
            if last >= 0:
                return last + 1, True
        if final:
            return len(block), True
        cut = block.rfind(b"\n") + 1
        if cut:
            self.in_row = False
        if not self._jsonl:  # a file of an old Macintosh is one row of many lines
            line_end = block.rfind(b"\r", cut) + 1
            if line_end:
                cut, self.in_row = line_end, True
        return cut, False

    def _hold(self, rest: bytes) -> None:
        if rest:
            self._held.append(rest)
            self._held_bytes += len(rest)
            if self._held_bytes > self._limit:
                self.over = self._held_bytes
                self._held, self._held_bytes = [b"".join(self._held)[:HEAD_BYTES]], 0

    def _skip(self, block: bytes, final: bool) -> Cut:
        """Pass over the rest of an overlong line, then go on as usual."""
        end = self._parser.line_end.search(block)
        if end is None and not final:
            self.over += len(block)
            return [], []
        length = self.over + (end.start() if end else len(block))
        dead = self._parser.skip(self._held[0], length, self.offset)
        rest = block[end.end() :] if end else b""
        self.offset += self.over + len(block) - len(rest)
        self.over, self._held = 0, []
        self.in_row = end is not None and end.group() == b"\r"
        if self._behind_end or (final and not rest):
            self.done = True
            return [], [dead]
        tuples, more = self._take(rest, final)
        return tuples, [dead, *more]
