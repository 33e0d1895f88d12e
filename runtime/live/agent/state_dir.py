"""The folder in which a run keeps what outlives its processes: DIR of `--state DIR`.

    run.json        what the run is: pipeline, version, secret, limits, seed, beginning
    agent.journal   what the agent has recorded
    journals/       one journal per instance
    ends/           what sources and sinks keep
    extents/        how long the journals were at least (so in journals/)
    lock            held while the run lives

A run that is complete removes all of it; `run.json` is `run.json.over` meanwhile, so that what a
death leaves of it is removed by the next run. A folder that holds a run and whose lock is free
belongs to a run that was killed, stopped or has failed: it can be resumed. Without `--state` the
same lies in the folder of the run and goes with it.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from anabranch.protocol.limits import Limits
from anabranch.runtime.live.agent.run_journal import (
    Founded,
    RunJournal,
    read_records,
)
from anabranch.runtime.live.journal.journal import is_base
from anabranch.runtime.live.link.inherited_fds import own
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.plan.spec import Span
from anabranch.runtime.ports import clock
from anabranch.runtime.ports.disk import store
from anabranch.runtime.ports.store import File
from anabranch.runtime.savepoint.versions import STATE_FORMAT, version
from anabranch.runtime.storage.extent import EXTENTS
from anabranch.runtime.storage.record_log import LogDamaged
from anabranch.runtime.storage.replaced import replace_file
from anabranch.runtime.storage.state_folder import (
    JOB,
    LOCK,
    RUN,
    StateError,
    check_inputs,
    inputs_in_words,
    locked,
)

JOURNAL, JOURNALS, ENDS = "agent.journal", "journals", "ends"
OVER, HALF = f"{RUN}.over", f"{RUN}.new"
_HALF_BEGINS = b'{"format":'
_OURS = (RUN, JOURNAL, JOURNALS, ENDS, EXTENTS, f"{JOURNAL}.new", HALF, OVER)
LEFT_TIMEOUT_S = 10.0
"""How long processes of a killed run may take to end."""


class RunFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a resumed run must have in common with the one that was killed."""

    format: int
    version: str
    pipeline: str
    operators: dict[str, str]
    """By name: what it is and where its input comes from, in words."""
    groups: int
    delivery: str
    durable: dict[str, str] = {}
    copies: int = 1
    """By operator: what its instances outlive; their journals are written accordingly."""
    token: bytes
    limits: dict[str, Any]
    seed: int
    started_at: str
    run_dir: str
    """Neighbours have the addresses of the sockets in it."""
    gone: dict[str, str]
    """Sources whose input is gone with the processes that read it, and the text about it."""
    transport: str
    host: str
    until_committed: bool = False
    """Whether it ends with a savepoint."""
    begun_from: str = ""
    """The savepoint that it has begun from."""
    earlier_s: float = 0.0
    """How long the stream had run before that."""
    span: tuple[float | None, float | None] | None = None
    """Of the event times that are taken; None in it: without a limit there."""
    inputs: dict[str, list[str]] = {}
    """Files that sources read in the place of their own, by name."""
    crc: int = 0
    """CRC-32 of the file with 0 here."""

    @property
    def sealed(self) -> RunFile:
        plain = msgspec.structs.replace(self, crc=0)
        return msgspec.structs.replace(plain, crc=zlib.crc32(msgspec.json.encode(plain)))


