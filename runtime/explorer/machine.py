"""What the explorer drives: a protocol as a pure function, and what it may ask of a state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from anabranch.protocol import invariants, table
from anabranch.protocol.effects import Effect
from anabranch.protocol.events import Event
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.messages import Ids
from anabranch.protocol.ownership import Routes
from anabranch.protocol.replay_order import ReplayOrder
from anabranch.protocol.rules.context import Context
from anabranch.protocol.states import (
    Active,
    ClosingIn,
    Draining,
    Gone,
    Idle,
    Spawning,
    State,
    preds_of,
    routes_of,
    succs_of,
    waiting_for,
)


class Machine(Protocol):
    """A protocol. States are hashable values which only the machine itself understands."""

    @property
    def name(self) -> str: ...

    @property
    def broken_duty(self) -> str:
        """Which duty the drivers neglect, to show that it is found out; empty for none. `9` to
        `11` are whole; of duty 12: see `anabranch.runtime.broken_protocols.variants.restarting`."""

    @property
    def replay_order(self) -> type[ReplayOrder]:
        """In which order the drivers take what comes again after a death."""

    def newborn(self) -> Any:
        """The state of an instance that was not started yet."""

    def step(self, ctx: Context, state: Any, event: Event) -> tuple[Any, tuple[Effect, ...]]:
        """Raises `AnabranchProtocolError` if the protocol forbids the event."""

    def succs(self, state: Any) -> Ids: ...

    def preds(self, state: Any) -> Ids: ...

    def is_active(self, state: Any) -> bool: ...

    def is_keeper(self, state: Any) -> bool: ...

    def is_gone(self, state: Any) -> bool: ...

    def routes(self, state: Any) -> bool:
        """Whether an instance in this state may still send tuples."""

    def table(self, state: Any) -> Routes:
        """Where an instance in this state sends the tuples of key groups."""

    def owned(self, state: Any) -> Routes:
        """The key groups that belong to an instance in this state."""

    def spawning(self, state: Any) -> int:
        """How many processes an instance waits for."""

    def unfinished_business(self, state: Any) -> str:
        """What an instance that stays in this state for ever waits for; empty if nothing."""

    def broken_at(self, ctx: Context, state: Any) -> str:
        """The first invariant which a state breaks alone, as a sentence; empty if none."""

    def broken_between(self, x: InstanceId, of_x: Any, y: InstanceId, of_y: Any) -> Iterator[str]:
        """Invariants which the states of two neighbours break together."""

    def letter_to_the_dead(self) -> bool:
        """Whether a message under way to a terminated instance is a fault at once."""

    @property
    def ranked(self) -> bool:
        """Whether it is known what becomes smaller with every move (L3, `Ranking`)."""


class Shipped:
    """The core that the live runtime runs. Other `cells` than the shipped table make a broken
    variant of it, which need not be `ranked`; or its drivers neglect a duty."""

    def __init__(
        self,
        name: str = "shipped",
        cells: Mapping[tuple[type[State], type], table.Cell] = table.TABLE,
        *,
        ranked: bool = True,
        broken_duty: str = "",
        replay_order: type[ReplayOrder] = ReplayOrder,
    ) -> None:
        self.name = name
        self.replay_order = replay_order
        self.broken_duty = broken_duty
        self.ranked = ranked
        self._cells = cells

    def newborn(self) -> State:
        return Idle()

    def step(self, ctx: Context, state: State, event: Event) -> tuple[State, tuple[Effect, ...]]:
        return table.step(ctx, state, event, self._cells)

    def succs(self, state: State) -> Ids:
        return succs_of(state)

    def preds(self, state: State) -> Ids:
        return preds_of(state)

    def is_active(self, state: State) -> bool:
        return isinstance(state, Active)

    def is_keeper(self, state: State) -> bool:
        return invariants.keeps(state)

    def is_gone(self, state: State) -> bool:
        return isinstance(state, Gone)

    def routes(self, state: State) -> bool:
        return isinstance(state, Active | ClosingIn | Draining)

    def table(self, state: State) -> Routes:
        return routes_of(state)

    def owned(self, state: State) -> Routes:
        return state.owned if isinstance(state, Active) else ()

    def spawning(self, state: State) -> int:
        own = state.own if isinstance(state, Active) else None
        return own.n if isinstance(own, Spawning) else 0

    def unfinished_business(self, state: State) -> str:
        if isinstance(state, Gone):
            return ""
        if isinstance(state, Active) and state.own is None:
            if not state.expects:
                return ""
            return f"expects state from {', '.join(map(str, sorted(state.expects)))}"
        awaited = ", ".join(map(str, sorted(waiting_for(state))))
        what = f"own {type(state.own).__name__}" if isinstance(state, Active) else ""
        return f"{what or table.describe(state)}, waiting for {{{awaited}}}"

    def broken_at(self, ctx: Context, state: State) -> str:
        return invariants.broken_at(ctx, state) or ""

    def broken_between(
        self, x: InstanceId, of_x: State, y: InstanceId, of_y: State
    ) -> Iterator[str]:
        yield from invariants.broken_between(x, of_x, y, of_y)

    def letter_to_the_dead(self) -> bool:
        return True
