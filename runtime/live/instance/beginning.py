"""What an instance has of the disk before it can begin: its journal, and the target of a sink.

While the disk is full, or refuses otherwise for now, it waits, as it does later when it writes. The
agent gets a message of that, and gives it more time to get ready."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anabranch.runtime.live.commit.recovery import Past, read_base, read_past
from anabranch.runtime.live.copies.client import JournalCopies
from anabranch.runtime.live.instance.profile import Profile
from anabranch.runtime.live.journal.journal import Journal
from anabranch.runtime.plan.ends import ExactWriter, Writer
from anabranch.runtime.storage.patience import Patience

Base = dict[str, list[bytes]]
"""What a savepoint has for an instance: changes by kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """`found`: what earlier incarnations have left, or, if they had begun nothing, what the first
    one begins with. `journal`: None if it keeps none; `writer`: None if it is no sink. `last_put`:
    number of the last piece that is at the target of an exact writer for certain."""

    found: Past | Base
    journal: Journal | None = None
    writer: Writer | None = None
    last_put: int = 0

    @property
    def past(self) -> Past | None:
        return self.found if isinstance(self.found, Past) else None


async def begin_patiently(
    profile: Profile,
    path: Path | None,
    patience: Patience,
    copies: JournalCopies | None = None,
) -> Beginning:
    """`path`: of the journal; None: it keeps none. `copies`: of it on other hosts. Raises what the
    files are not, and `OSError` if to wait would not help."""

    async def of_journal() -> Beginning:
        return Beginning(found={}) if path is None else _open_journal(path, profile, copies)

    begun = await patience.outlast(of_journal)
    sink = profile.operator.sink
    if sink is None:
        return begun
    open_writer = partial(_open_writer, profile, is_resumed=begun.past is not None)
    try:
        writer, last_put = await patience.outlast(open_writer)
    except BaseException:
        if begun.journal is not None:
            begun.journal.close()
        raise
    return Beginning(found=begun.found, journal=begun.journal, writer=writer, last_put=last_put)


def _open_journal(path: Path, profile: Profile, copies: JournalCopies | None) -> Beginning:
    context = profile.context
    power = context.durable == "power"
    past = read_past(path, power=power, owner=str(profile.me), must_be=profile.was_ready)
    base = read_base(path)
    if past is not None:
        for kind, told in base.items():
            past.added[kind] = [*told, *past.added.get(kind, [])]
    return Beginning(
        found=base if past is None else past, journal=Journal(path, power=power, copies=copies)
    )


async def _open_writer(profile: Profile, *, is_resumed: bool) -> tuple[Writer, int]:
    """And the number of its last piece, half of which may have to be cut off: nothing more may be
    put there."""
    sink = profile.operator.sink
    assert sink is not None
    writer = sink.open(profile.context)
    if not is_resumed or not isinstance(writer, ExactWriter):
        return writer, 0
    try:
        return writer, writer.last_put()
    except OSError:
        await writer.close()  # it may be opened again
        raise
