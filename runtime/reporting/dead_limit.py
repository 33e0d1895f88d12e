"""How many dead letters are too many: `Pipeline(dead_max=…)`, and what holds where none is given.

A run whose tuples die, because of a wrong column or a wrong file, has done nothing, and a service
or a nightly job must notice.
"""

from __future__ import annotations

READ_MIN = 1_000
"""A share is judged while the run goes on once so many tuples were read, and at its end."""


def exceeded(
    dead_max: int | float | None, *, dead: int, read: int, delivered: int, ended: bool
) -> str:
    """Why a run fails with so many dead letters of so many tuples read and results delivered; empty
    if it does not. `ended`: these are the final counts.

    `dead_max`: a whole number of dead letters, a share of the tuples read below 1.0, or None: only
    a run fails at its end that has delivered nothing since all that it read died."""
    if dead_max is None:
        if ended and dead and not delivered and dead >= read:
            what = f"all {read:,} tuples became dead letters"
            if not read:
                what = f"no tuple could be read, and {dead:,} dead letters of the input say why"
            return (
                f"nothing was delivered: {what}; "
                "if that may happen, say so with Pipeline(..., dead_max=1.0)"
            )
        return ""
    if isinstance(dead_max, int):
        return f"{dead:,} dead letters, and dead_max={dead_max}" if dead > dead_max else ""
    if dead_max < 1.0 and dead > dead_max * read and (ended or read >= READ_MIN):
        return f"{dead:,} dead letters of {read:,} tuples read, and dead_max={dead_max:g}"
    return ""
