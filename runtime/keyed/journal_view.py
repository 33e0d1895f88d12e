"""The key groups of an instance, as the writer of its journal sees them.

Whenever other tasks can run, the state here is consistent with the results that were emitted, so it
may be recorded at any such moment. A key that has changed a hundred times is recorded once, with
its present state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.journaling import changes, restore, snapshot
from anabranch.runtime.keyed.state_changes import StateChanges
from anabranch.runtime.plan.operator import Operator


class Keeping:
    """`owned`: groups whose tuples are processed here. `frozen`: those which were. `pended`: kept
    tuples; `pended_in`, `pended_out`: how many have come and gone with their groups. `late`: late
    tuples, by what became of them.
    """

    def __init__(
        self,
        operator: Operator,
        groups: int,
        changed: Callable[[bytes], None] | None,
    ) -> None:
        self.operator = operator
        self._held = Holdings(operator.name, groups)
        self._changes = StateChanges() if changed is not None else None
        if self._changes is not None:
            self._held.changes = self._changes
            self._held.store.timers.note_changes()
            self._held.store.processing.note_changes()
        self._changed = changed

    @property
    def owned(self) -> frozenset[int]:
        return self._held.owned

    @property
    def frozen(self) -> frozenset[int]:
        return self._held.frozen

    @property
    def here(self) -> frozenset[int]:
        """Groups that are open here, owned or frozen."""
        return self._held.here

    @property
    def watermark(self) -> float:
        return self._held.watermark

    @property
    def pended(self) -> int:
        return self._held.pended

    @property
    def pended_in(self) -> int:
        return self._held.pended_in

    @property
    def pended_out(self) -> int:
        return self._held.pended_out

    @property
    def late(self) -> Counter[str]:
        return self._held.late

    def sizes(self) -> list[int]:
        """Keys per group."""
        return self._held.store.sizes()

    def states(self) -> dict[Any, Any]:
        """All states by key, for readers."""
        return self._held.store.states

    # -- recording ---------------------------------------------------------------------------

    def tell(self) -> None:
        """Record what has changed since the last call, if a journal is kept."""
        if self._changed is None or self._changes is None:
            return
        for change in changes(self._held, self._changes):
            self._changed(change)

    def _tell_chunk(self, chunk: bytes) -> None:
        """Record a chunk that has come, behind all earlier changes."""
        self.tell()
        if self._changed is not None:
            self._changed(chunk)

    # -- the journal -------------------------------------------------------------------------

    def restore(self, told: Iterable[bytes]) -> None:
        """Apply changes, in the order in which they were recorded; this processor must be new. They
        may begin with the first piece of a `snapshot`. Nothing is processed before `resume`."""
        restore(self._held, told)

    def snapshot(self, keys_max: int) -> Iterator[bytes]:
        """All there is now, as changes with about so many keys each. Anything may be called
        between two pieces; together with what is recorded meanwhile, in this order, they make the
        same processor. Records before the first piece are not needed then.

        Records what has changed before it gives a piece."""
        pieces = snapshot(self._held, keys_max)
        self.tell()
        for piece in pieces:
            yield piece
            self.tell()
