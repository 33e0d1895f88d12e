"""Sources and sinks before a run: what they have to do, and what a former run has left of them."""

from __future__ import annotations

from anabranch.runtime.live.agent.state_dir import StateDir
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Sink
from anabranch.runtime.ports.disk import store
from anabranch.runtime.storage.state_folder import StateError


def prepare_ends(pipeline: Pipeline, *, resumed: bool, adds: bool) -> None:
    """`adds`: the run begins from a savepoint, and its results belong to those that are there."""
    for operator in pipeline.operators.values():
        end = operator.source or operator.sink
        if end is None:
            continue
        if not resumed and adds and operator.sink is not None and _is_there(operator.sink):
            end.prepare_to_resume()
        elif not resumed:
            end.prepare()
        elif operator.source is not None and operator.source.service is not None:
            raise StateError(
                f"source {operator.name!r} is fed by a service, which cannot feed it again; "
                "begin anew with --fresh"
            )
        else:
            end.prepare_to_resume()


def _is_there(sink: Sink) -> bool:
    path = sink.writes()
    return path is not None and store().exists(path)


def give_up_what_was(pipeline: Pipeline, state: StateDir | None, *, adds: bool) -> None:
    """The last run and its results (unless this one adds to them), now that nothing refuses to
    begin. In this order, or a run whose results are gone could seem to be one that can go on."""
    if state is not None:
        state.clear()
    for operator in pipeline.operators.values():
        if operator.sink is not None and not adds:
            operator.sink.empty()
