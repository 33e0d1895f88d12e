"""The chain, with or without what is measured for policies and people:
`python -m benches.measuring_ours FILE measured|unmeasured`. Prints what `chain_ours` does."""

from __future__ import annotations

import sys
from typing import Any

from anabranch.runtime.live.channel import neighbourhood
from anabranch.runtime.live.instance import intake, monitor
from anabranch.runtime.measuring import cpu, meter
from anabranch.runtime.measuring.level import Level
from anabranch.runtime.measuring.slot_meter import SlotMeter
from anabranch.runtime.policies import concerted
from benches import chain_ours


class Still(Level):
    def add(self, change: float, now_s: float) -> None:
        """Nothing."""


class NoSlots(SlotMeter):
    def received(self, tuples: int) -> None:
        """Nothing."""

    def processed(self, tuples: float, busy_s: float) -> None:
        """Nothing."""

    def look(self, queued: int, held: float, here_s: float, now_s: float) -> None:
        """Nothing."""


def measure_nothing() -> None:
    """Put what does nothing in the place of what measures; processes that are forked have it."""

    def nothing(*_: Any, **__: Any) -> None:
        """The same."""

    def unchanged(_: Any, reading: Any, *__: Any, **___: Any) -> Any:
        return reading

    places: list[tuple[Any, str, Any]] = [
        (intake, "Level", Still),
        (meter, "SlotMeter", NoSlots),
        (intake.Intake, "worked_off", nothing),
        (cpu.HostUse, "look", nothing),
        (neighbourhood.Neighbourhood, "streams", ({}, {})),
        (monitor.Monitor, "note_spent", nothing),
        (concerted.Concerted, "exchange", unchanged),
    ]
    for owner, name, instead in places:
        assert hasattr(owner, name), name
        setattr(owner, name, instead)


if __name__ == "__main__":
    if sys.argv[2] == "unmeasured":
        measure_nothing()
    chain_ours.main(sys.argv[1], "hops")
