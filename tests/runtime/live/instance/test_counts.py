"""What an instance counts outlives its processes."""

from __future__ import annotations

import pickle

from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.runtime.live.instance.counts import Counts
from anabranch.runtime.plan.ends import DeadLetter

ME = InstanceId(OperatorName("out"), 0)


def test_the_next_incarnation_goes_on_with_all_that_was_counted() -> None:
    before, after = Counts(ME), Counts(ME)
    before.tuples_in, before.processed, before.tuples_out, before.dead = 9, 7, 6, 2
    before.joins, before.leaves = 3, 1
    before.note_dead_towards("next", 4)
    before.note_dead([DeadLetter("ValueError: bad", 1)])
    before.note_latency(5.0, 7)
    after.restore(pickle.loads(pickle.dumps(before.snapshot())))
    assert after.snapshot() == before.snapshot()
    assert after.latency.counts == before.latency.counts
    assert (after.latency.total, after.dead_beside, after.dead_towards["next"]) == (7, 4, 4)


def test_what_is_recorded_does_not_change_with_what_is_counted_later() -> None:
    counts = Counts(ME)
    counts.note_latency(5.0, 7)
    recorded = counts.snapshot()
    copy = pickle.loads(pickle.dumps(recorded))
    counts.note_latency(5.0, 7)
    counts.note_dead_towards("next", 1)
    assert recorded == copy
