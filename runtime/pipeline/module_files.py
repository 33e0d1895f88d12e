"""Runs a file of the user as a module, always as the file stands."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType


class _AsItStands(SourceFileLoader):
    """Compiles the file anew. Python would take a compiled one of the same size and the same
    second for it, thus the old pipeline for one that an editor or a script has just changed."""

    def get_code(self, fullname: str) -> CodeType:
        file = self.get_filename(fullname)
        return self.source_to_code(self.get_data(file), file)


def run_file(name: str, path: Path) -> ModuleType:
    """The file as the module `name`, where pickles of its classes find them.

    Raises what the file raises, and `ImportError` if it is no Python file.
    """
    spec = spec_from_file_location(name, path, loader=_AsItStands(name, str(path)))
    if spec is None or spec.loader is None:
        raise ImportError(f"{path}: not a Python file")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    package, _, own = name.rpartition(".")
    if package in sys.modules:
        setattr(sys.modules[package], own, module)
    return module
