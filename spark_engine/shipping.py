"""Brings a job to the workers, with the functions and classes of the user's own files.

Workers have Anabranch and what else is installed, but not the user's file: its functions travel by
value. Its classes do too, and a stand-in for its module is put in place there, for values of these
classes are pickled by the names of module and class. Which modules these are is found by following
the functions of the pipeline, and what their modules have imported, as far as that is not
installed.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.foreign import describe
from anabranch.spark_engine.job import Job

_INSTALLED = tuple(
    f"{Path(path).resolve()}/"
    for path in {
        sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
)
_DEPTH_MAX = 8
_received: dict[bytes, Job] = {}


def shipped(job: Job) -> bytes:
    """The bytes of a job. Raises `PipelineError` if something in it cannot travel."""
    cloudpickle: Any = import_module("pyspark.cloudpickle")
    modules = [*user_modules(job)]
    by_value = [m for m in modules if m.__name__ != "__main__"]
    for module in by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps((_classes(modules, cloudpickle), job)))
    except Exception as error:
        raise PipelineError(
            f"pipeline {job.pipeline!r}: something that its functions use cannot be sent to the "
            f"workers of Spark: {describe(error)}; make locks, connections and open files in a "
            "class with __call__, of which each task makes an object"
        ) from error
    finally:
        for module in by_value:
            cloudpickle.unregister_pickle_by_value(module)


def received(data: bytes) -> Job:
    """In a worker. The same bytes give the same classes as long as the worker lives."""
    digest = hashlib.sha256(data).digest()
    job = _received.get(digest)
    if job is None:
        classes, job = pickle.loads(data)
        _stand_in(classes)
        _received[digest] = job
    return job


def _stand_in(classes: Mapping[str, Mapping[str, type]]) -> None:
    for name, theirs in classes.items():
        module = sys.modules.setdefault(name, ModuleType(name))
        for own, cls in theirs.items():
            setattr(module, own, cls)


def _classes(modules: Iterable[ModuleType], cloudpickle: Any) -> dict[str, dict[str, type]]:
    """Of each module those that can travel."""
    found: dict[str, dict[str, type]] = {}
    for module in modules:
        theirs = found.setdefault(module.__name__, {})
        for name, value in vars(module).items():
            if isinstance(value, type) and value.__module__ == module.__name__:
                try:
                    cloudpickle.dumps(value)
                except Exception:  # nothing that the pipeline uses, or that is told of the whole
                    continue
                theirs[name] = value
    return found


def user_modules(job: Job) -> Iterator[ModuleType]:
    """The modules of functions and classes of the job that workers do not have."""
    seen: set[str] = set()
    waiting = [*_modules_in(job.operators, _DEPTH_MAX)]
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        if name in seen or module is None or not _is_users(module):
            continue
        seen.add(name)
        yield module
        for value in vars(module).values():
            if isinstance(value, ModuleType):
                waiting.append(value.__name__)
            elif isinstance(value, type | FunctionType):
                waiting.append(value.__module__)


def _is_users(module: ModuleType) -> bool:
    if module.__name__ == "__main__":
        return True
    if module.__name__.partition(".")[0] in {"anabranch", "pyspark_anabranch"}:
        return False
    file = getattr(module, "__file__", None)
    return file is not None and not str(Path(file).resolve()).startswith(_INSTALLED)


def _modules_in(value: Any, depth: int) -> Iterator[str]:
    """Names of the modules of functions and classes, also within objects of the runtime."""
    if depth == 0 or isinstance(value, str | bytes | int | float | None):
        return
    if isinstance(value, partial):
        yield from _modules_in((value.func, value.args, value.keywords), depth - 1)
    elif isinstance(value, FunctionType | type):
        yield value.__module__
    elif isinstance(value, MethodType):
        yield from _modules_in((value.__self__, value.__func__), depth - 1)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _modules_in(item, depth - 1)
    elif isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from _modules_in(item, depth - 1)
    else:
        yield type(value).__module__
        yield from _modules_in(_attributes(value), depth - 1)


def _attributes(value: Any) -> list[Any]:
    if is_dataclass(value):
        return [getattr(value, f.name, None) for f in fields(value)]
    return [*getattr(value, "__dict__", {}).values()]
