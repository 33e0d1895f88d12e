"""Pipeline files for tests, written where a test wants them."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GOOD = """
    import anabranch as ab

    pipeline = ab.Pipeline("headlines")
    lines = pipeline.source("lines", ab.items(["a b", "c"]))
    words = lines.flat_map("split", str.split, scale=ab.Scale(max_instances=8))
    words.sink("out", ab.discard())
"""


def write(folder: Path, text: str, name: str = "headlines.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return path


@contextmanager
def clean_imports() -> Iterator[None]:
    """Forget modules and folders that loading has added."""
    modules, folders = set(sys.modules), list(sys.path)
    try:
        yield
    finally:
        for name in set(sys.modules) - modules:
            if not name.startswith("anabranch"):
                del sys.modules[name]
        sys.path[:] = folders
