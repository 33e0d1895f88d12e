"""What precedes a run: its folder, the savepoint that it begins from, its sources and sinks, and
what a former run has left of them."""

from __future__ import annotations

from anabranch.runtime.live.agent.state_dir import StateDir, open_state
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.plan.ends import Sink
from anabranch.runtime.ports.disk import store
from anabranch.runtime.savepoint.folder import Savepoint
from anabranch.runtime.storage.state_folder import StateError


def open_run(pipeline: Pipeline, options: Options) -> tuple[StateDir | None, Savepoint | None]:
    """Raises `PipelineError` if the run may not begin, and what `prepare` of its ends raises."""
    savepoint = None
    if options.begin_from is not None:
        from anabranch.runtime.savepoint.opening import open_savepoint

        savepoint = open_savepoint(pipeline, options.begin_from)
    state = open_state(pipeline, options)
    try:
        resumed = state is not None and state.resumed is not None
        if options.until_committed:
            from anabranch.runtime.live.agent.savepoints import check_stop

            check_stop(pipeline, options, resumed=resumed)
        _prepare_ends(pipeline, resumed=resumed, adds=savepoint is not None)
        if not resumed:
            _give_up_what_was(pipeline, state, adds=savepoint is not None)
    except BaseException:
        if state is not None:
            state.close()
        raise
    return state, savepoint


def _prepare_ends(pipeline: Pipeline, *, resumed: bool, adds: bool) -> None:
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


def _give_up_what_was(pipeline: Pipeline, state: StateDir | None, *, adds: bool) -> None:
    """The last run and its results (unless this one adds to them), now that nothing refuses to
    begin. In this order, or a run whose results are gone could seem to be one that can go on."""
    if state is not None:
        state.clear()
    for operator in pipeline.operators.values():
        if operator.sink is not None and not adds:
            operator.sink.empty()