class StateDir:
    """Locked from `open_state` to `close`."""

    def __init__(self, path: Path, lock: File) -> None:
        self.path = path
        self.resumed: RunFile | None = None
        """What the run was that is to go on; None: a new one begins."""
        self._lock: File | None = lock
        self._folder = own(store().hold(path))
        self._journal: RunJournal | None = None

    def journal(self, *, power: bool) -> RunJournal:
        self._journal = RunJournal(self.path / JOURNAL, power=power)
        return self._journal

    def begin(self, run: RunFile) -> None:
        for name in (JOURNALS, ENDS):
            store().make_folder(self.path / name, 0o700)
        self.rewrite(run)
        store().sync_folder(self.path.parent)  # in which this one may be new

    def rewrite(self, run: RunFile) -> None:
        """The run goes on in another way."""
        replace_file(self.path / RUN, msgspec.json.encode(run.sealed))

    def clear(self) -> None:
        """Remove what belongs to the run, and nothing else: the folder is the user's. What says
        that it was ours goes last."""
        disk = store()
        with suppress(FileNotFoundError):
            disk.rename(self.path / RUN, self.path / OVER)
        for name in _OURS:
            path = self.path / name
            if disk.is_folder(path):
                disk.remove_folder(path)
            else:
                disk.remove(path)

    def is_resumable(self, *, power: bool) -> bool:
        """Raises `StateError` if what the agent recorded cannot be read."""
        try:
            records = read_records(self.path / JOURNAL, power=power)
            if not records and _has_journals(self.path / JOURNALS):
                raise LogDamaged(f"{JOURNAL} is gone or empty, and {JOURNALS} is not")
        except LogDamaged as error:
            raise StateError(
                f"state folder {str(self.path)!r}: {error}, so it is not known how far the run "
                "was; put it back as it was, or begin anew with --fresh"
            ) from None
        return any(isinstance(record, Founded) for record in records)

    def close(self) -> None:
        """Give the folder back; harmless if done before."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        self._folder.close()
        if self._lock is not None:
            if not store().exists(self.path / RUN):
                store().remove(self.path / LOCK)
            self._lock.close()
            self._lock = None


def open_state(pipeline: Pipeline, options: Options) -> StateDir | None:
    """Lock the folder of `options.state`; None if there is none. Raises `StateError`.

    A run that is given up is still there: what begins anew may yet be refused by a target.
    """
    if options.state is None:
        return None
    path = options.state.absolute()
    try:
        if store().exists(path / JOB):
            raise StateError(
                f"state folder {str(path)!r} holds a run on Spark; go on with it by --on spark, or "
                "name another folder"
            )
        if options.resume and not store().exists(path / RUN):
            raise StateError(
                f"state folder {str(path)!r} holds no run that could be resumed: none was begun "
                "there, or it is complete; start without --resume to begin one"
            )
        store().make_folder(path, 0o700, parents=True)
        state = StateDir(path, own(locked(path, ours=store().exists(path / RUN))))
    except OSError as error:
        raise StateError(
            f"state folder {str(path)!r} cannot be used: {error.strerror}; name another folder"
        ) from None
    try:
        state.resumed = _what_is_resumed(state, pipeline, options)
    except BaseException:
        state.close()
        raise
    return state


def kept_in(state: Path | None) -> bool:
    """Whether the folder holds a run that could be resumed."""
    return state is not None and store().exists(state / RUN)


def as_before(options: Options, run: RunFile) -> Options:
    """What neighbours and journals rely on is as it was when the run began."""
    limits = Limits(**run.limits)
    transport: Any = run.transport
    stops = options.until_committed or run.until_committed
    before = {"limits": limits, "transport": transport, "host": run.host, "seed": run.seed}
    if (span := span_in(run)) is not None and span.has_end:
        before["backfill"] = span
    return replace(options, until_committed=stops, **before)


def span_in(run: RunFile) -> Span | None:
    if run.span is None:
        return None
    start, end = run.span
    return Span(-math.inf if start is None else start, math.inf if end is None else end)


def gone_inputs(pipeline: Pipeline) -> dict[str, str]:
    """To be asked when the run begins: later, standard input may be another one."""
    found = ((str(o.name), o.source) for o in pipeline.operators.values())
    return {name: s.why_not for name, s in found if s is not None and not s.replayable}


def operators_in_words(pipeline: Pipeline) -> dict[str, str]:
    return {str(o.name): _in_words(o) for o in pipeline.operators.values()}


def _what_is_resumed(state: StateDir, pipeline: Pipeline, options: Options) -> RunFile | None:
    path = state.path
    if not store().exists(path / RUN):
        if store().exists(path / OVER) and _read_ours(path, OVER):
            state.clear()  # a run was killed while it did so
        if foreign := [name for name in _OURS if _is_foreign(path / name)]:
            raise StateError(
                f"state folder {str(path)!r} holds {foreign[0]!r}, which is not part of a run; "
                "name another folder"
            )
        return None
    written = _read_ours(path, RUN)
    if options.fresh:
        return None
    if not options.resume and not options.resume_or_begin:
        raise StateError(
            f"state folder {str(path)!r} holds a run that has not been completed; go on with it "
            "with --resume, or give it up and begin anew with --fresh (or remove the folder)"
        )
    run = _run_of(written, path)
    _check_same(run, pipeline, path)
    check_inputs(run.inputs, inputs_in_words(pipeline.inputs), path)
    if options.backfill is not None and options.backfill != span_in(run):
        raise StateError(
            f"state folder {str(path)!r} holds a run that takes another span; resume it with the "
            "span that it has begun with, or give it up with --fresh"
        )
    _wait_for_the_old(path)
    if state.is_resumable(power=outlives_power(pipeline)):
        return run
    if run.begun_from and options.begin_from is None:
        raise StateError(
            f"state folder {str(path)!r}: the run was killed before it had begun from the "
            f"savepoint {run.begun_from!r}; say --from again"
        )
    return None  # it was killed before it read anything


def _is_foreign(path: Path) -> bool:
    """Whether it is there and no run has left it that was killed before it had begun."""
    if path.name == HALF and store().is_file(path):
        begun = store().read(path)[: len(_HALF_BEGINS)]
        # A loss of power may leave zeros.
        return begun not in (_HALF_BEGINS[: len(begun)], bytes(len(begun)))
    return _has_something(path)


def _has_journals(folder: Path) -> bool:
    """Those on which they build come first: a run from a savepoint that was killed there has begun
    nothing."""
    return not all(map(is_base, store().names(folder)))


def _has_something(path: Path) -> bool:
    """An empty folder is all that a run leaves which is killed before it has begun."""
    return bool(store().names(path)) if store().is_folder(path) else store().exists(path)


def _read_ours(path: Path, name: str) -> dict[str, Any]:
    """Of whatever version: a file that only has the name of ours is the user's."""
    try:
        run = msgspec.json.decode(store().read(path / name), type=dict[str, Any])
    except msgspec.DecodeError:
        run = {}
    if not {"format", "version", "pipeline", "operators", "token"} <= run.keys():
        raise StateError(
            f"state folder {str(path)!r}: its {name} is damaged, or not that of a run, and is left "
            "alone; put it back as it was, or name another folder"
        )
    return run


