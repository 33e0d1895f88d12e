"""Real data for the tests of workloads, which lies beside the clone where there is some."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def lines_of(name: str) -> list[str]:
    """The lines of a gzipped file; skips the test where it is not there."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"the recorded data {name} is not on this machine")
    with gzip.open(path, "rt", newline="\n") as lines:
        return [line.rstrip("\n") for line in lines]
