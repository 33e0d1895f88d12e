"""Whether what the code of a pipeline imports is installed on this host."""

from __future__ import annotations

from importlib.util import find_spec

from anabranch.runtime.hosts.bundle import Bundle, lacks, needed
from anabranch.runtime.live.hosts.refused import PipelineRefused


def check_requirements(bundle: Bundle, host: str) -> None:
    """Raises `PipelineRefused`."""
    missing = [(name, place) for name, place in needed(bundle).items() if not _is_there(name)]
    if missing:
        raise PipelineRefused(lacks(missing, host))


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False
