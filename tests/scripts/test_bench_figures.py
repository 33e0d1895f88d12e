"""The arithmetic of the benches, and that their checks can fail."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from benches.backpressure import is_flat
from benches.chain import stage_table
from benches.chain_functions import LINE_BYTES, expected_results, write_lines
from benches.decisions import Joining, alternately, joinings
from benches.figures import growth, in_turns, longest_gap, percentile, ratios, slope, spread
from benches.memory import Memory, parsed
from benches.pause import windows
from benches.result import Result
from benches.stamps import Arrivals
from benches.stopwatch import Stopwatch
from benches.telling import number, table
from benches.traced import Order, Origin, Verdict, Via, verdict

from anabranch.runtime.reporting.report import Event
from anabranch.runtime.values.kinds import EventKind


def test_a_spread_is_least_middle_and_greatest() -> None:
    assert spread([3.0, 1.0, 2.0, 10.0]) == (1.0, 2.5, 10.0)
    with pytest.raises(ValueError, match="no values"):
        spread([])


def test_ratios_are_made_round_by_round() -> None:
    assert ratios([1.0, 4.0], [2.0, 2.0]) == [0.5, 2.0]
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(i) for i in range(1, 101)]
    assert [percentile(values, s) for s in (0.0, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
    assert percentile([7.0], 0.99) == 7.0


def test_a_slope_is_per_unit_of_x() -> None:
    assert slope([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]) == pytest.approx(2.0)
    assert slope([(1.0, 5.0), (1.0, 6.0)]) == 0.0


def test_growth_leaves_out_the_filling_of_the_queues() -> None:
    filled_then_flat = [1.0, 5.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]
    assert growth(filled_then_flat) == 0.0
    assert growth([float(i) for i in range(8)]) == 4.0
    assert growth([1.0]) == 0.0


def test_memory_that_grows_is_not_flat() -> None:
    assert is_flat(1.9, [30.0])
    assert is_flat(5.0, [200.0])
    assert not is_flat(2.1, [30.0])


def test_the_longest_gap_counts_the_ends_of_the_window() -> None:
    times = [0.5, 1.1, 1.2, 1.9, 2.5]
    assert longest_gap(times, 1.0, 2.0) == pytest.approx(0.7)
    assert longest_gap([1.5], 1.0, 3.0) == 1.5
    assert longest_gap([], 1.0, 3.0) == 2.0


def test_everybody_is_first_once() -> None:
    rounds = [in_turns("abc", i) for i in range(4)]
    assert ["".join(r) for r in rounds] == ["abc", "bca", "cab", "abc"]


class Ticking:
    """A clock that is told what time it is."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def test_a_moment_belongs_to_the_innermost_stage_only() -> None:
    clock = Ticking()
    watch = Stopwatch(clock)

    def takes(ns: int) -> None:
        clock.ns += ns

    def outer() -> None:
        takes(10)
        watch.timed("inner", takes)(100)
        takes(1)

    watch.begin()
    takes(1000)
    watch.timed("outer", outer)()
    spent = watch.seconds()
    del spent["kernel"]
    assert {k: round(v * 1e9) for k, v in spent.items()} == {
        "rest": 1000,
        "outer": 11,
        "inner": 100,
    }


async def test_a_stage_ends_when_its_function_raises() -> None:
    clock = Ticking()
    watch = Stopwatch(clock)

    async def fails() -> None:
        clock.ns += 5
        raise KeyError

    watch.begin()
    with pytest.raises(KeyError):
        await watch.timed_async("failing", fails)()
    clock.ns += 7
    spent = watch.seconds()
    assert (round(spent["failing"] * 1e9), round(spent["rest"] * 1e9)) == (5, 7)


def test_the_reading_of_the_clock_is_taken_off() -> None:
    reads = iter(range(0, 10**9, 50))  # every reading takes 50 ns
    watch = Stopwatch(lambda: next(reads))
    watch.begin()
    for _ in range(100):
        watch.timed("empty", lambda: None)()
    assert watch.seconds()["empty"] == 0.0


def test_a_stage_table_sums_up_processes_and_stages() -> None:
    spent = {
        "lines": {"read": 2.0, "rest": 1.0, "kernel": 0.5},
        "out": {"decode": 3.0, "rest": 0.0},
    }
    rows = stage_table("a", spent, 1_000_000)
    assert rows[1].split()[-3:] == ["loop", "sum", "(kernel)"]
    assert [row.split()[0] for row in rows[2:]] == ["lines", "out", "all"]
    assert rows[-1].split()[-2:] == ["6.000", "0.500"]


def test_private_memory_is_the_sum_of_what_no_other_process_has() -> None:
    text = "Rss:  4096 kB\nPss: 1 kB\nPrivate_Clean: 512 kB\nPrivate_Dirty: 1024 kB\n"
    assert parsed(text) == Memory(private=1.5, resident=4.0)
    assert parsed("") is None


