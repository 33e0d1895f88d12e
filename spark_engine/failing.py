"""The error of a job that fails, in the words of the error that made it fail."""

from __future__ import annotations

import re

from anabranch.runtime.storage.patience import describe_refusal
from anabranch.spark_engine.report import SparkReport

_ERROR = re.compile(r"^(?:\w+\.)*\w+: .+")
_BEHIND_TRACE = ("\tat ", "Driver stacktrace", "=== Streaming Query ===")
_LONG = 2_000


class JobFailed(RuntimeError):
    """`report`: what was counted until then."""

    def __init__(self, message: str, report: SparkReport) -> None:
        super().__init__(message)
        self.report = report


def told(error: BaseException) -> str:
    """What the worker's Python said last, without Spark's own stacks; else the whole error."""
    if isinstance(error, OSError) and error.strerror:
        return describe_refusal(error)
    text = str(error)
    last = ""
    in_trace = False
    for line in text.splitlines():
        if line.startswith("Traceback (most recent call last)"):
            in_trace = True
        elif in_trace and line.startswith(_BEHIND_TRACE):
            break
        elif in_trace and _ERROR.match(line):
            last = line
    return last or text[:_LONG]
