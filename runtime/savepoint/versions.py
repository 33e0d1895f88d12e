"""In which form what operators keep is written, in the state folder of a run as in a savepoint, on
processes as on Spark: its reader has to be of the same version."""

from __future__ import annotations

STATE_FORMAT = 10
"""Of journals, and of the pickled values in savepoints."""


def version() -> str:
    """Of what is installed: journals hold values of its classes."""
    from importlib import metadata  # takes longer than all that a run without a state folder needs

    try:
        return metadata.version("anabranch")
    except metadata.PackageNotFoundError:
        return "not installed"
