"""Errors of a user's file, shown with the user's line and without our traceback."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import traceback
from dataclasses import dataclass
from pathlib import Path

import anabranch
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.hints import hint

_UNEXPECTED = re.compile(r"^(?:(\w+)\.)?(\w+)\(\) got an unexpected keyword argument '(\w+)'")
_DEFINERS = {"source", "map", "flat_map", "filter", "fuse", "sink"}


@dataclass(frozen=True, slots=True)
class ExplainedLine:
    number: int
    text: str


def explain(error: BaseException, path: Path) -> str:
    """Place, message and source line of an error that importing `path` raised."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return _syntax(error, path)
    frames = _own_frames(error, path)
    message = _message(error, path)
    if not frames:
        return f"{path.name}: {message}"
    last = frames[-1]
    text = [f"{_shown(last.filename, path)}:{last.lineno}: {message}", f"    {last.line}"]
    here = [f for f in frames if Path(f.filename) == path]
    if here and Path(last.filename) != path:
        text.append(f"  used at {path.name}:{here[-1].lineno}\n    {here[-1].line}")
    return "\n".join(text)


def is_about(error: BaseException, path: Path) -> bool:
    """Whether the error passed through code of the user's."""
    return bool(_own_frames(error, path))


def line_of_operator(path: Path, name: str) -> ExplainedLine | None:
    """Where the file defines the operator of that name, as in `stream.map("name", ...)`."""
    try:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (OSError, ValueError, SyntaxError):
        return None
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr=attr), args=[ast.Constant(value=value, lineno=number), *_]
            ) if attr in _DEFINERS and value == name:
                return ExplainedLine(number, source.splitlines()[number - 1].strip())
    return None


def _syntax(error: SyntaxError, path: Path) -> str:
    place = _shown(error.filename or str(path), path)
    text = f"{place}:{error.lineno}: {error.msg} ({type(error).__name__})"
    if not error.text:
        return text
    line = error.text.rstrip()
    indent = len(line) - len(line.lstrip())
    text += f"\n    {line.lstrip()}"
    if error.offset and error.offset > indent:
        text += "\n    " + " " * (error.offset - 1 - indent) + "^"
    return text


def _message(error: BaseException, path: Path) -> str:
    if isinstance(error, PipelineError) or _is_from_us(error):
        return str(error)
    if isinstance(error, SystemExit):
        return (
            "the file ended Python while it was read; "
            'what it should do only as a program belongs under if __name__ == "__main__":'
        )
    text = str(error) or "no message"
    if isinstance(error, TypeError) and (better := _unknown_option(text)):
        return better
    return f"{text}{_suggestion(error, text)} ({type(error).__name__})"


def _unknown_option(text: str) -> str | None:
    """Python names the function that got an option too many, which may be one of our insides."""
    found = _UNEXPECTED.match(text)
    if found is None:
        return None
    owner, function, option = found.groups()
    from anabranch.runtime.pipeline import graph  # only where something is wrong

    target = getattr(anabranch, owner or function, getattr(graph, owner or function, None))
    if owner and function != "__init__":
        target = getattr(target, function, None)
    if not callable(target):
        return None
    parameters = inspect.signature(target).parameters.values()
    known = [p.name for p in parameters if p.default is not p.empty]
    return f"there is no option {option!r} here; {hint(option, known)}"


def _suggestion(error: BaseException, text: str) -> str:
    """Python itself suggests names only from 3.12 on, and only in its own tracebacks."""
    if not isinstance(error, AttributeError) or error.obj is None or "did you mean" in text:
        return ""
    known = [name for name in dir(error.obj) if not name.startswith("_")]
    near = difflib.get_close_matches(str(error.name), known, 1)
    return f"; did you mean {near[0]!r}?" if near else _by_key(error.obj, str(error.name), known)


def _by_key(stream: object, name: str, known: list[str]) -> str:
    """A way on where a method of a stream is missing: it may be one of the stream by key."""
    from anabranch.runtime.pipeline.graph import KeyedStream, Stream

    if isinstance(stream, Stream) and hasattr(KeyedStream, name):
        return f"; it works by key: .key_by(...).{name}(...)"
    if isinstance(stream, KeyedStream) and hasattr(Stream, name):
        return "; it works without keys, so it belongs before .key_by(...)"
    return f"; known: {', '.join(known)}" if isinstance(stream, Stream | KeyedStream) else ""


def _own_frames(error: BaseException, path: Path) -> list[traceback.FrameSummary]:
    """Those in files below the pipeline's folder that are neither installed there nor ours."""
    own: list[traceback.FrameSummary] = []
    for frame, number in traceback.walk_tb(error.__traceback__):
        file = Path(frame.f_code.co_filename)
        ours = frame.f_globals.get("__name__", "").partition(".")[0] == "anabranch"
        below = file.is_relative_to(path.parent) and "site-packages" not in file.parts
        if file == path or (below and not ours):
            own += traceback.StackSummary.extract([(frame, number)])
    return own


def _is_from_us(error: BaseException) -> bool:
    """Whether a function of ours refused what it was given; such messages are for users."""
    if not isinstance(error, (ValueError, OSError, RuntimeError)) or not str(error):
        return False
    last = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
    return str(last.f_globals.get("__name__", "")).startswith("anabranch.")


def _shown(filename: str, path: Path) -> str:
    file = Path(filename)
    return str(file.relative_to(path.parent)) if file.is_relative_to(path.parent) else filename
