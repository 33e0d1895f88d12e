"""What an instance keeps of its keys, told bit by bit to whoever emits results and keeps a journal.

At no moment when others can be at work has anything changed that was not told: with the part that
it belongs to, or at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from anabranch.runtime.graph import Operator
from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.journaling import changes, picture, restore
from anabranch.runtime.keyed.notes import Notes
from anabranch.runtime.steps import Part


class Keeping:
    """`owned`: groups whose tuples are processed here. `frozen`: those which were. `pended`: kept
    tuples; `pended_in`, `pended_out`: how many have come and gone with their groups. `late`: late
    tuples, by what became of them.
    """

    def __init__(
        self,
        operator: Operator,
        groups: int,
        emit: Callable[[Part], None],
        clock: Callable[[], float],
        journaled: bool,
        changed: Callable[[bytes], None] | None,
    ) -> None:
        if journaled and changed is None:
            raise ValueError(f"operator {operator.name!r} is journaled: expected `changed`")
        self.operator = operator
        self._held = Holdings(operator.name, groups)
        self._store = self._held.store
        self._notes = Notes() if journaled else None
        if self._notes is not None:
            self._held.notes = self._notes
        self._emit = emit
        self._changed = changed
        self._clock = clock

    @property
    def owned(self) -> frozenset[int]:
        return self._held.owned

    @property
    def frozen(self) -> frozenset[int]:
        return self._held.frozen

    @property
    def known(self) -> frozenset[int]:
        """Groups that are here, whole, whatever is done with them."""
        held = self._held
        return held.owned | held.frozen | held.behind | held.whole

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
        return self._store.sizes()

    def states(self) -> dict[Any, Any]:
        """All states by key, for those who look on."""
        return self._store.states

    # -- telling -----------------------------------------------------------------------------

    def _done(self, part: Part, began: float) -> None:
        if self._notes is not None:
            part.changes = changes(self._held, self._notes)
        part.busy_s = self._clock() - began - part.waited_s
        self._emit(part)

    def _done_if_told(self, part: Part, began: float) -> None:
        if part.results or part.letters:
            self._done(part, began)
        else:
            self._tell()

    def _tell(self) -> None:
        """What has changed outside of parts."""
        if self._notes is not None and (change := changes(self._held, self._notes)):
            self._tell_chunk(change)

    def _tell_chunk(self, change: bytes) -> None:
        if self._notes is not None and self._changed is not None:
            self._changed(change)

    # -- the journal -------------------------------------------------------------------------

    def restore(self, told: Iterable[bytes]) -> None:
        """Apply changes, in the order in which they were told; this processor must be new. They
        may begin with the first piece of a `picture`. Nothing is processed before `resume`."""
        restore(self._held, told)

    def picture(self, keys_max: int) -> Iterator[bytes]:
        """All there is now, as changes with about so many keys each. Anything may be called
        between two pieces; together with what is told meanwhile, in the order of telling, they
        make the same processor. What was told before the first piece is not needed then."""
        return picture(self._held, keys_max)
