"""Decisions written down beforehand, for tests and demonstrations (`--scale-script`).

    # seconds after the start, operator, what to do
    1.5 split duplicate 2
    2.0 clean leave
    3   clean hand_over
    5   clean relocate
    every 0.1 from 1 to 60: * duplicate

One statement per line, or several separated by `;`. `*` stands for every operator that can have
several instances. `duplicate` starts one instance unless a number follows, `leave` lets one that
is not the keeper go, `hand_over` makes another instance the keeper, `move` lets one of a keyed
operator give half of its load, by key groups, to a sibling. `relocate` lets a new instance take the
place of one, on the host that follows, if one does. Which instance acts is the driver's choice.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn, get_args

from anabranch.runtime.values.hints import hint

Action = Literal["duplicate", "leave", "hand_over", "move", "relocate"]
ACTIONS: tuple[Action, ...] = get_args(Action)
ADDING: tuple[Action, ...] = ("duplicate", "relocate")
"""What makes instances: of an operator that has one, there are two then, if only for a moment."""
EVERY = "*"

_REPEAT = re.compile(r"^every\s+(\S+)\s+from\s+(\S+)\s+to\s+(\S+?)\s*:\s*(.+)$")
_USAGE = "expected '1.5 OPERATOR duplicate 2' or 'every 0.1 from 1 to 60: OPERATOR leave'"


class ScriptError(ValueError):
    """A scale script that cannot be followed; the message names the line."""


@dataclass(frozen=True, slots=True, order=True)
class Scripted:
    """At `at_s` seconds after the start one instance of `operator` does `action`. `host`: to which
    it relocates; empty: to any."""

    at_s: float
    operator: str
    action: Action
    n: int = 1
    host: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """One line: `action` at `first_s`, and then every `step_s` up to and with `last_s`."""

    line: int
    operator: str
    action: Action
    n: int
    first_s: float
    last_s: float
    step_s: float
    host: str = ""

    def times(self) -> Iterator[float]:
        """Counted, not summed up, so that 0.1 s steps do not drift."""
        if self.step_s == 0:
            yield self.first_s
            return
        for k in range(math.floor((self.last_s - self.first_s) / self.step_s + 1e-9) + 1):
            yield round(self.first_s + k * self.step_s, 9)


@dataclass(frozen=True, slots=True)
class Script:
    statements: tuple[Statement, ...]

    def decisions(
        self, operators: Iterable[str], bound: Mapping[str, str] | None = None
    ) -> Iterator[Scripted]:
        """All decisions in order of time, made one by one while they are read.

        `operators`: names of those that can have several instances. `bound`: those that must not,
        and why; `*` lets none of them duplicate or relocate. Raises `ScriptError` if another one is
        named.
        """
        known, bound = tuple(operators), bound or {}
        for statement in self.statements:
            if statement.action in ADDING and statement.operator in bound:
                what = f"operator {statement.operator!r} must stay at one instance"
                _fail(statement.line, what, bound[statement.operator])
            if statement.operator not in (EVERY, *known):
                _fail(
                    statement.line,
                    f"no operator {statement.operator!r} that can have several instances",
                    hint(statement.operator, known),
                )
        free = tuple(name for name in known if name not in bound)
        return heapq.merge(
            *(_expand(s, free if s.action in ADDING else known) for s in self.statements)
        )

    def duplicated(self, operators: Iterable[str], bound: Container[str] = ()) -> set[str]:
        """Those of the operators that get several instances; arguments as of `decisions`."""
        named = {one.operator for one in self.statements if one.action in ADDING}
        return {
            name for name in operators if name not in bound and (name in named or EVERY in named)
        }


def load_script(text_or_path: str) -> Script:
    """The script in that file, or, if it holds a space and no such file exists, the text itself.

    Raises `ScriptError`.
    """
    path = Path(text_or_path)
    try:
        if "\n" not in text_or_path and path.is_file():
            return parse_script(path.read_text(encoding="utf-8"))
    except OSError as error:
        if " " not in text_or_path:
            raise ScriptError(f"scale script {text_or_path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ScriptError(f"scale script {text_or_path}: not a text in UTF-8") from None
    except ScriptError as error:
        raise ScriptError(f"{text_or_path}: {error}") from None
    if " " not in text_or_path.strip():
        raise ScriptError(f"scale script {text_or_path!r}: no such file; or {_USAGE}")
    return parse_script(text_or_path)


def parse_script(text: str) -> Script:
    """Raises `ScriptError` with the number of the first line that is wrong."""
    statements = []
    for number, line in enumerate(text.splitlines(), 1):
        for part in line.split("#", 1)[0].split(";"):
            if part.strip():
                statements.append(_statement(part.strip(), number))
    if not statements:
        raise ScriptError("scale script: it is empty")
    return Script(tuple(statements))


def _statement(text: str, line: int) -> Statement:
    words = text.split()
    if words[0] == "every":
        repeat = _REPEAT.match(text)
        if repeat is None:
            _fail(line, _USAGE, f"got {text!r}")
        step, first, last = (_seconds(repeat[i], line) for i in (1, 2, 3))
        if step <= 0 or last < first:
            _fail(line, "expected a step above 0 and an end after the start", f"got {text!r}")
        operator, action, n, host = _order(repeat[4].split(), text, line)
        return Statement(line, operator, action, n, first, last, step, host)
    at = _seconds(words[0], line)
    operator, action, n, host = _order(words[1:], text, line)
    return Statement(line, operator, action, n, at, at, 0.0, host)


def _order(words: list[str], text: str, line: int) -> tuple[str, Action, int, str]:
    if not 2 <= len(words) <= 3:
        _fail(line, _USAGE, f"got {text!r}")
    operator, wanted = words[:2]
    for action in ACTIONS:
        if action == wanted:
            break
    else:
        _fail(line, f"no action {wanted!r}", hint(wanted, ACTIONS))
    if len(words) == 2:
        return operator, action, 1, ""
    if action == "relocate":
        return operator, action, 1, words[2]
    if action != "duplicate":
        _fail(line, f"{action} takes no number", f"got {words[2]!r}")
    if not (words[2].isascii() and words[2].isdigit() and int(words[2]) >= 1):
        _fail(line, "expected a whole number of instances, 1 or more", f"got {words[2]!r}")
    return operator, action, int(words[2]), ""


def _seconds(word: str, line: int) -> float:
    try:
        seconds = float(word)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        remedy = hint(word, ["every"]) if word.isalpha() else f"got {word!r}"
        _fail(line, "expected seconds after the start", remedy)
    return seconds


def _expand(statement: Statement, known: tuple[str, ...]) -> Iterator[Scripted]:
    names = known if statement.operator == EVERY else (statement.operator,)
    for at in statement.times():
        for name in sorted(names):
            yield Scripted(at, name, statement.action, statement.n, statement.host)


def _fail(line: int, message: str, remedy: str) -> NoReturn:
    raise ScriptError(f"scale script, line {line}: {message}; {remedy}")
