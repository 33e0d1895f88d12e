"""What a process reports of the error that ends it, for the user."""

from __future__ import annotations

import traceback

from anabranch.runtime.plan.ends import InputError, ReaderGone
from anabranch.runtime.processing.steps import StepError
from anabranch.runtime.reporting.failure import PlainError


def reason_of(error: Exception) -> str:
    if isinstance(error, PlainError | StepError | InputError | ReaderGone):
        return str(error)
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.strerror}: {error.filename!r}"
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def detail_of(error: Exception) -> str:
    """The traceback, unless the reason has what to do, or the system has refused something: then
    it adds nothing, and hides the reason."""
    refused = isinstance(error, OSError) and bool(error.strerror)
    if refused or isinstance(error, PlainError | StepError | InputError | ReaderGone):
        return ""
    return "".join(traceback.format_exception(error))
