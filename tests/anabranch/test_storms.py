"""Pipelines of a user in storms: the code of live runs, in which much goes wrong by a seed, against
oracles in plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch import testing, testing_ends
from anabranch.runtime.keyed.handler import KeyTime, Timer
from anabranch.runtime.live.instance.counts import Counts
from anabranch.runtime.pipeline.definition import Delivery
from anabranch.runtime.values.checks import PipelineError
from tests.anabranch.tested_pipelines import Anything, counting

SEEDS = 16
SOME = 12
SIZE_S, LATENESS_S, DISORDER_S = 10.0, 5.0, 4.0
SCALE = ab.Scale(max_instances=3)
Event = tuple[str, float]


def events(count: int = 60) -> list[Event]:
    """Of three keys, in disorder; each seventh one is far behind."""
    return [("abc"[n % 3], n + 3.0 * (n % 2) - (25.0 if n % 7 == 6 else 0.0)) for n in range(count)]


def in_time(sent: Iterable[Event], lateness_s: float) -> list[Event]:
    """Those whose window was not over where event time was read."""
    found, latest = [], float("-inf")
    for one in sent:
        end = one[1] // SIZE_S * SIZE_S + SIZE_S
        if end + lateness_s > latest - DISORDER_S:
            found.append(one)
        latest = max(latest, one[1])
    return found


# -- pipelines, and what must come out of them ---------------------------------------------------


class Buckets:
    """Counts the tuples of each ten seconds, and tells the number by a timer at their end."""

    def on_tuple(self, key: str, state: Counter[float], event: Event, time: KeyTime) -> None:
        end = event[1] // SIZE_S * SIZE_S + SIZE_S
        if end + LATENESS_S <= time.watermark:
            time.late(event, time.watermark - end)
            return
        state[end] += 1
        time.set_timer(end + LATENESS_S, str(end))

    def on_timer(
        self, key: str, state: Counter[float], timer: Timer, time: KeyTime
    ) -> list[tuple[str, float, int]]:
        end = timer.at - LATENESS_S
        return [(key, end, state.pop(end))]


def folded(stream: ab.Stream) -> ab.Stream:
    passed = stream.map("pass", lambda e: e, scale=SCALE)
    return passed.key_by(lambda e: e[0]).fold("fold", 0, lambda n, _: n + 1, scale=SCALE)


def windowed(stream: ab.Stream) -> ab.Stream:
    timed = stream.event_time(lambda e: e[1], disorder_s=DISORDER_S).key_by(lambda e: e[0])
    windows = timed.window(ab.tumbling(SIZE_S), lateness_s=LATENESS_S)
    return windows.fold("fold", 0, lambda n, _: n + 1, scale=SCALE)


def timers(stream: ab.Stream) -> ab.Stream:
    timed = stream.event_time(lambda e: e[1], disorder_s=DISORDER_S).key_by(lambda e: e[0])
    return timed.process("fold", Buckets, state=Counter, scale=SCALE)


def folded_fault(sent: list[Event], rows: list[Any]) -> bool:
    each = Counter(key for key, _ in sent)
    return Counter(rows) != Counter((key, n + 1) for key in each for n in range(each[key]))


def _spans(sent: list[Event]) -> Counter[tuple[str, float]]:
    return Counter((key, at // SIZE_S * SIZE_S) for key, at in in_time(sent, LATENESS_S))


def windowed_fault(sent: list[Event], rows: list[Any]) -> bool:
    """Of each window the last correction counts."""
    last = {(row.key, row.start): row.value for row in sorted(rows, key=lambda row: row.revision)}
    return last != _spans(sent)


def timers_fault(sent: list[Event], rows: list[Any]) -> bool:
    wanted = {(key, start + SIZE_S, n) for (key, start), n in _spans(sent).items()}
    return len(rows) != len(wanted) or {*rows} != wanted


@dataclass(frozen=True)
class Scene:
    build: Callable[[ab.Stream], ab.Stream]
    fault: Callable[[list[Event], list[Any]], bool]
    late: bool


SCENES = {
    "fold": Scene(folded, folded_fault, late=False),
    "windows": Scene(windowed, windowed_fault, late=True),
    "timers": Scene(timers, timers_fault, late=True),
}


def built(scene: Scene, **options: Any) -> ab.Pipeline:
    pipeline = ab.Pipeline("storm", groups=8, **options)
    scene.build(pipeline.source("events", Anything.source)).sink("out", Anything.sink)
    return pipeline


def happened(outcomes: Iterable[testing.Outcome]) -> set[str]:
    return {*sum((Counter(one.happened) for one in outcomes), Counter[str]())}


@pytest.mark.parametrize("name", SCENES)
def test_in_any_storm_each_tuple_counts_once(name: str) -> None:
    scene, sent, outcomes = SCENES[name], events(), []
    late = Counter(sent) - Counter(in_time(sent, LATENESS_S)) if scene.late else Counter[Event]()
    for seed in range(SEEDS):
        durable = "power" if seed % 2 else "process"
        outcome = testing.storm(built(scene, durable=durable), {"events": sent}, seed=seed)
        assert not scene.fault(sent, outcome["out"]), seed
        assert Counter(outcome.late.get("fold", [])) == late, seed
        assert outcome.dead == {}, seed
        outcomes.append(outcome)
    assert happened(outcomes) >= {"deaths", "joins", "leaves", "moves", "cuts", "full disks"}


def test_in_any_storm_each_pair_of_a_join_is_made_once() -> None:
    left, right = [(k, t) for k, t in events() if t % 2], [(k, t) for k, t in events() if not t % 2]
    wanted = Counter(
        (a, b)
        for a in in_time(left, 0.0)
        for b in in_time(right, 0.0)
        if a[0] == b[0] and a[1] // SIZE_S == b[1] // SIZE_S
    )
    for seed in range(SEEDS):
        pipeline = ab.Pipeline("join", groups=8)
        sides = [
            pipeline.source(name, Anything.source)
            .event_time(lambda e: e[1], disorder_s=DISORDER_S)
            .key_by(lambda e: e[0])
            for name in ("left", "right")
        ]
        pairs = sides[0].join(sides[1], window=ab.tumbling(SIZE_S))
        pairs.apply("pair", lambda key, a, b: (a, b), scale=SCALE).sink("out", Anything.sink)
        outcome = testing.storm(pipeline, {"left": left, "right": right}, seed=seed)
        assert Counter(outcome["out"]) == wanted, seed


@pytest.mark.parametrize("late", ["emit", "drop"])
def test_late_tuples_are_told_whatever_becomes_of_them(late: str) -> None:
    pipeline = ab.Pipeline("late", groups=8)
    timed = pipeline.source("events", Anything.source)
    timed = timed.event_time(lambda e: e[1], disorder_s=DISORDER_S)
    windows = timed.key_by(lambda e: e[0]).window(ab.tumbling(SIZE_S), late=late)
    windows.aggregate("tally", ab.tally()).sink("out", Anything.sink)
    sent = events()
    missed = Counter(sent) - Counter(in_time(sent, 0.0))
    for seed in range(SOME):
        outcome = testing.storm(pipeline, {"events": sent}, seed=seed)
        assert Counter(outcome.late["tally"]) == missed
        emitted = [one.tuple for one in outcome["out"] if isinstance(one, ab.Late)]
        assert Counter(emitted) == (missed if late == "emit" else Counter())


# -- what delivery promises ----------------------------------------------------------------------


def deliveries(delivery: Delivery) -> list[tuple[Counter[str], Counter[str]]]:
    """By seeds, what came twice, and what did not come."""
    sent, found = [f"w{n}" for n in range(80)], []
    for seed in range(SOME):
        pipeline = ab.Pipeline("delivery", delivery=delivery)
        words = pipeline.source("words", Anything.source).map("upper", str.upper, scale=SCALE)
        words.sink("out", Anything.sink)
        rows = Counter(testing.storm(pipeline, {"words": sent}, seed=seed)["out"])
        wanted = Counter(word.upper() for word in sent)
        found.append((rows - wanted, wanted - rows))
    return found


def test_at_least_once_loses_nothing_and_at_most_once_doubles_nothing() -> None:
    least, most = deliveries("at-least-once"), deliveries("at-most-once")
    assert not any(missing for _, missing in least)
    assert any(doubled for doubled, _ in least)
    assert not any(doubled for doubled, _ in most)
    assert any(missing for _, missing in most)


def test_a_sender_of_which_nothing_was_done_before_a_death_is_waited_for() -> None:
    """Its channel was not in the journal, but other frames have to wait for its first ones."""
    pipeline = ab.Pipeline("storm", delivery="at-least-once")
    events = pipeline.source("events", Anything.source)
    events.map("pass", lambda event: event, scale=SCALE).sink("out", Anything.sink, scale=SCALE)
    sent = [(f"k{n}", n) for n in range(80)]
    outcome = testing.storm(pipeline, {"events": sent}, seed=96)
    assert outcome.happened["deaths"] > 0
    assert not Counter(sent) - Counter(outcome["out"])


def test_at_most_once_the_last_piece_may_be_half_there() -> None:
    pipeline = built(SCENES["fold"], delivery="at-most-once")
    sources, folder = {"events": Anything.source}, Path("/world")
    copy = testing_ends.tested(pipeline, sources, {}, folder, may_join=False)
    copy.sinks["out"].all[:] = ["a", "b", "c"]
    half = bytes(7) + b"\x02" + bytes(5)
    assert copy.results("out", {Path("/world/kept.out"): half}.__getitem__) == ["c"]


def test_a_function_that_keeps_something_beside_its_state_is_found() -> None:
    """What has begun before a death is done again after it, and then seems to be there already."""
    wrong = 0
    for seed in range(SOME):
        seen = set[str]()

        def once(word: str, seen: set[str] = seen) -> list[str]:
            is_new = word not in seen
            seen.add(word)
            return [word] if is_new else []

        pipeline = ab.Pipeline("wrong")
        words = pipeline.source("words", Anything.source)
        words.flat_map("once", once, scale=SCALE).sink("out", Anything.sink)
        sent = [f"w{n}" for n in range(80)]
        wrong += testing.storm(pipeline, {"words": sent}, seed=seed)["out"] != sent
    assert wrong > 0


def test_a_lapse_of_the_runtime_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A storm runs what ships: with its ledger broken the run fails."""
    monkeypatch.setattr(Counts, "restore", lambda *_: None)

    def some() -> None:
        for seed in range(SOME):
            testing.storm(built(SCENES["fold"]), {"events": events()}, seed=seed)

    with pytest.raises(ab.RunFailed, match=r"storm \d+: the run has failed"):
        some()


