"""The files of a run that outlive its processes: journals of instances, and what its ends keep."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from anabranch.runtime.live.agent.clock import RunClock
from anabranch.runtime.live.agent.roster import Member
from anabranch.runtime.live.agent.starter import StartOrders
from anabranch.runtime.live.agent.state_dir import (
    ENDS,
    JOURNALS,
    RunFile,
    durability,
    gone_inputs,
    operators_in_words,
)
from anabranch.runtime.live.journal.journal import remove_journal
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.spec import Span
from anabranch.runtime.ports.disk import store
from anabranch.runtime.savepoint.versions import STATE_FORMAT, version
from anabranch.runtime.storage.state_folder import inputs_in_words
from anabranch.runtime.values.texts import carried, original


class RunFiles:
    """`path`: the folder of all of them. `keep_finished`: journals of instances that have finished
    stay, for a savepoint."""

    def __init__(self, path: Path, operators: Iterable[str], *, keep_finished: bool) -> None:
        self.path = path
        self._operators = tuple(operators)
        self._keep_finished = keep_finished
        self._places = {name: place for place, name in enumerate(self._operators)}

    def on(self, path: Path) -> RunFiles:
        """The same, in a folder of another host."""
        return RunFiles(path, self._operators, keep_finished=self._keep_finished)

    @property
    def ends(self) -> Path:
        """For sources and sinks."""
        return self.path / ENDS

    @property
    def is_there(self) -> bool:
        """Whether the folders were not removed."""
        return all(store().is_folder(self.path / name) for name in (JOURNALS, ENDS))

    def make(self) -> None:
        for folder in (self.path, self.path / JOURNALS, self.path / ENDS):
            store().make_folder(folder, 0o700)

    def make_lasting(self) -> None:
        """So that they are there after a loss of power."""
        self.make()
        store().sync_folder(self.path)
        store().sync_folder(self.path.parent)

    def journal_of(self, operator: str, number: int) -> Path:
        """By the operator's place: its name may be too long for a file together with the rest."""
        return self.path / JOURNALS / f"{self._places[operator]}.{number}.journal"

    def remove(self, member: Member) -> None:
        """Those of an instance that has ended."""
        kind, _, place = member.address.partition(":")
        with suppress(OSError):  # they go with the folders
            if not self.keeps(member):
                remove_journal(self.journal_of(member.id.operator, member.id.number))
            if kind == "unix":  # one that has ended by itself has removed it
                Path(original(place)).unlink(missing_ok=True)

    def keeps(self, member: Member) -> bool:
        """The journal of this one."""
        return self._keep_finished and member.finished


def run_file_of(
    pipeline: Pipeline, orders: StartOrders, clock: RunClock, begun_from: str
) -> RunFile:
    """What another agent needs to go on with this run."""
    return RunFile(
        format=STATE_FORMAT,
        version=version(),
        pipeline=pipeline.name,
        operators=operators_in_words(pipeline),
        groups=pipeline.groups,
        delivery=orders.delivery,
        durable=durability(pipeline),
        copies=pipeline.copies,
        token=orders.token,
        limits=asdict(orders.limits),
        seed=orders.seed,
        started_at=clock.started_at.isoformat(),
        run_dir=carried(orders.run_dir),
        transport=orders.transport,
        host=orders.host,
        gone=gone_inputs(pipeline),
        until_committed=orders.stays_open,
        begun_from=begun_from,
        earlier_s=clock.earlier_s,
        span=plain_span(orders.span),
        inputs=inputs_in_words(pipeline.inputs),
    )


def take_letters(pipeline: Pipeline, host: str, lines: bytes) -> None:
    """Of that host, into the file of dead letters at home. Raises `OSError`."""
    letters = pipeline.letters_of("", host, None, durable=False)
    try:
        letters.put_next(lines)
    finally:
        letters.close()


def plain_span(span: Span | None) -> tuple[float | None, float | None] | None:
    """JSON has no infinity."""
    if span is None:
        return None
    start, end = (None if math.isinf(at) else at for at in (span.start, span.end))
    return start, end
