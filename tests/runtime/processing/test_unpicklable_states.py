"""A tuple that makes a state which cannot be pickled is a dead letter, and the state as before."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.runtime.processing.own import WATCHED_MAX
from anabranch.runtime.processing.undo import AFTER_BYTES_MAX, SAVED_BYTES_MAX, Undo, Unpicklable
from tests.anabranch.tested_pipelines import Anything

Tuple = dict[str, Any]


class Raises:
    def __reduce__(self) -> Any:
        raise SystemExit(3)


class RaisesInState:
    def __getstate__(self) -> Any:
        raise ValueError("no state")


def _unreadable() -> Any:
    raise ValueError("not again")


class Unreadable:
    """It is written, and not read again."""

    def __reduce__(self) -> Any:
        return _unreadable, ()


def _generator() -> Iterator[int]:
    yield 1


BAD: dict[str, Callable[[], Any]] = {
    "lambda": lambda: lambda: 1,
    "lock": threading.Lock,
    "generator": _generator,
    "file": lambda: sys.__stderr__,
    "reduce raises": Raises,
    "getstate raises": RaisesInState,
}
TUPLES = [{"at": n, "n": n} for n in range(6)]


def gathers(state: list[Any], one: Tuple, kind: str = "lock") -> list[Any]:
    state.append(one["n"])
    if one["n"] in (0, 3):
        state.append(BAD[kind]())
    return state


def makes_anew(state: list[Any], one: Tuple, kind: str = "lock") -> list[Any]:
    return gathers([*state], one, kind)


def keyed(build: Callable[[Any], Any], tuples: list[Tuple] = TUPLES) -> testing.Outcome:
    pipeline = ab.Pipeline("states")
    stream = pipeline.source("in", Anything.source).event_time(lambda t: t["at"])
    build(stream.key_by(lambda t: t.get("key"))).sink("out", Anything.sink)
    return testing.run(pipeline, {"in": tuples})


def _is_told(outcome: testing.Outcome, bad: list[int]) -> None:
    letters = outcome.dead["work"]
    assert [letter.tuple["n"] for letter in letters] == bad
    for letter in letters:
        said = "the state of operator 'work' for this key cannot be pickled: "
        assert letter.reason.startswith(said), letter.reason


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("change", [gathers, makes_anew])
@pytest.mark.parametrize("retry", [0, 1])
def test_a_fold_goes_on_with_the_value_before(
    kind: str, change: Callable[..., Any], retry: int
) -> None:
    outcome = keyed(lambda k: k.fold("work", list, lambda s, t: change(s, t, kind), retry=retry))
    assert outcome["out"] == [(None, [1]), (None, [1, 2]), (None, [1, 2, 4]), (None, [1, 2, 4, 5])]
    _is_told(outcome, [0, 3])


def test_a_fold_whose_value_is_not_read_again_goes_on_with_the_value_before() -> None:
    BAD["unreadable"] = Unreadable
    outcome = keyed(lambda k: k.fold("work", list, lambda s, t: gathers(s, t, "unreadable")))
    del BAD["unreadable"]
    assert outcome["out"][-1] == (None, [1, 2, 4, 5])


def test_a_large_state_of_process_is_put_back_in_tests() -> None:
    outcome = keyed(
        lambda k: k.process(
            "work", lambda _k, state, t: [len(gathers(state, t)) - 9000], state=lambda: [0] * 9000
        )
    )
    assert outcome["out"] == [1, 2, 3, 4]
    _is_told(outcome, [0, 3])


class PickledOnce:
    written = False

    def __reduce__(self) -> Any:
        if self.written:
            raise ValueError("not again")
        self.written = True
        return PickledOnce, ()


def test_a_value_that_is_pickled_once_and_not_again_is_found_by_a_careful_incarnation() -> None:
    undo = Undo()
    undo.checked("key", [PickledOnce()])
    undo.twice = True
    with pytest.raises(Unpicklable):
        undo.checked("key", [PickledOnce()])


def test_a_large_value_of_a_fold_is_put_back() -> None:
    outcome = keyed(lambda k: k.fold("work", [0] * 9000, gathers))
    assert [value[9000:] for _, value in outcome["out"]] == [[1], [1, 2], [1, 2, 4], [1, 2, 4, 5]]
    _is_told(outcome, [0, 3])


@pytest.mark.parametrize("retry", [0, 1])
def test_a_reduce_goes_on_with_the_value_before(retry: int) -> None:
    def later(value: Tuple, one: Tuple) -> Tuple:
        value["n"] += one["n"]
        if one["n"] == 3:
            value["bad"] = threading.Lock()
        return value

    outcome = keyed(lambda k: k.reduce("work", later, retry=retry))
    assert [value["n"] for _, value in outcome["out"]] == [0, 1, 3, 7, 12]
    _is_told(outcome, [3])


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("retry", [0, 1])
@pytest.mark.parametrize("named", [False, True])
def test_process_goes_on_with_the_state_before(kind: str, retry: int, named: bool) -> None:
    def work(key: Any, state: Any, one: Tuple) -> list[list[int]]:
        if one["n"] in (0, 3):
            yields = state.seen if named else state
            yields.append(BAD[kind]())
        seen = state.seen if named else state
        seen.append(one["n"])
        return [list(seen) if one["n"] not in (0, 3) else []]

    state: Any = {"seen": list} if named else list
    outcome = keyed(lambda k: k.process("work", work, state=state, retry=retry))
    assert outcome["out"] == [[1], [1, 2], [1, 2, 4], [1, 2, 4, 5]]
    _is_told(outcome, [0, 3])


def test_a_timer_that_spoils_the_state_is_a_dead_letter() -> None:
    class Work:
        def on_tuple(self, key: Any, state: Any, one: Tuple, time: Any) -> list[int]:
            time.set_timer(one["at"] + 0.5)
            state.n += 1
            return [state.n]

        def on_timer(self, key: Any, state: Any, timer: Any, time: Any) -> list[str]:
            state.n += 100
            state.lock = threading.Lock()
            return ["never"]

    outcome = keyed(lambda k: k.process("work", Work, state={"n": int, "lock": lambda: None}))
    assert outcome["out"] == [1, 2, 3, 4, 5, 6]
    assert {letter.reason for letter in outcome.dead["work"]} == {
        "the state of operator 'work' for this key cannot be pickled: "
        "TypeError: cannot pickle '_thread.lock' object"
    }


class Gathered(ab.Aggregation):
    def new(self) -> list[Any]:
        return []

    def add(self, accumulator: list[Any], item: Tuple) -> list[Any]:
        return gathers(accumulator, item)

    def result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator

    def merge(self, first: list[Any], second: list[Any]) -> list[Any]:
        return first + second


WINDOWS = [ab.tumbling(10), ab.sliding(10, every=5), ab.session(2)]


@pytest.mark.parametrize("window", WINDOWS[:2], ids=str)
def test_a_fold_over_a_window_goes_on_with_the_value_before(window: Any) -> None:
    outcome = keyed(lambda k: k.window(window).fold("work", list, gathers))
    assert [1, 2, 4, 5] in [result.value for result in outcome["out"]]
    _is_told(outcome, [0, 3])


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_an_aggregation_goes_on_with_the_accumulator_before(window: Any) -> None:
    tuples = [{"at": n / 2, "n": n} for n in range(6)]
    outcome = keyed(lambda k: k.window(window).aggregate("work", Gathered()), tuples)
    assert [1, 2, 4, 5] in [result.value for result in outcome["out"]]
    _is_told(outcome, [0, 3])


def test_the_greatest_of_a_window_is_one_that_can_be_pickled() -> None:
    class Value(int):
        held: Any = None

    def value(one: Tuple) -> Any:
        if one["n"] == 3:
            made = Value(9)
            made.held = threading.Lock()
            return made
        return one["n"]

    outcome = keyed(lambda k: k.window(ab.tumbling(9)).aggregate("work", ab.greatest(value)))
    assert [result.value for result in outcome["out"]] == [5]
    _is_told(outcome, [3])


# -- tuples that are kept --------------------------------------------------------------------------


LATE = 2 * WATCHED_MAX
"""The copies of results that are watched would have the lock already."""


class Once:
    """It arrives with a lock, and cannot be written a second time."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        if self.n == LATE:
            self.lock = threading.Lock()