# -- deaths at chosen tuples ---------------------------------------------------------------------


class DiesAt:
    """A function whose process ends at one tuple, so many times."""

    def __init__(self, tuple_: Any, times: int = 1) -> None:
        self.calls: list[Any] = []
        self._tuple, self._left = tuple_, times

    def __call__(self, one: Any) -> Any:
        self.calls.append(one)
        if one == self._tuple and self._left:
            self._left -= 1
            testing.crash()
        return one


def dying(fn: Callable[[Any], Any]) -> ab.Pipeline:
    pipeline = ab.Pipeline("dying")
    words = pipeline.source("words", Anything.source).map("same", lambda w: fn(w))
    counted = words.key_by(str).fold("count", 0, lambda n, _: n + 1)
    counted.sink("out", Anything.sink)
    return pipeline


def test_an_instance_dies_at_a_chosen_tuple_and_the_tuple_counts_once() -> None:
    fn = DiesAt("b")
    outcome = testing.storm(dying(fn), {"words": ["a", "b", "a"]}, seed=None)
    assert sorted(outcome["out"]) == [("a", 1), ("a", 2), ("b", 1)]
    assert outcome.happened == {"deaths": 1}
    assert fn.calls.count("b") == 2


def test_a_tuple_that_always_ends_its_process_is_a_dead_letter() -> None:
    outcome = testing.storm(dying(DiesAt("b", 100)), {"words": ["a", "b", "a"]}, seed=None)
    assert outcome["out"] == [("a", 1), ("a", 2)]
    (letter,) = outcome.dead["same"]
    assert letter.tuple == "b"
    assert letter.reason.startswith("ended its process")


