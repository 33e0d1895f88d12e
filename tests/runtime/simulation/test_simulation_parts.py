"""The parts of a simulated world: clock, paths, boards, outboxes, hosts, wording."""

from __future__ import annotations

import math
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.protocol import events, messages
from anabranch.protocol.credit import Allowance
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.ownership import Route
from anabranch.protocol.states import Active, Spawning
from anabranch.runtime.reporting import wording
from anabranch.runtime.simulation.board import Board
from anabranch.runtime.simulation.branch import Branch
from anabranch.runtime.simulation.clock import Clock
from anabranch.runtime.simulation.fault import Fault
from anabranch.runtime.simulation.host import Host
from anabranch.runtime.simulation.incarnation import IncarnationClock
from anabranch.runtime.simulation.keyed_state import GroupState, Kept
from anabranch.runtime.simulation.lineage import Lineage
from anabranch.runtime.simulation.links import Lane, Path
from anabranch.runtime.simulation.models import BASE, Keys, Model, Timing, expand
from anabranch.runtime.simulation.outbox import KeyedBranch
from anabranch.runtime.simulation.replay_order import ReplayOrder


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


def test_what_an_incarnation_has_asked_for_dies_with_it() -> None:
    clock, done = Clock(), list[Any]()
    one, other = IncarnationClock(clock), IncarnationClock(clock)
    one.after(1.0, done.append, "one")
    other.at(1.0, done.append, "other")
    one.over = True
    assert clock.run(events_max=10)
    assert done == ["other"]


def test_what_a_stopped_process_has_asked_for_is_done_when_it_goes_on() -> None:
    clock, done = Clock(), list[Any]()
    incarnation = IncarnationClock(clock)
    for when_s in (1.0, 2.0, 9.0):
        incarnation.at(when_s, lambda asked_s: done.append((asked_s, clock.now)), when_s)
    incarnation.stopped_until_s = 5.0
    assert incarnation.stopped
    assert clock.run(events_max=10)
    assert done == [(1.0, 5.0), (2.0, 5.0), (9.0, 9.0)]


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


KEYS = Keys(groups=3, keys=5, window_s=10.0)
TIMING = Timing(step_s=1.0, disorder_s=0.0, allowed_s=0.0)


def test_the_first_of_skewed_keys_are_frequent_and_all_occur() -> None:
    even, skewed = Keys(groups=2, keys=4), Keys(groups=2, keys=4, skew=4.0)
    counts = [Counter(k.key_of(root) for root in range(4000)) for k in (even, skewed)]
    assert all(sorted(c) == [0, 1, 2, 3] for c in counts)
    assert max(counts[0].values()) < 1.2 * min(counts[0].values())
    assert counts[1][0] > 2000
    assert {KEYS.group_of(key) for key in range(100)} == {0, 1, 2}


@pytest.mark.parametrize(("allowed_s", "late"), [(2.0, False), (1.0, True), (0.0, True)])
def test_what_is_further_behind_than_allowed_is_late(allowed_s: float, late: bool) -> None:
    timing, keys = Timing(step_s=0.5, disorder_s=2.0, allowed_s=allowed_s), Keys(groups=1, keys=1)
    lates = [n for n in range(200) if keys.is_late(timing.time_of(n), timing.mark_of(n))]
    assert bool(lates) == late


def test_a_tuple_at_the_end_of_a_window_is_in_the_next_whatever_floats_do() -> None:
    keys = Keys(groups=1, keys=1, window_s=0.002308799952229814)
    for root in range(10_000):
        time_s = root * 0.002308799952229814
        window = keys.window_of(time_s)
        assert keys.end_of(window - 1) <= time_s < keys.end_of(window)


def route(group: int, owner: InstanceId, version: int) -> Route:
    return Route(owner, group, version)


def channel_to(peer: InstanceId, credit: int) -> Any:
    return SimpleNamespace(peer=peer, allowance=Allowance(credit, 1))


FIRST, SECOND = InstanceId(OperatorName("sum"), 0), InstanceId(OperatorName("sum"), 1)


def test_a_keyed_branch_sends_each_result_to_the_owner_of_its_group() -> None:
    branch = KeyedBranch(OperatorName("sum"), lambda item: item % 2)
    channels = [channel_to(FIRST, 2), channel_to(SECOND, 0)]
    branch.change_view(channels, (route(0, FIRST, 0), route(1, SECOND, 0)))
    branch.hold(5, 1.0, [10, 11, 12, 13, 14])
    assert branch.next(9, random.Random(0)) == (channels[0], 2, 1.0, [10, 12])
    channels[0].allowance.spend(2, 0)
    assert branch.next(9, random.Random(0)) is None
    assert (branch.held, branch.made, branch.gone) == (3, 5, 1)


def test_held_results_go_to_whoever_owns_their_group_when_they_are_sent() -> None:
    branch = KeyedBranch(OperatorName("sum"), lambda item: item % 2)
    channels = [channel_to(FIRST, 9), channel_to(SECOND, 9)]
    branch.change_view(channels, (route(0, FIRST, 0), route(1, SECOND, 0)))
    branch.hold(2, 1.0, [10, 11])
    branch.hold(2, 2.0, [20, 21])
    branch.change_view(channels, (route(0, SECOND, 1), route(1, SECOND, 0)))
    assert branch.next(9, random.Random(0)) == (channels[1], 4, 1.0, [10, 11, 20, 21])