KEEPING: dict[str, Callable[..., Any]] = {
    "window": lambda k: k.window(ab.tumbling(9)).apply("work", lambda _k, _w, ts: [len(ts)]),
    "count": lambda k: k.window(ab.count(9)).apply("work", lambda _k, _w, ts: [len(ts)]),
    "join": lambda k, o: k.join(o, ab.tumbling(9)).apply("work", lambda _k, a, _b: a.n),
    "enrich": lambda k, o: k.enrich(o).apply("work", lambda _k, a, _b: a.n),
    "reduce": lambda k: k.reduce("work", lambda a, _b: a),
}


@pytest.mark.parametrize("kind", KEEPING)
def test_a_tuple_that_cannot_be_kept_is_a_dead_letter(kind: str) -> None:
    pipeline = ab.Pipeline("kept")
    names = ["left", "right"] if kind in ("join", "enrich") else ["left"]
    streams = [
        pipeline.source(name, Anything.source)
        .map(f"make_{name}", Once)
        .event_time(lambda o: o.n)
        .key_by(lambda o: o.n % 5)
        for name in names
    ]
    KEEPING[kind](*streams).sink("out", Anything.sink)
    numbers = [*range(LATE + 9)]
    outcome = testing.run(pipeline, dict.fromkeys(names, numbers))
    reasons = {letter.reason for letter in outcome.dead["work"]}
    assert reasons == {
        "it arrived, but cannot be kept, for that it is pickled: "
        "TypeError: cannot pickle '_thread.lock' object"
    }
    assert outcome["out"]