@pytest.mark.parametrize("operator", ["keyed", "async", "key"])
def test_all_functions_can_end_their_process(operator: str) -> None:
    left = [1]

    def once(word: str) -> str:
        if word == "b" and left:
            left.pop()
            testing.crash()
        return word

    async def slowly(word: str) -> str:
        return once(word)

    pipeline = ab.Pipeline("dying")
    words = pipeline.source("words", Anything.source)
    if operator == "async":
        words = words.map("slowly", slowly)
    keyed = words.key_by(once if operator == "key" else str)
    counting = (lambda n, w: n + bool(once(w))) if operator == "keyed" else (lambda n, _: n + 1)
    keyed.fold("count", 0, counting).sink("out", Anything.sink)
    outcome = testing.storm(pipeline, {"words": ["a", "b", "a"]}, seed=None)
    assert sorted(outcome["out"]) == [("a", 1), ("a", 2), ("b", 1)]
    assert outcome.happened == {"deaths": 1}


def test_elsewhere_nothing_can_crash() -> None:
    with pytest.raises(RuntimeError, match=r"outside of a run of ab\.testing"):
        testing.crash()


# -- the same again, and mistakes ----------------------------------------------------------------


def test_the_same_seed_gives_the_same_storm_and_others_do_not() -> None:
    pipeline, sent = built(SCENES["windows"]), events()
    first, again, other = (
        testing.storm(pipeline, {"events": sent}, seed=seed) for seed in (3, 3, 4)
    )
    assert (first["out"], first.happened) == (again["out"], again.happened)
    assert first.happened != other.happened


