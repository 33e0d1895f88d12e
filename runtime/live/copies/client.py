"""The writer's end of the copies of its journal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from anabranch.protocol.ids import InstanceId


class JournalCopies:
    """`holders`: by host, the address of its copy keeper; `complete`: those of them with complete
    copies, as home has recorded; `order`: number of the order that has this. `note`: gets, when it
    has changed, for what the copies wait; empty if for nothing. `completed`: gets the number of the
    newest order, and each host whose copy is complete; to be sent to home (`CopyComplete`).

    A `Journal` is given it, and sends it what it writes."""

    def __init__(
        self,
        me: InstanceId,
        incarnation: int,
        token: bytes,
        *,
        order: int,
        holders: Mapping[str, str],
        complete: Collection[str],
        completed: Callable[[int, str], None],
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        raise NotImplementedError

    async def prepare(self, path: Path) -> None:
        """Before the journal at this path is read: ask the holders with complete copies how long
        these are, until one has reported it, and fetch what is missing here. A first incarnation
        returns at once. Raises `FencedError` if this incarnation was given up."""
        raise NotImplementedError

    def set_holders(self, order: int, holders: Mapping[str, str]) -> None:
        """Home has ordered: from now on these."""
        raise NotImplementedError

    async def copied(self) -> None:
        """Return when all that the journal has now counts."""
        raise NotImplementedError

    @property
    def waits_for(self) -> str:
        """For the status: which holders have not acknowledged, and why; empty if all have."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