def test_a_keyed_branch_without_an_owner_is_a_finding() -> None:
    branch = KeyedBranch(OperatorName("sum"), lambda item: item % 2)
    branch.change_view([], (route(0, FIRST, 0),))
    with pytest.raises(Fault, match=r"K3: no owner of group 1 of sum is known"):
        branch.hold(1, 1.0, [11])


def kept(item: int, *, time_s: float, mark: float = 0.0) -> Kept:
    return Kept(0, item % 2, item, "split", 1.0, time_s, item, mark)


def folded(*tuples: Kept) -> GroupState:
    state = GroupState(0.0)
    for one in tuples:
        state.fold(one, KEYS)
    return state


def test_the_greatest_tuple_of_each_key_stands_for_a_window_that_is_over() -> None:
    state = folded(*(kept(n, time_s=t) for n, t in ((2, 1.0), (4, 9.9), (3, 5.0), (6, 10.0))))
    assert state.close(9.9, KEYS) == []
    assert [(c.key, c.item, c.end_s) for c in state.close(10.0, KEYS)] == [
        (0, 4, 10.0),
        (1, 3, 10.0),
    ]
    assert [o.item for o in state.open] == [6]


def test_a_tuple_is_late_by_its_mark_and_is_in_no_window_then() -> None:
    state = folded(kept(1, time_s=9.0, mark=9.9), kept(3, time_s=9.0, mark=10.0))
    assert [(one.item, one.late) for one in state.folded] == [(1, False), (3, True)]
    assert [one.item for one in state.open] == [1]


def test_a_tuple_behind_a_watermark_that_promised_there_was_none_is_a_finding() -> None:
    state = folded()
    state.close(5.0, KEYS)
    state.fold(kept(1, time_s=0.0, mark=5.0), KEYS)
    with pytest.raises(Fault, match=r"W: 3 of mark 4.9000 comes too late to group 0"):
        state.fold(kept(3, time_s=9.0, mark=4.9), KEYS)


@pytest.mark.parametrize("most", [1, 2, 100])
def test_chunks_carry_a_group_whole_and_in_order(most: int) -> None:
    state = folded(*(kept(n, time_s=float(n)) for n in range(5)))
    state.close(3.0, KEYS)
    waiting = [kept(n, time_s=9.0) for n in (7, 8, 9)]
    chunks = list(state.chunks(4, waiting, most))
    assert all(chunk.entries <= most and chunk.group == 4 for chunk in chunks)
    other = GroupState(-1.0)
    for chunk in chunks:
        other.add(chunk)
    assert (other.closed_s, other.folded, other.open) == (3.0, state.folded, state.open)
    assert [one for chunk in chunks for one in chunk.kept] == waiting


def test_an_empty_group_is_a_chunk_too() -> None:
    (chunk,) = GroupState(8.0).chunks(2, [], 5)
    assert (chunk.group, chunk.closed_s, chunk.entries) == (2, 8.0, 0)


def lineage() -> Lineage:
    model = Model(name="sum", keyed=KEYS)
    made = Lineage({OperatorName("sum"): model}, TIMING)
    made.read(A, [1, 2, 3])
    return made


def test_order_is_kept_per_origin_and_place() -> None:
    made = lineage()
    made.read(A._replace(number=7), [4])
    here, there = ("sum", 0), ("sum", 1)
    assert [made.take(here, "split", n) for n in (1, 4, 2)] == ["", "", ""]
    assert made.take(there, "split", 1) == ""
    assert made.take(here, "split", 1) == "key 0 of sum takes 1 of split.0 after a later one"
    assert made.take(here, "split", 2) != ""  # twice
    assert made.take(here, "split", 3) == ""


def test_results_of_a_key_have_one_order_whoever_owns_it() -> None:
    made = lineage()
    made.made("sum", "split", 2, [20], ("sum", 0))
    made.made("sum", "split", 1, [10], ("sum", 0))
    assert [made.birth("sum", n)[:2] for n in (10, 20)] == [(1, 1.0), (2, 2.0)]
    made.take_all(B, "sum", [10, 20])
    assert made.disorder == {"out": "out.1 takes 20 of key 0 of sum after a later one"}


def test_a_turn_that_has_died_is_forgotten_by_the_lineage() -> None:
    made, place, turn = lineage(), ("sum", 0), list[Any]()
    assert made.take(place, "split", 1) == ""
    assert [made.take(place, "split", n, turn) for n in (2, 3)] == ["", ""]
    made.undo(turn)
    assert [made.take(place, "split", n) for n in (2, 3)] == ["", ""]
    assert made.take(place, "split", 1) != ""


def repeats_up_to(*due: tuple[InstanceId, int]) -> ReplayOrder:
    return ReplayOrder(due)


def test_nothing_new_is_ready_before_all_repeats_have_come() -> None:
    repeats = repeats_up_to((A, 2))
    repeats.take(B, 9, "new")
    repeats.take_word(lambda: None)
    assert repeats.ready() == []
    repeats.take(A, 1, "tuples")
    assert repeats.ready() == ["tuples"]
    repeats.take(A, 2, "message")
    repeats.take(A, 3, "newer")
    assert repeats.ready()[:3] == ["message", "new", "newer"]
    assert not repeats.due


def test_repeats_are_ready_in_the_order_in_which_their_messages_were_handled() -> None:
    repeats = repeats_up_to((A, 2), (B, 4), (A, 5))
    for peer, number in ((B, 3), (B, 4), (A, 1), (A, 2), (A, 3)):
        repeats.take(peer, number, (peer, number))
    assert repeats.ready() == [(A, 1), (A, 2), (B, 3), (B, 4), (A, 3)]
    assert list(repeats.due) == [(A, 5)]
