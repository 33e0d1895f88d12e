"""Where a pipeline was written, and how another process reads it there again.

A pipeline holds functions, and functions cannot be sent. So a process that was not forked from
the user's has to run the user's file, as `multiprocessing` does, and take the variable that
holds the pipeline.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
import traceback
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from anabranch.runtime.live.instance.make_pump import pump_of
from anabranch.runtime.live.link.control import LoadPipeline
from anabranch.runtime.live.process.reseeding import generators
from anabranch.runtime.live.process.warm import Preload
from anabranch.runtime.pipeline.begun_threads import noting_threads, refusal
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.module_files import run_file
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.texts import carried, original

MAIN_AGAIN = "__anabranch_main__"
"""Name under which a script is run again, so that its `if __name__ == "__main__":` is skipped."""

DEFAULT_ENTRY = "anabranch.runtime.live.process.instance_process:run_instance"
SERVICE_ENTRY = "anabranch.runtime.live.process.service:run_service"
KEEPER_ENTRY = "anabranch.runtime.live.process.keeper_process:run_keeper"

_loading = False


class LoadError(Exception):
    """The user's file cannot be read again. The message shows the user's lines only."""


@dataclass(frozen=True, slots=True)
class Origin:
    """`module` is empty for a script; `variable` is global in it. `is_program`: whether it is the
    very file that this program was started with."""

    module: str
    file: str
    variable: str
    is_program: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.variable}"


def find_origin(pipeline: Pipeline) -> Origin | None:
    """The global variable that holds this very pipeline; None if there is none in a file.

    Rather of a module than of the program itself, which may do more than to define it.
    """
    main = sys.modules.get("__main__")
    others = [m for m in list(sys.modules.values()) if m is not main]
    for module in filter(None, [*others, main]):
        file = getattr(module, "__file__", None)
        if not isinstance(module, ModuleType) or not file:
            continue
        for variable, value in list(vars(module).items()):
            if value is pipeline:
                name = _name_of_program(main) if module is main else module.__name__
                return Origin(name, os.path.abspath(file), variable, module is main)
    return None


def _name_of_program(main: ModuleType) -> str:
    """Under which it can be imported, since it was started with `-m`; empty for a script."""
    spec: ModuleSpec | None = getattr(main, "__spec__", None)  # a debugger may have removed it
    if spec is None or spec.name == "__main__" or spec.origin != main.__file__:
        return ""
    return spec.name


def load_request(pipeline: Pipeline, origin: Origin, entry: str) -> LoadPipeline:
    dead_letters = pipeline.dead_letters
    return LoadPipeline(
        module=origin.module,
        file=carried(origin.file),
        variable=origin.variable,
        entry=entry,
        sys_path=[
            carried(p) for p in sys.path if isinstance(p, str)
        ],  # Python passes over others, too
        argv=list(map(carried, sys.argv)),
        scales={
            operator.name: operator.scale.plain if operator.scale else None
            for operator in pipeline.operators.values()
        },
        dead_letters=None if dead_letters is None else carried(dead_letters),
        inputs={name: [*map(carried, paths)] for name, paths in pipeline.inputs.items()},
    )


def load_preload(request: LoadPipeline) -> Preload:
    """Read the pipeline again as `request` has it. Raises `LoadError`."""
    global _loading
    _loading = True
    sys.path[:] = map(original, request.sys_path)
    sys.argv[:] = map(original, request.argv)
    file = original(request.file)
    with noting_threads(Path(file)) as begun:
        module = load_module(request.module, file)
    if refused := refusal(begun.left()):
        raise LoadError(refused)
    pipeline = getattr(module, request.variable, None)
    if not isinstance(pipeline, Pipeline):
        raise LoadError(
            f"{original(request.file)}: {request.variable!r} is no pipeline when the file is read "
            'again; define it outside of `if __name__ == "__main__":`'
        )
    _apply(request, pipeline)
    return preload(pipeline, request.entry)


def preload(pipeline: Pipeline, entry: str) -> Preload:
    """What processes have in memory when they are forked: so every import happens once, and is
    shared. No garbage is left: to look for it later would copy the pages that are shared."""
    for operator in pipeline.operators.values():
        pump_of(operator)
    mains = resolve(entry), resolve(SERVICE_ENTRY), resolve(KEEPER_ENTRY)
    gc.collect()
    return Preload(pipeline, *mains, generators())


def load_module(name: str, file: str) -> ModuleType:
    """Import `name`, or run `file` as a module; it has that name, too. Raises `LoadError`."""
    try:
        if name in sys.modules or (name and _is_found_elsewhere(name, file)):
            return importlib.import_module(name)
        return run_file(name or MAIN_AGAIN, Path(file))
    except LoadError:
        raise
    except (Exception, SystemExit) as error:
        raise LoadError(user_traceback(error, file)) from error


def user_traceback(error: BaseException, file: str) -> str:
    """The traceback from the first line of `file` on: what the user wrote, and what it called."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((i for i, f in enumerate(frames) if _same_file(f.filename, file)), len(frames))
    lines = traceback.format_list(frames[first:])
    return "".join([*lines, *traceback.format_exception_only(error)]).rstrip()


def resolve(entry: str) -> Any:
    """The function named `module:function`."""
    module, _, function = entry.partition(":")
    return getattr(importlib.import_module(module), function)


def being_loaded() -> bool:
    """Whether this process only reads the user's file again; starting a run in it has no end."""
    return _loading


def _is_found_elsewhere(name: str, file: str) -> bool:
    """Whether Python finds another file by the name, or none that is a file."""
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:  # of what should be its package
        return False
    return spec is not None and not _same_file(spec.origin or "", file)


def _apply(request: LoadPipeline, pipeline: Pipeline) -> None:
    if list(pipeline.operators) != list(request.scales):
        raise LoadError(
            f"{original(request.file)}: the pipeline has other operators when the file is read "
            f"again: {', '.join(pipeline.operators)}; build it in the same way each time"
        )
    letters = request.dead_letters
    pipeline.dead_letters = None if letters is None else original(letters)
    for name, operator in pipeline.operators.items():
        settings = request.scales[name]
        scale = None if settings is None else Scale.of(settings)
        pipeline.operators[name] = replace(operator, scale=scale)
    try:
        for source, paths in request.inputs.items():
            pipeline.with_input(source, [*map(original, paths)])
        pipeline.validate()
    except PipelineError as error:
        raise LoadError(str(error)) from error


def _same_file(a: str, b: str) -> bool:
    return Path(a).absolute() == Path(b).absolute()
