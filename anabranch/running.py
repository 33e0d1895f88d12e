"""Running a pipeline from a program instead of the command line."""

from __future__ import annotations

import difflib
import logging
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from anabranch.being_read import file_being_read
from anabranch.runtime.pipeline import order
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.foreign import shown

if TYPE_CHECKING:
    from anabranch.runtime.live.agent.launch import Run
    from anabranch.runtime.policies.script import Script
    from anabranch.runtime.reporting.report import Report

log = logging.getLogger("anabranch.running")


def start(pipeline: Pipeline, **options: Any) -> Run:
    """Start a run and return its handle; options are those of `anabranch.runtime.pipeline.options`.

    What is often a mistake, such as an order on which results may depend, is a warning of the
    logger `anabranch.running`, as `anabranch run` prints it.

    Raises `PipelineError` if the pipeline cannot run, `OSError` if an end of it is not there.
    """
    being_read = file_being_read()
    if being_read is not None:
        raise PipelineError(
            f"{being_read.name} starts its pipeline while `anabranch` reads it; "
            'put that under if __name__ == "__main__":'
        )
    from anabranch.runtime.live.agent import launch
    from anabranch.runtime.pipeline.options import Options

    known = [field.name for field in fields(Options)]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise PipelineError(f"a run has no option {name!r}; {hint}")
    chosen = Options(**options)
    if not isinstance(pipeline, Pipeline):
        raise PipelineError(f"expected an ab.Pipeline to run, got {shown(pipeline)}")
    pipeline.validate()
    _warn(pipeline, chosen.script)
    return launch.start(pipeline, chosen)


def _warn(pipeline: Pipeline, script: Script | None) -> None:
    operators, duplicated = pipeline.operators, set[str]()
    if script is not None:
        names = [o.name for o in operators.values() if o.can_scale]
        duplicated = script.duplicated(names, order.bound(operators))
    for warning in order.warnings(operators, duplicated):
        log.warning("anabranch: pipeline %r: %s", pipeline.name, warning)


def run(pipeline: Pipeline, **options: Any) -> Report:
    """Run a pipeline to its end and return the report.

    Raises what `start` raises, and `RunFailed` if an operator failed for good. Ctrl-C stops it.
    """
    with start(pipeline, **options) as handle:
        return handle.wait()
