"""The parts of a simulated world: clock, paths, boards, outboxes, hosts, wording."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.protocol import events, messages
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.states import Active, Spawning
from anabranch.runtime import wording
from anabranch.runtime.simulation.board import Board
from anabranch.runtime.simulation.clock import Clock
from anabranch.runtime.simulation.host import Host
from anabranch.runtime.simulation.links import Lane, Path
from anabranch.runtime.simulation.models import BASE, expand
from anabranch.runtime.simulation.outbox import Branch


def test_the_clock_keeps_time_and_the_order_of_asking() -> None:
    clock, done = Clock(), list[Any]()
    for when_s, what in ((2.0, "c"), (1.0, "a"), (1.0, "b")):
        clock.at(when_s, done.append, what)
    assert clock.run(until_s=1.5, events_max=10)
    assert (done, clock.now, clock.idle) == (["a", "b"], 1.5, False)
    assert clock.run(events_max=10)
    assert (done[-1], clock.now, clock.idle) == ("c", 2.0, True)


def test_the_clock_gives_up_what_never_ends() -> None:
    clock = Clock()

    def again(_: None) -> None:
        clock.after(1.0, again)

    clock.after(1.0, again)
    assert not clock.run(events_max=100)
    assert clock.done == 100


class End:
    """Takes frames off a lane."""

    def __init__(self) -> None:
        self.owner = SimpleNamespace(deaf_until_s=0.0)
        self.taken: list[tuple[float, Any]] = []
        self.clock = Clock()

    def take(self, wire: object, frame: Any) -> None:
        self.taken.append((self.clock.now, frame))


def lane_to(end: End, path: Path) -> Lane:
    return Lane(end.clock, path, end, SimpleNamespace())  # type: ignore[arg-type]


def test_a_lane_keeps_its_order_through_jitter_clogs_and_deafness() -> None:
    rng = random.Random(3)
    end = End()
    path = Path(rng, 0.01, jitter=5.0, straggling=0.2)
    lane = lane_to(end, path)
    for number in range(300):
        end.clock.at(rng.random(), lambda n: lane.write((n,)), number)
    end.clock.at(0.2, lambda _: setattr(path, "clogged_until_s", 0.5))
    end.clock.at(0.6, lambda _: setattr(end.owner, "deaf_until_s", 0.9))
    written = [what for _, _, _, what in sorted(end.clock._due) if what is not None]
    assert end.clock.run(events_max=10_000)
    assert [frame[0] for _, frame in end.taken] == written
    assert not any(0.2 < t < 0.5 or 0.6 < t < 0.9 for t, _ in end.taken)


def test_what_is_written_to_a_cut_lane_is_lost_with_what_was_on_it() -> None:
    end = End()
    lane = lane_to(end, Path(random.Random(0), 0.01))
    lane.write(("before",))
    lane.cut = True
    lane.write(("after",))
    assert end.clock.run(events_max=10)
    assert end.taken == []


def test_bandwidth_makes_batches_queue_up_and_lets_messages_pass() -> None:
    end = End()
    lane = lane_to(end, Path(random.Random(0), 0.0, tuples_per_s=100))
    for _ in range(3):
        lane.write(("batch",), 50)
    assert end.clock.run(events_max=10)
    assert [t for t, _ in end.taken] == [0.5, 1.0, 1.5]


def test_a_board_gives_what_is_due_once_and_shares_it() -> None:
    board = Board([0.0, 1.0, 2.0], [0, 4, 10], (1, 3))
    assert (board.due(0.5), board.next_s()) == (0, 1.0)
    assert board.take(1.0, 100, 2) == (2, [1, 4])
    assert board.take(1.0, 1, 1) == (1, [7])
    assert board.take(2.5, 100, 1) == (7, list(range(10, 31, 3)))
    assert board.next_s() == math.inf
    assert not board.ended
    board.closed = True
    assert board.ended
    assert board.all_items() == list(range(1, 31, 3))


def test_a_branch_gives_tuples_in_order_across_lots() -> None:
    branch = Branch(OperatorName("out"))
    branch.hold(3, 1.0, [1, 2, 3])
    branch.hold(2, 2.0, [4, 5])
    assert branch.take(2) == (1.0, [1, 2])
    assert branch.take(2) == (1.0, [3, 4])
    assert branch.take(1) == (2.0, [5])
    assert branch.held == 0


def test_a_branch_of_counted_tuples_knows_how_many_and_how_old() -> None:
    branch = Branch(OperatorName("out"))
    branch.hold(3, 1.0, None)
    branch.hold(5, 2.0, None)
    assert branch.take(4) == (1.0, None)
    assert branch.take(4) == (2.0, None)


@pytest.mark.parametrize(
    ("rule", "made"),
    [
        ("pass", [3 * BASE + 2, 4 * BASE + 2]),
        ("double", [3 * BASE + 2, 3 * BASE + 3, 4 * BASE + 2, 4 * BASE + 3]),
        ("thin", [4 * BASE + 2]),
    ],
)
def test_an_operator_leaves_its_digit_on_each_result(rule: Any, made: list[int]) -> None:
    assert expand(rule, 2, [3, 4]) == made


def test_more_workers_than_cores_take_longer_and_slow_hosts_too() -> None:
    host = Host(0, speed=2.0, cores=2)
    assert [host.begin(1.0) for _ in range(3)] == [0.5, 0.5, 0.75]
    for _ in range(3):
        host.end()
    host.slowness = 10.0
    assert host.begin(1.0) == 5.0


A, B = InstanceId(OperatorName("split"), 0), InstanceId(OperatorName("out"), 1)


def test_events_and_messages_are_told_in_words() -> None:
    join = messages.Join(frozenset({A}))
    assert wording.say(join) == "JOIN(new={split.0})"
    assert wording.say(messages.OfferResponse(ok=False)) == "OFFER_RESPONSE(no)"
    assert wording.say(messages.Start(frozenset(), frozenset({B}), True)) == (
        "START(succs={}, preds={out.1}, keeper)"
    )
    assert (
        wording.tell(events.MessageReceived(B, join)) == "receives JOIN(new={split.0}) from out.1"
    )
    assert wording.tell(events.BatchReady(B, 1)) == "sends 1 tuple to out.1"
    state = Active(frozenset(), frozenset(), keeper=True, own=Spawning(2))
    assert wording.condition(state) == "Active+Spawning"
