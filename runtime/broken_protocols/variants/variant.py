"""A broken variant of the shipped core: some cells of its table are replaced, or the core is as
shipped and the driver neglects one of its duties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.protocol.replay_order import ReplayOrder
from anabranch.protocol.states import State
from anabranch.protocol.table import TABLE, Cell
from anabranch.runtime.explorer.machine import Shipped
from anabranch.runtime.explorer.scope import Scope

Patch = Mapping[tuple[type[State], type], Cell]


@dataclass(frozen=True, slots=True)
class Variant:
    """`rule`: the rule of `docs/protocol.md` that is broken; `what` happens instead. `scope`: a
    small one in which the explorer finds it. `finding`: the invariants of which it breaks one."""

    rule: str
    what: str
    scope: Scope
    finding: tuple[str, ...]
    patch: Patch = field(repr=False, default_factory=dict)
    also: str = ""
    """The number of the fault, if the design has found it: F1 to F19, PF1 to PF9."""
    ranked: bool = False
    """Whether it breaks L3. For other variants the explorer does not check the rank, which would
    hide what they break."""

    broken_duty: str = ""
    """The number of the duty in `anabranch.protocol.effects` that the driver neglects."""

    replay_order: type[ReplayOrder] = ReplayOrder
    """In which order the driver takes what comes again after a death (duty 12)."""

    @property
    def name(self) -> str:
        return f"{self.rule}: {self.what}"

    def machine(self) -> Shipped:
        cells = {**TABLE, **self.patch}
        return Shipped(
            self.name,
            cells,
            ranked=self.ranked,
            broken_duty=self.broken_duty,
            replay_order=self.replay_order,
        )
