"""A broken variant of the shipped core: some cells of its table replaced, nothing else touched.
Or the core is whole, and the driver neglects one of its duties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.protocol.states import State
from anabranch.protocol.table import TABLE, Cell
from anabranch.runtime.explorer.machine import Shipped
from anabranch.runtime.explorer.scope import Scope

Patch = Mapping[tuple[type[State], type], Cell]


@dataclass(frozen=True, slots=True)
class Variant:
    """`rule`: which rule of `docs/protocol.md` is broken, and `what` it does instead. `scope`: a
    small one in which that is found out. `finding`: codes of which the fault has one."""

    rule: str
    what: str
    scope: Scope
    finding: tuple[str, ...]
    patch: Patch = field(repr=False, default_factory=dict)
    also: str = ""
    """The number of the fault, if the design has found it: F1 to F19, PF1 to PF9."""
    ranked: bool = False
    """Whether it breaks L3; for the others the rank would only hide what they break."""

    broken_duty: str = ""
    """Which one of `anabranch.protocol.effects` the driver neglects."""

    @property
    def name(self) -> str:
        return f"{self.rule}: {self.what}"

    def machine(self) -> Shipped:
        cells = {**TABLE, **self.patch}
        return Shipped(self.name, cells, ranked=self.ranked, broken_duty=self.broken_duty)
