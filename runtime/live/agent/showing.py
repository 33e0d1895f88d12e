"""Shows the user what instances print, and what the agent has to say."""

from __future__ import annotations

import sys


def show(_name: str, line: str) -> None:
    """What instances print goes to the user's standard error, whole lines at a time: one write
    each, since with PYTHONUNBUFFERED `print` would write the end of the line by itself."""
    if sys.stderr is not None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