def test_bad_tuples_are_told_as_they_are() -> None:
    pipeline = ab.Pipeline("bad")
    numbers = pipeline.source("numbers", Anything.source).map("third", lambda n: 30 // n[0])
    numbers.sink("out", Anything.sink)
    outcome = testing.storm(pipeline, {"numbers": [(1,), (0,), (3,)]}, seed=2)
    assert outcome["out"] == [30, 10]
    (letter,) = outcome.dead["third"]
    assert letter.tuple == (0,)
    assert letter.reason.startswith("ZeroDivisionError")


def test_the_processing_time_is_the_one_given() -> None:
    pipeline = ab.Pipeline("clock")
    numbers = pipeline.source("numbers", Anything.source).key_by(lambda n: n)
    numbers.process("now", lambda key, state, n, time: [time.now], state=list).sink(
        "out", Anything.sink
    )
    (now,) = testing.storm(pipeline, {"numbers": [1]}, seed=1, start=5_000.0)["out"]
    assert 5_000.0 <= now < 5_060.0


def test_instances_are_there_from_the_beginning() -> None:
    grouped = defaultdict(list)
    outcome = testing.storm(
        counting(groups=8), {"lines": ["a b c d"] * 9}, seed=1, instances={"count": 3, "split": 2}
    )
    for word, n in outcome["out"]:
        grouped[word].append(n)
    assert grouped == {word: [*range(1, 10)] for word in "abcd"}


def test_mistakes_are_told_before_anything_runs() -> None:
    with pytest.raises(PipelineError, match="no source 'line'; did you mean 'lines'"):
        testing.storm(counting(), {"line": []}, seed=1)
    with pytest.raises(PipelineError, match="instances: the pipeline has no operator 'counts'"):
        testing.storm(counting(), {}, seed=1, instances={"counts": 2})
    with pytest.raises(PipelineError, match="instances: 'count' needs a whole number from 1 on"):
        testing.storm(counting(), {}, seed=1, instances={"count": 0})
    leading_nowhere = ab.Pipeline("nowhere")
    leading_nowhere.source("lines", Anything.source)
    with pytest.raises(PipelineError, match="leads nowhere"):
        testing.storm(leading_nowhere, {}, seed=1)