def _run_of(written: dict[str, Any], path: Path) -> RunFile:
    if (written["format"], written["version"]) != (STATE_FORMAT, version()):
        raise StateError(
            f"state folder {str(path)!r} was written by another version of anabranch "
            f"({written['version']}, this is {version()}); finish the run with that one, or use "
            "--fresh"
        )
    try:
        run = msgspec.convert(written, RunFile)
        if run != run.sealed:
            raise ValueError("its checksum differs")
        Limits(**run.limits)
    except (TypeError, ValueError) as error:
        raise StateError(
            f"state folder {str(path)!r}: {RUN} is damaged: {error}; begin anew with --fresh"
        ) from None
    return run


def _check_same(run: RunFile, pipeline: Pipeline, path: Path) -> None:
    changes = list(_changes(run, pipeline))
    if changes:
        told = "; ".join(changes[:3])
        raise StateError(
            f"state folder {str(path)!r} belongs to another pipeline: {told}. Functions may be "
            "changed before a run is resumed, the graph may not: undo that, or use --fresh"
        )


def _changes(run: RunFile, pipeline: Pipeline) -> Iterator[str]:
    if run.pipeline != pipeline.name:
        yield f"it was {run.pipeline!r} and is {pipeline.name!r}"
        return
    now = operators_in_words(pipeline)
    for name in run.operators.keys() | now.keys():
        before, after = run.operators.get(name, "not there"), now.get(name, "not there")
        if before != after:
            yield f"operator {name!r} was {before} and is {after}"
    if list(run.operators) != list(now) and run.operators == now:
        yield f"the order was {', '.join(run.operators)} and is {', '.join(now)}"
    if run.delivery != pipeline.delivery:
        yield f"delivery was {run.delivery} and is {pipeline.delivery}"
    for name in now.keys() & run.operators.keys():
        was, durable = run.durable.get(name, "process"), pipeline.durable_of(name)
        if was != durable:
            yield f"operator {name!r} was durable to {was} and is to {durable}"
    if pipeline.has_copies and run.copies != pipeline.copies:
        yield f"copies was {run.copies} and is {pipeline.copies}"
    if run.groups != pipeline.groups:
        yield f"there were {run.groups} key groups and are {pipeline.groups}"


def durability(pipeline: Pipeline) -> dict[str, str]:
    """What the instances of each operator outlive."""
    return {name: pipeline.durable_of(name) for name in pipeline.operators}


def outlives_power(pipeline: Pipeline) -> bool:
    """Whether an operator asks for it; then the agent must keep the records of that one, too."""
    return any(pipeline.durable_of(name) == "power" for name in pipeline.operators)


def _in_words(operator: Operator) -> str:
    kind = "a source" if operator.source is not None else "an operator"
    if operator.sink is not None:
        kind = "a sink"
    by_key = " by key" if operator.edges else ""
    return f"{kind}{by_key}" + (f" after {', '.join(operator.upstream)}" * bool(operator.upstream))


def _wait_for_the_old(path: Path) -> None:
    """Processes of a killed run end by themselves; until then they hold their journals."""
    deadline = clock.monotonic() + LEFT_TIMEOUT_S
    for name in store().names(path / JOURNALS):
        lock = path / JOURNALS / name
        while lock.suffix == ".lock" and not _is_free(lock):
            if clock.monotonic() > deadline:
                raise StateError(
                    f"state folder {str(path)!r}: a process of the killed run still writes "
                    f"{lock.name.removesuffix('.lock')!r}; end it first"
                )
            clock.pause(0.01)


def _is_free(lock: Path) -> bool:
    file = store().open(lock, os.O_RDWR)
    try:
        return file.lock(wait=False)
    finally:
        file.close()
