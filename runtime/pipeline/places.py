"""Before a run touches anything: would it destroy what it reads, and can it write what it must?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.policies.controller import controllers_of
from anabranch.runtime.policies.learnt_file import check_controllers, read_learnt
from anabranch.runtime.processing.programs import programs
from anabranch.runtime.reporting.report import check_writable
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.working_folder import check_working_folder

REPORT_BEGINS = b'"pipeline"'
"""The first words of a report behind its bracket."""


def check_places(pipeline: Pipeline, report: Path | None = None) -> None:
    """Raise `PipelineError` if a file is read and written at once, or if dead letters could not
    be written. Opens and makes nothing. `report`: what is written when the run has ended."""
    _check_dead_letters(_possible(pipeline.dead_letters_path))
    check_targets(pipeline)
    _check_programs(pipeline)
    written = [_Target(what, path) for what, path in _written(pipeline)]
    if report is not None:  # an input may be a former report, which `check_report` lets pass
        written.append(_Target("the report", report))
    _check_overwriting(pipeline, written)


def check_targets(pipeline: Pipeline) -> None:
    """Raise `PipelineError` if two things are written to one file, by whatever names or links, or
    one into the folder that is the other's. Opens and makes nothing."""
    check_working_folder()  # reading the pipeline's file may have changed it
    targets = list(_written(pipeline))
    for at, (what, path) in enumerate(targets):
        for other, theirs in targets[:at]:
            if not _is_one_place(path, theirs):
                continue
            if os.path.realpath(path) != os.path.realpath(theirs) and not _same(path, theirs):
                raise PipelineError(
                    f"{other} would write to {str(theirs)!r} and {what} to {str(path)!r}, and one "
                    "of these is a folder that the other is in; name another place for one of them"
                )
            raise PipelineError(
                f"{other} and {what} would both write to {str(path)!r}; name another place for "
                "one of them, or merge the streams before one sink"
            )


def _is_one_place(a: Path, b: Path) -> bool:
    """Whether they are one file or folder, or one is in the other."""
    if _same(a, b):
        return True
    if any(path.exists() and not (path.is_file() or path.is_dir()) for path in (a, b)):
        return False  # such as /dev/null
    real_a, real_b = Path(os.path.realpath(a)), Path(os.path.realpath(b))
    return real_a == real_b or real_a in real_b.parents or real_b in real_a.parents


def check_kept_learnt(pipeline: Pipeline, path: Path, report: Path | None) -> None:
    """Raise `PipelineError` if nothing is learnt, or if writing it would destroy something, and
    `OSError` if it could not be written."""
    option = f"--keep-learnt {path}"
    check_controllers(option, controllers_of(pipeline.operators.values()))
    check_writable(path, "--keep-learnt")
    written = [*_written(pipeline), *([] if report is None else [("the report", report)])]
    for what, target in written:
        if _is_one_place(path, target):
            raise PipelineError(f"{option}: {what} writes there; name another file")
    if path.exists() and not path.is_file():
        raise PipelineError(f"{option}: expected a file, or none yet; name another one")
    if path.is_file() and path.stat().st_size:
        try:
            read_learnt(path)
        except PipelineError:
            raise PipelineError(
                f"{option}: would overwrite a file that no run has written so, or that is damaged; "
                "name another file, or remove this one"
            ) from None


def check_report(pipeline: Pipeline, report: Path) -> None:
    """Raise `PipelineError` if a report would destroy something: a file that is there and is no
    report, or one that the run writes as well."""
    if report.resolve().is_fifo():  # not /dev/stdout, which has no name of its own
        raise PipelineError(
            f"the report would go to {str(report)!r}, a named pipe, and wait for its reader; "
            "write it to a file, or use --json and redirect that"
        )
    for what, target in _written(pipeline):
        if _is_one_place(report, target):
            raise PipelineError(
                f"the report would go to {str(report)!r}, and {what} writes there; "
                "write it to another file"
            )
    if report.is_file() and report.stat().st_size and not _is_report(report):
        raise PipelineError(
            f"the report would overwrite {str(report)!r}, which is no report; "
            "write it to another file, or remove this one"
        )


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(64).lstrip()
    return head[:1] == b"{" and head[1:].lstrip().startswith(REPORT_BEGINS)


def _check_programs(pipeline: Pipeline) -> None:
    """Nothing may be written over the pipeline's own file and others of the user's program."""
    for program in programs():
        for what, target in _written(pipeline):
            if _same(program, target):
                raise PipelineError(
                    f"{what} would write to {str(target)!r}, which is part of this program; "
                    "write to another file"
                )


def _check_overwriting(pipeline: Pipeline, written: list[_Target]) -> None:
    for operator in pipeline.operators.values():
        if operator.source is None:
            continue
        for path in operator.source.reads():
            for target in written:
                if target.is_where(path):
                    raise PipelineError(
                        f"source {operator.name!r} reads {str(path)!r}, and {target.what} would "
                        "write to it; write to another file"
                    )


def _written(pipeline: Pipeline) -> Iterator[tuple[str, Path]]:
    for operator in pipeline.operators.values():
        if operator.sink is not None and (target := operator.sink.writes()) is not None:
            yield f"sink {_name(operator)}", _possible(target)
    yield "the dead letters", _possible(pipeline.dead_letters_path)


def _possible(path: Path) -> Path:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass  # reported when it is opened
    except OSError as error:  # such as a name that is too long
        raise PipelineError(f"nothing can be written to {str(path)!r}: {error.strerror}") from None
    return path


def _name(operator: Operator) -> str:
    return repr(str(operator.name))


def _same(a: Path, b: Path) -> bool:
    try:
        return a.is_file() and os.path.samefile(a, b)
    except OSError:
        return False


class _Target:
    """What is written to; looked at once, for it is compared with every file that is read."""

    def __init__(self, what: str, path: Path) -> None:
        self.what = what
        self._folder = Path(os.path.realpath(path)) if path.is_dir() else None
        self._file = path.stat() if path.is_file() else None

    def is_where(self, path: Path) -> bool:
        """Whether a file that is read is this one, or in this folder."""
        if self._folder is not None:
            return self._folder in Path(os.path.realpath(path)).parents
        try:
            return self._file is not None and os.path.samestat(os.stat(path), self._file)
        except OSError:
            return False


def _check_dead_letters(path: Path) -> None:
    folder = path.absolute().parent
    if path.is_dir():
        raise PipelineError(f"dead letters: {str(path)!r} is a folder; name a file")
    if not folder.is_dir():
        raise PipelineError(
            f"dead letters would go to {str(path)!r}, but there is no folder {str(folder)!r}"
        )
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise PipelineError(
            f"dead letters would go to {str(path)!r}, which may not be written; "
            "choose another place with Pipeline(..., dead_letters=...)"
        )
