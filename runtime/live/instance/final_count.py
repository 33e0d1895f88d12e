"""The account that an instance gives of its tuples when it has ended."""

from __future__ import annotations

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.live.instance.pumps import Pump
from anabranch.runtime.live.instance.tuple_path import TuplePath
from anabranch.runtime.reporting.status import FinalCount


def final_count(me: InstanceId, path: TuplePath, pump: Pump) -> FinalCount:
    neighbourhood, keyed = path.neighbourhood, pump.keyed
    return FinalCount(
        id=str(me),
        operator=me.operator,
        sent=neighbourhood.sent,
        received=neighbourhood.received,
        sent_before=neighbourhood.closed.summed.sent,
        received_before=neighbourhood.closed.summed.received,
        queued=path.intake.tuples + (keyed.pended if keyed else 0),
        # The processor's counts, since several transfers may be under way at once.
        handed_in=keyed.pended_in if keyed else 0,
        handed_out=keyed.pended_out if keyed else 0,
        messages=neighbourhood.messages_sent,
        late=dict(keyed.late) if keyed else {},
        ahead=pump.stamper.ahead if pump.stamper is not None else 0,
        left_out=pump.stamper.left_out if pump.stamper is not None else {},
        **path.counts.final(),
    )
