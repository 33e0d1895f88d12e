"""The account that an instance gives of its tuples when it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.runtime.live.instance.keyed_pump import KeyedPump
from anabranch.runtime.reporting.status import FinalCount

if TYPE_CHECKING:
    from anabranch.runtime.live.instance.instance import Instance


def final_count(instance: Instance) -> FinalCount:
    instance.scaling.account()
    counts, neighbourhood, pump = instance.counts, instance.neighbourhood, instance.pump
    keyed = pump.processor if isinstance(pump, KeyedPump) else None
    return FinalCount(
        id=str(instance.me),
        operator=instance.me.operator,
        tuples_in=counts.tuples_in,
        processed=counts.processed,
        tuples_out=counts.tuples_out,
        dead=counts.dead,
        dead_upstream=counts.dead_beside,
        dead_towards=dict(counts.dead_towards),
        sent=neighbourhood.sent,
        received=neighbourhood.received,
        sent_before=neighbourhood.closed.summed.sent,
        received_before=neighbourhood.closed.summed.received,
        queued=instance.intake.tuples + (keyed.pended if keyed else 0),
        # As the processor counts them, for several transfers may be under way at once.
        handed_in=keyed.pended_in if keyed else 0,
        handed_out=keyed.pended_out if keyed else 0,
        messages=neighbourhood.messages_sent,
        joins=counts.joins,
        leaves=counts.leaves,
        latency=counts.latency.counts,
        dead_reasons=dict(counts.dead_reasons),
        late=dict(keyed.late) if keyed else {},
        ahead=pump.stamper.ahead if pump.stamper is not None else 0,
        busy_s=counts.spent.busy_s,
        blocked_s=counts.spent.blocked_s,
        cpu_s=counts.spent.cpu_s,
        here_s=counts.spent.here_s,
    )
