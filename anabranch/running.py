"""Running a pipeline from a program instead of the command line."""

from __future__ import annotations

import difflib
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from anabranch.loading import file_being_read
from anabranch.runtime.graph import Pipeline, PipelineError

if TYPE_CHECKING:
    from anabranch.runtime.live.launch import Run
    from anabranch.runtime.report import Report


def start(pipeline: Pipeline, **options: Any) -> Run:
    """Start a run and return its handle; options are those of `anabranch.runtime.options`.

    Raises `PipelineError` if the pipeline cannot run, `OSError` if an end of it is not there.
    """
    being_read = file_being_read()
    if being_read is not None:
        raise PipelineError(
            f"{being_read.name} starts its pipeline while `anabranch` reads it; "
            'put that under if __name__ == "__main__":'
        )
    from anabranch.runtime.live import launch
    from anabranch.runtime.options import Options

    known = [field.name for field in fields(Options)]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise PipelineError(f"a run has no option {name!r}; {hint}")
    return launch.start(pipeline, Options(**options))


def run(pipeline: Pipeline, **options: Any) -> Report:
    """Run a pipeline to its end and return the report.

    Raises what `start` raises, and `RunFailed` if an operator failed for good. Ctrl-C stops it.
    """
    with start(pipeline, **options) as handle:
        return handle.wait()
