"""What a mistake in a pipeline is called, and checks of numbers that report it in the same
words."""

from __future__ import annotations

import math
import numbers


class PipelineError(ValueError):
    """The pipeline as written cannot run. The message names the operator and what to do."""


def check_number(what: str, value: object, *, whole: bool = False) -> None:
    kind = numbers.Integral if whole else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind) or not _is_finite(value):
        raise PipelineError(f"{what} must be a {'whole ' if whole else ''}number, got {value!r}")


def _is_finite(value: numbers.Real) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number above all floats
        return False


def no_function(expected: str, got: object) -> str:
    """Words for a value that is no function. A text may be meant as a field of the tuple."""
    field = f"; for a field of it, lambda t: t[{got!r}]" if isinstance(got, str) else ""
    return f"expected {expected}, got {got!r}{field}"
