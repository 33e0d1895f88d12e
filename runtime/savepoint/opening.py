"""Opens the savepoint from which a run begins, on whichever engine: it has to be one of the same
pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.spans import check_chosen
from anabranch.runtime.savepoint import folder
from anabranch.runtime.savepoint.folder import Savepoint, SavepointError, SavepointHead
from anabranch.runtime.savepoint.state_rows import in_words
from anabranch.runtime.savepoint.versions import STATE_FORMAT


def open_savepoint(pipeline: Pipeline, path: Path | None) -> Savepoint | None:
    """That from which a run begins. Raises `SavepointError` unless it is one of this pipeline."""
    if path is None:
        return None
    savepoint = folder.read(path, state_format=STATE_FORMAT)
    if pipeline.delivery == "at-most-once":
        raise SavepointError(
            "a pipeline with delivery='at-most-once' keeps no state of keys, so it cannot begin "
            "from a savepoint; use 'effectively-once'"
        )
    changes = [*_changes(savepoint.head, pipeline)]
    if changes:
        raise SavepointError(
            f"savepoint {str(savepoint.path)!r} belongs to another pipeline: "
            f"{'; '.join(changes[:3])}. Functions may be changed, names and kinds of operators "
            "may not: undo that"
        )
    if savepoint.head.span is not None:
        check_chosen(pipeline.operators)
    return savepoint


def _changes(head: SavepointHead, pipeline: Pipeline) -> Iterator[str]:
    if head.pipeline != pipeline.name:
        yield f"it was {head.pipeline!r} and is {pipeline.name!r}"
        return
    now = {str(o.name): in_words(o) for o in pipeline.operators.values()}
    for name in {**head.operators, **now}:
        before, after = head.operators.get(name, "not there"), now.get(name, "not there")
        if before != after:
            yield f"operator {name!r} was {before} and is {after}"
