"""Modules of the user's program, as against those of Python, of libraries and of ours."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from anabranch.runtime.values.raised import LIBRARIES


def user_modules() -> Iterator[ModuleType]:
    """Those that are imported now and come from a file of the user's."""
    for module in [*sys.modules.values()]:
        file = getattr(module, "__file__", None)
        if not isinstance(module, ModuleType) or not isinstance(file, str):
            continue
        ours = module.__name__.partition(".")[0] == "anabranch"
        if not ours and not file.startswith(LIBRARIES):
            yield module


def programs() -> list[Path]:
    """The files of these modules."""
    return [Path(str(module.__file__)) for module in user_modules()]
