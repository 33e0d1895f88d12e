"""Which pump an operator needs."""

from __future__ import annotations

from anabranch.runtime.live.instance.ports import Ports
from anabranch.runtime.live.instance.pumps import OperatorPump, Pump


def make_pump(ports: Ports) -> Pump:
    operator = ports.profile.operator
    # Imported here: an instance that needs one pump starts faster without the others.
    if operator.edges:
        if operator.sink is None:
            from anabranch.runtime.live.instance.keyed_pump import KeyedPump

            return KeyedPump(ports)
        from anabranch.runtime.live.instance.keyed_sink_pump import KeyedSinkPump

        return KeyedSinkPump(ports)
    if operator.source is not None:
        from anabranch.runtime.live.instance.source_pump import SourcePump

        return SourcePump(ports)
    if operator.sink is not None:
        from anabranch.runtime.live.instance.sink_pump import SinkPump

        return SinkPump(ports)
    return OperatorPump(ports)
