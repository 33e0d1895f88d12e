"""Finds the pipeline in a user's file, and says what is wrong there in the user's terms.

The file is imported as a module under its own name (`headlines.py` is `headlines`, `head.v2.py` is
`head_v2`), with its folder on `sys.path`, so that its functions can be found again by name in other
processes.
"""

from __future__ import annotations

import difflib
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from anabranch.being_read import noting_file
from anabranch.explaining import explain, line_of_operator
from anabranch.runtime.pipeline.begun_threads import BegunThreads, noting_threads, refusal, warning
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.module_files import run_file
from anabranch.runtime.pipeline.places import check_targets
from anabranch.runtime.policies.policy import Policy
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.working_folder import check_working_folder

_NEEDED = {
    "click",
    "msgpack",
    "msgspec",
    "numpy",
    "pyarrow",
    "pyspark",
    "rich",
    "uvloop",
}
_UNUSED = {"antigravity", "idlelib", "test", "this", "turtle", "turtledemo"}
"""Modules of Python that are not missed when a pipeline has their name."""


log = logging.getLogger("anabranch.loading")


class LoadError(Exception):
    """The file has no pipeline that can run. The message is complete and needs no traceback."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """`name` is the variable that holds the pipeline in the file at `path`."""

    pipeline: Pipeline
    path: Path
    name: str


def load_pipeline(target: str) -> Loaded:
    """The pipeline of `FILE.py`, or the one named in `FILE.py:name`, validated.

    Raises `LoadError`.
    """
    path, name = split_target(target)
    module = _import(path)
    found = _pipelines(module)
    chosen = _named(path, name, found, module) if name else _only(path, found)
    loaded = Loaded(found[chosen], path, chosen)
    try:
        loaded.pipeline.validate()
        check_targets(loaded.pipeline)
    except PipelineError as error:
        raise LoadError(_located(loaded, str(error))) from None
    return loaded


def load_policy(target: str) -> Policy[Any]:
    """The policy that `FILE.py:NAME` names: a value, or a class, which gets its default settings.

    Raises `LoadError`.
    """
    path, name = split_target(target)
    module = _import(path)
    found = {
        own: value
        for own, value in vars(module).items()
        if isinstance(value, Policy) or _is_own_policy(value, module)
    }
    if name is None:
        raise LoadError(f"say which: {', '.join(f'{path.name}:{own}' for own in found) or 'none'}")
    if name not in found:
        raise LoadError(f"{path.name} has no policy {name!r}; there: {', '.join(found) or 'none'}")
    chosen = found[name]
    try:
        return chosen if isinstance(chosen, Policy) else chosen()
    except (PipelineError, TypeError) as error:
        raise LoadError(f"{path.name}: {error}") from None


def _is_own_policy(value: object, module: ModuleType) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, Policy)
        and value.__module__ == module.__name__
    )


def split_target(target: str) -> tuple[Path, str | None]:
    """Raises `LoadError` unless the file is there and is one of Python."""
    try:
        check_working_folder()
    except PipelineError as error:
        raise LoadError(str(error)) from None
    file, colon, name = target.rpartition(":")
    if not (colon and name.isidentifier() and file.endswith(".py")):
        file, name = target, ""
    path = Path(file)
    if path.is_dir():
        raise LoadError(f"{file} is a folder; expected a Python file such as {file}/pipeline.py")
    if not path.exists():
        raise LoadError(f"no such file: {file}{_similar_file(path)}")
    if path.suffix != ".py":
        raise LoadError(f"{file}: expected a Python file, named *.py")
    return path.resolve(), name or None


def _similar_file(path: Path) -> str:
    """By the names without `.py`, which alone makes any two of them look alike."""
    try:
        stems = [p.stem for p in path.parent.glob("*.py")]
    except OSError:
        return ""
    near = difflib.get_close_matches(path.name.removesuffix(".py"), stems, 1)
    return f"; did you mean {path.with_name(near[0] + '.py')}?" if near else ""


def _import(path: Path) -> ModuleType:
    name = _module_name(path)
    if _is_taken(name, path):
        raise LoadError(
            f"{path.name}: Python or Anabranch needs another module named {name!r}; rename the file"
        )
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        with noting_file(path), noting_threads(path) as begun:
            module = run_file(name, path)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise LoadError(explain(error, path)) from None
    _check_threads(begun)
    return module


def _check_threads(begun: BegunThreads) -> None:
    left = begun.left()
    if refused := refusal(left):
        raise LoadError(refused)
    if told := warning(left):
        log.warning("anabranch: %s", told)


def _module_name(path: Path) -> str:
    """A dot in the name of a file would make a package of it, in which values of its classes could
    not be found again."""
    name = path.stem.replace(".", "_")
    if name != path.stem and (namesake := path.with_name(f"{name}.py")).exists():
        raise LoadError(
            f"{path.name}: its module would have the name of {namesake.name}; rename one of them"
        )
    return name


def _is_taken(name: str, path: Path) -> bool:
    """Whether the file would hide a module that is needed, now or later."""
    present = sys.modules.get(name)
    if present is not None:
        return getattr(present, "__file__", None) != str(path)
    return name in _NEEDED or (name in sys.stdlib_module_names and name not in _UNUSED)


def _pipelines(module: ModuleType) -> dict[str, Pipeline]:
    """By variable, in the order of the file; one that has several names counts once."""
    found: dict[str, Pipeline] = {}
    for name, value in vars(module).items():
        if isinstance(value, Pipeline) and not any(value is other for other in found.values()):
            found[name] = value
    return found


def _only(path: Path, found: dict[str, Pipeline]) -> str:
    if not found:
        raise LoadError(
            f"{path.name} holds no pipeline; expected a line such as "
            f'pipeline = ab.Pipeline("{path.stem}")'
        )
    if len(found) > 1:
        targets = ", ".join(f"{path.name}:{name}" for name in found)
        raise LoadError(f"{path.name} holds several pipelines; say which: {targets}")
    return next(iter(found))


def _named(path: Path, name: str, found: dict[str, Pipeline], module: ModuleType) -> str:
    if name in found:
        return name
    if hasattr(module, name):
        value = getattr(module, name)
        for alias, pipeline in found.items():
            if pipeline is value:
                return alias
        raise LoadError(f"{path.name}: {name!r} is a {type(value).__name__}, not a pipeline")
    near = difflib.get_close_matches(name, found, 1)
    known = ", ".join(found) or "none"
    hint = f"did you mean {near[0]!r}?" if near else f"pipelines there: {known}"
    raise LoadError(f"{path.name} has no pipeline {name!r}; {hint}")


def _located(loaded: Loaded, message: str) -> str:
    """With the line of the operator that the message speaks of, if it speaks of one."""
    for name in loaded.pipeline.operators:
        if f"operator {name!r}" in message:
            line = line_of_operator(loaded.path, name)
            if line:
                return f"{loaded.path.name}:{line.number}: {message}\n    {line.text}"
    return f"{loaded.path.name}: {message}"
