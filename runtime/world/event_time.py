"""How far event time has come in a world at rest: everywhere as far as the slowest before."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from anabranch.protocol.ids import InstanceId
from anabranch.protocol.states import Active
from anabranch.runtime.world.processes import WorldProcess


def lagging(
    active: Mapping[InstanceId, Active], processes: Mapping[InstanceId, WorldProcess]
) -> Iterator[str]:
    """Sentences about instances that have not received how far event time is."""
    of = {me: one for me in active if (one := processes[me].instance) is not None}
    due: dict[InstanceId, float] = {}

    def told_by(me: InstanceId) -> float:
        """How far its successors must be, as far as it goes."""
        stamper = of[me].pump.stamper
        if stamper is None:
            return heard_by(me)
        return stamper.watermark(math.inf)

    def heard_by(me: InstanceId) -> float:
        if me not in due:
            told = [told_by(pred) for pred in active[me].preds if pred in of]
            due[me] = min(told, default=-math.inf)
        return due[me]

    for me in sorted(of):
        if (at := of[me].path.gate.value) < heard_by(me):
            yield f"event time has come to {at:g} at {me}, and to {due[me]:g} before it"