def test_all_lines_are_60_bytes_long_and_the_same_each_time(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    write_lines(one, 100)
    write_lines(other, 100)
    assert one.read_bytes() == other.read_bytes()
    assert {len(line) for line in one.read_bytes().splitlines(True)} == {LINE_BYTES}
    assert expected_results(one) == 100


def event(t: float, kind: str, instance: str, detail: str = "") -> Event:
    return Event(
        t=t, operator="work", kind=EventKind(kind), instances=1, instance=instance, detail=detail
    )


def test_a_newcomer_belongs_to_the_last_decision_of_its_creator() -> None:
    events = [
        event(1.0, "decided", "work.0", "told to duplicate"),
        event(1.1, "decided", "work.5", "told to duplicate"),
        event(1.2, "decided", "work.0", "told to leave"),
        event(1.3, "joined", "work.6", "by work.0"),
        event(1.4, "first_batch", "work.6"),
        event(2.0, "decided", "work.0", "told to duplicate"),
        event(2.5, "joined", "work.7", "by work.0"),
        event(2.6, "joined", "work.8", "by work.9"),
    ]
    assert joinings(events, "work") == [Joining(1.0, 1.3, 1.4), Joining(2.0, 2.5, None)]
    assert joinings(events, "other") == []


def test_the_script_adds_one_and_removes_one_in_turn() -> None:
    told = list(alternately("work", 4.0, 0.5).decisions(["work"]))
    assert [d.action for d in told] == ["duplicate", "leave"] * (len(told) // 2)
    steps = [round(b.at_s - a.at_s, 6) for a, b in pairwise(told)]
    assert set(steps) == {0.5}
    assert told[-1].at_s <= 4.0


def test_windows_end_where_the_stream_does() -> None:
    at_s = [i / 100 for i in range(201)]  # to 2.0 s
    arrivals = Arrivals(at_s, [0.001] * len(at_s))
    found = windows([(0.5, "join", "work.0"), (1.5, "leave", "work.1")], arrivals)
    assert [w.kind for w in found] == ["join", "calm", "leave"]
    assert [w.gap_s for w in found] == pytest.approx([0.01] * 3)
    assert all(len(w.latencies_s) == 50 for w in found)


def test_a_tuple_that_overtakes_another_on_the_same_way_is_noticed() -> None:
    order = Order()
    for one in ([7, 1, 50, 60], [8, 2, 50, 61], [9, 3, 50, 60]):
        order.take(one)
    assert (order.violations, order.ways) == (0, 2)
    order.take([7, 2, 50, 60])
    order.take([9, 2, 50, 60])  # again, as a doubled tuple would come
    assert order.violations == 2


def test_tuples_carry_their_number_their_place_and_their_way() -> None:
    origin, via = Origin(), Via()
    first, second = origin(40), via(origin(41))
    assert first[:2] == [40, 1]
    assert second[:2] == [41, 2]
    assert second[2] == first[2]
    assert len(second) == 4


def leave_numbers(folder: Path, instance: str, numbers: list[int], violations: int = 0) -> None:
    np.save(folder / f"{instance}.npy", np.array(numbers, dtype=np.uint64))
    (folder / f"{instance}.json").write_text(json.dumps({"violations": violations, "ways": 1}))


def test_lost_and_doubled_tuples_are_found_by_their_numbers(tmp_path: Path) -> None:
    leave_numbers(tmp_path, "out.0", [0, 2, 4])
    leave_numbers(tmp_path, "out.1", [1, 3])
    assert verdict(tmp_path, 5) == Verdict(lost=0, doubled=0, violations=0, ways=2)
    leave_numbers(tmp_path, "out.1", [1, 4, 4, 9], violations=3)
    assert verdict(tmp_path, 5) == Verdict(lost=1, doubled=3, violations=3, ways=2)


def test_numbers_are_shown_with_three_figures_that_count() -> None:
    shown = [number(v) for v in (0.12345, 1.5, 12.345, 123.45, 1234.5, 1_500_000.0, 2.0)]
    assert shown == ["0.123", "1.500", "12.35", "123.5", "1,234", "1,500,000", "2"]


def test_a_table_says_whether_a_target_is_met() -> None:
    result = Result("chain", "about", notes=["a note"], faults=["a fault"])
    result.at_least("a/c", [0.4, 0.6, 0.7], 0.5)
    result.at_least("b/d", [0.9], 1.0)
    text = table(result).splitlines()
    assert text[2].split() == ["a/c", "0.400", "0.600", "0.700", "x", ">=", "0.5:", "met"]
    assert text[3].endswith(">= 1: NOT met")
    assert text[4:] == ["  a note", "  NOT RIGHT: a fault"]
