"""Which pump an operator needs."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.runtime.live.instance.ports import Ports
from anabranch.runtime.live.instance.pumps import OperatorPump, Pump
from anabranch.runtime.plan.operator import Operator


def make_pump(ports: Ports) -> Pump:
    return pump_of(ports.profile.operator)(ports)


def pump_of(operator: Operator) -> Callable[[Ports], Pump]:
    # Imported here: a run that needs one pump starts faster without the others.
    if operator.edges:
        if operator.sink is None:
            from anabranch.runtime.live.instance.keyed_pump import KeyedPump

            return KeyedPump
        from anabranch.runtime.live.instance.keyed_sink_pump import KeyedSinkPump

        return KeyedSinkPump
    if operator.source is not None:
        from anabranch.runtime.live.instance.source_pump import SourcePump

        return SourcePump
    if operator.sink is not None:
        from anabranch.runtime.live.instance.sink_pump import SinkPump

        return SinkPump
    return OperatorPump