# -- runs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delivery", "large"),
    [("effectively-once", 0), ("at-most-once", 0), ("effectively-once", SAVED_BYTES_MAX)],
)
def test_a_run_goes_on_over_states_that_cannot_be_pickled(
    tmp_path: Path, delivery: Any, large: int
) -> None:
    out, died = tmp_path / "out.jsonl", tmp_path / "died"

    def work(key: int, state: list[Any], n: int) -> list[tuple[int, int]]:
        state += [n] if state else [n, *range(large)]
        if n % 50 == 7:
            state.append(threading.Lock())
        if n == 600 and delivery == "effectively-once" and not died.exists():
            died.touch()
            os._exit(7)
        return [(key, len(state) - large)]

    dead = str(tmp_path / "dead.jsonl")
    pipeline = ab.Pipeline("run", delivery=delivery, dead_letters=dead)
    numbers = pipeline.source("numbers", ab.items(range(1000)))
    numbers.key_by(lambda n: n % 5).process("work", work, state=list).sink("out", ab.jsonl(out))
    report = ab.run(pipeline)
    assert report.ok
    assert died.exists() == (delivery == "effectively-once")
    right, states = [], [0] * 5
    for n in range(1000):
        if n % 50 != 7:
            states[n % 5] += 1
            right.append([n % 5, states[n % 5]])
    assert sorted(map(json.loads, out.read_text().splitlines())) == sorted(right)


# -- what is kept of pickles -----------------------------------------------------------------------


class Counted:
    pickled = 0

    def __getstate__(self) -> Any:
        Counted.pickled += 1
        return {}


def test_a_value_is_pickled_once_for_each_call() -> None:
    undo, value = Undo(), Counted()
    for _ in range(10):
        undo.save("key", value)
        undo.checked("key", value)
    assert Counted.pickled == 11


def test_a_value_that_was_made_elsewhere_meanwhile_is_pickled_again() -> None:
    undo = Undo()
    undo.checked("key", [1])
    other = [2]
    saved = undo.save("key", other)
    other.append(3)
    assert undo.put_back(other, saved) == [2]


def test_pickles_of_calls_take_bounded_room() -> None:
    undo = Undo(always=True)
    for n in range(100):
        undo.checked(n, ["x" * (AFTER_BYTES_MAX // 10)])
    assert sum(len(data) for _, data in undo._after.values()) <= AFTER_BYTES_MAX
    undo.checked(0, ["x" * 2 * AFTER_BYTES_MAX])
    assert not undo._after
    with pytest.raises(Unpicklable):
        undo.checked(0, [lambda: 1])
