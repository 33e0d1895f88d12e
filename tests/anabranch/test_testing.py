"""Pipelines under test: in one process, step by step, with keys that move."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.runtime.keyed.handler import KeyTime
from anabranch.runtime.values.checks import PipelineError
from tests.anabranch.tested_pipelines import (
    Alarm,
    Anything,
    ClockAlarm,
    Unreadable,
    counting,
    timed,
    words,
)

# -- in one go -------------------------------------------------------------------------------


def test_a_pipeline_is_run_on_tuples_and_what_reaches_its_sinks_is_told() -> None:
    outcome = testing.run(counting(), {"lines": ["a b", "a"]})
    assert outcome["out"] == [("a", 1), ("b", 1), ("a", 2)]
    assert outcome.late == {}
    assert outcome.dead == {}


def test_the_same_pipeline_can_be_run_again_from_nothing() -> None:
    pipeline = counting()
    testing.run(pipeline, {"lines": ["a"]})
    assert testing.run(pipeline, {"lines": ["a"]})["out"] == [("a", 1)]


def test_the_number_of_instances_changes_nothing() -> None:
    lines = [f"w{n * n % 37} w{n % 11}" for n in range(300)]
    one = testing.run(counting(), {"lines": lines})["out"]
    three = testing.run(counting(), {"lines": lines}, instances={"count": 3})["out"]
    assert len(one) == 600
    assert testing.by_key(three) == testing.by_key(one)
    assert testing.run(counting(), {"lines": lines}, instances={"count": 3})["out"] == three


def test_every_branch_and_every_sink_gets_every_tuple() -> None:
    pipeline = ab.Pipeline("branches")
    numbers = pipeline.source("numbers", Anything.source)
    numbers.sink("raw", Anything.sink)
    double = numbers.map("double", lambda n: 2 * n)
    odd = numbers.filter("odd", lambda n: n % 2)
    pipeline.merge(double, odd).sink("both", Anything.sink)
    outcome = testing.run(pipeline, {"numbers": [1, 2, 3]})
    assert outcome["raw"] == [1, 2, 3]
    both = outcome["both"]
    assert [n for n in both if n % 2] == [1, 3]
    assert [n for n in both if not n % 2] == [2, 4, 6]


def test_sources_send_one_after_the_other_as_they_are_given() -> None:
    pipeline = ab.Pipeline("two")
    a, b = (pipeline.source(name, Anything.source) for name in ("a", "b"))
    pipeline.merge(a, b).sink("out", Anything.sink)
    assert testing.run(pipeline, {"b": [1, 2], "a": [3]})["out"] == [1, 2, 3]


@pytest.mark.parametrize("run", [testing.run, partial(testing.storm, seed=1)])
def test_inputs_that_are_no_tuples_by_source_are_refused(run: Callable[..., object]) -> None:
    with pytest.raises(PipelineError, match=r"such as \{'lines': \[\.\.\.\]\}, got \['a'\]"):
        run(counting(), ["a"])
    for wrong in ("a b", b"a", {"a": 1}, 5):
        with pytest.raises(PipelineError, match=r"list of tuples for source .*; if it is"):
            run(counting(), {"lines": wrong})


def test_names_that_are_not_there_are_told_with_what_was_meant() -> None:
    pipeline = counting()
    with pytest.raises(PipelineError, match="no source 'line'; did you mean 'lines'"):
        testing.run(pipeline, {"line": []})
    outcome = testing.run(pipeline, {"lines": []})
    with pytest.raises(PipelineError, match="no sink 'results'; known: out"):
        outcome["results"]
    with pytest.raises(PipelineError, match="no operator 'counts'; did you mean 'count'"):
        outcome.watermark("counts")
    with pytest.raises(PipelineError, match=r"instances: .* no operator 'splits'; known: lines,"):
        testing.run(pipeline, {}, instances={"splits": 2})
    with pytest.raises(PipelineError, match="'count' needs a whole number from 1 on, got 0"):
        testing.run(pipeline, {}, instances={"count": 0})


def test_a_pipeline_that_cannot_run_is_refused() -> None:
    pipeline, _ = words()
    with pytest.raises(PipelineError, match="'split' of pipeline 'words' leads nowhere"):
        testing.run(pipeline, {"lines": []})


def test_results_are_told_apart_by_key() -> None:
    results = [("a", 1), ("b", 1), ("a", 2)]
    assert testing.by_key(results) == {"a": [("a", 1), ("a", 2)], "b": [("b", 1)]}


# -- what fails ------------------------------------------------------------------------------


def test_what_fails_is_a_dead_letter_of_its_operator_and_the_rest_goes_on() -> None:
    pipeline = ab.Pipeline("parse")
    numbers = pipeline.source("lines", Anything.source).map("number", int)
    numbers.key_by(lambda n: n % 2).fold("sum", 0, lambda s, n: s + 60 // n).sink(
        "out", Anything.sink
    )
    outcome = testing.run(pipeline, {"lines": ["2", "x", "0", "3"]})
    assert outcome["out"] == [(0, 30), (1, 20)]
    assert [letter.tuple for letter in outcome.dead["number"]] == ["x"]
    assert [letter.reason for letter in outcome.dead["sum"]] == [
        "ZeroDivisionError: integer division or modulo by zero"
    ]
    assert outcome.late == {}


def test_a_tuple_that_cannot_travel_is_found_as_in_a_run() -> None:
    pipeline = ab.Pipeline("travel")
    numbers = pipeline.source("numbers", Anything.source)
    made = numbers.map("make", lambda n: (lambda: n) if n == 2 else n)
    made.sink("out", Anything.sink)
    outcome = testing.run(pipeline, {"numbers": [1, 2, 3]})
    assert outcome["out"] == [1, 3]
    (letter,) = outcome.dead["make"]
    assert letter.reason.startswith("cannot be sent to another process")


def test_branches_do_not_share_their_tuples() -> None:
    pipeline = ab.Pipeline("shared")
    lists = pipeline.source("lists", Anything.source)
    lists.map("pop", lambda x: x.pop()).sink("popped", Anything.sink)
    lists.sink("out", Anything.sink)
    outcome = testing.run(pipeline, {"lists": [[1, 2]]})
    assert outcome["popped"] == [2]
    assert outcome["out"] == [[1, 2]]


def test_a_tuple_without_a_key_is_a_dead_letter_of_its_sender() -> None:
    pipeline, stream = words()
    stream.key_by(lambda w: [w] if w == "b" else w).fold("count", 0, lambda n, _: n + 1).sink(
        "out", Anything.sink
    )
    outcome = testing.run(pipeline, {"lines": ["a b a"]})
    assert outcome["out"] == [("a", 1), ("a", 2)]
    (letter,) = outcome.dead["split"]
    assert letter.tuple == "b"
    assert "no key for operator 'count'" in letter.reason


def test_keyed_tuples_that_cannot_travel_are_found_on_both_sides() -> None:
    pipeline = ab.Pipeline("travel")
    words = pipeline.source("words", Anything.source)
    made = words.map("make", lambda w: {"f": lambda: w, "u": Unreadable(w)}.get(w, w))
    made.key_by(lambda _: 0).fold("last", "", lambda _, w: w).sink("out", Anything.sink)
    outcome = testing.run(pipeline, {"words": ["a", "f", "u", "b"]})
    assert outcome["out"] == [(0, "a"), (0, "b")]
    (unsent,) = outcome.dead["make"]
    assert callable(unsent.tuple)
    (unread,) = outcome.dead["last"]
    assert "cannot be read here: ValueError" in unread.reason


def test_a_sink_by_key_gets_its_tuples() -> None:
    pipeline, stream = words()
    stream.key_by(str).sink("out", Anything.sink)
    outcome = testing.run(pipeline, {"lines": ["b a", "b"]}, instances={"out": 2})
    assert sorted(outcome["out"]) == ["a", "b", "b"]


# -- owners ----------------------------------------------------------------------------------


def test_state_goes_with_its_key_to_the_new_owner() -> None:
    with testing.harness(counting(), instances={"count": 3}) as h:
        h.send("lines", "a b a")
        old = h.owner("count", "a")
        new = (old + 1) % 3
        h.move("count", [h.group("a")], to=new)
        assert h.owner("count", "a") == new
        assert h.state("count", "a") == 2
        h.send("lines", "a b")
        assert h.results("out")[-2:] == [("a", 3), ("b", 2)]
        h.move("count", range(256), to=old)
        h.send("lines", "a b")
        assert h.results("out")[-2:] == [("a", 4), ("b", 3)]
        with pytest.raises(KeyError):
            h.state("count", "c")


def test_tuples_of_groups_on_the_move_wait_and_keep_their_order() -> None:
    with testing.harness(counting(), instances={"count": 2}) as h:
        h.send("lines", "a")
        h.news("out")
        to = 1 - h.owner("count", "a")
        still = next(w for w in "bcdefgh" if h.owner("count", w) == to)
        with h.moving("count", [h.group("a")], to=to):
            h.send("lines", f"a {still} a")
            assert h.news("out") == [(still, 1)]
        assert h.news("out") == [("a", 2), ("a", 3)]


def test_timers_go_with_their_key() -> None:
    with testing.harness(timed(Alarm), instances={"watch": 2}) as h:
        h.send("events", ("a", 1.0))
        h.move("watch", [h.group("a")], to=1 - h.owner("watch", "a"))
        h.send("events", ("b", 11.0))
        assert h.results("out") == [("a", 11.0, [1.0])]


def test_timers_by_the_clock_that_are_on_the_move_do_not_hold_up_time() -> None:
    with testing.harness(timed(ClockAlarm), instances={"watch": 2}) as h:
        h.send("events", ("a", 1.0))
        with h.moving("watch", [h.group("a")], to=1 - h.owner("watch", "a")):
            h.advance(20.0)
            assert h.results("out") == []
        h.advance(0.0)
        assert h.results("out") == [("a", 10.0, [1.0])]


def test_a_tuple_that_makes_a_state_unpicklable_is_a_dead_letter_and_the_rest_moves() -> None:
    pipeline, stream = words()
    stream.key_by(str).process(
        "keep", lambda key, state, word: state.append(lambda: word), state=list
    ).sink("out", Anything.sink)
    with testing.harness(pipeline, instances={"keep": 2}) as h:
        h.send("lines", "a")
        (letter,) = h.dead["keep"]
        assert "the state of operator 'keep' for this key cannot be pickled" in letter.reason
        h.move("keep", [h.group("a")], to=1 - h.owner("keep", "a"))


def test_a_wrong_move_is_refused() -> None:
    with testing.harness(counting(groups=16), instances={"count": 2}) as h:
        with pytest.raises(
            PipelineError, match=r"no instance 2: expected one of 0, 1;.*join\('count'\)"
        ):
            h.move("count", [0], to=2)
        with pytest.raises(PipelineError, match="no such key group: 16; expected 0 to 15"):
            h.move("count", [16], to=1)
        with pytest.raises(PipelineError, match="no keyed operator 'split'; known: count"):
            h.move("split", [0], to=1)


# -- instances that join, leave and die ----------------------------------------------------------


def counted(h: testing.Harness) -> dict[str, int]:
    """The last count of each word."""
    return dict(h.results("out"))


def test_instances_of_any_operator_join_and_leave_and_no_count_is_lost() -> None:
    with testing.harness(counting(groups=16), instances={"split": 2}) as h:
        assert h.instances("split") == [0, 1]
        h.send("lines", "a b c d")
        assert h.join("count", 2) == [1, 2]
        h.send("lines", "a b c d")
        assert {h.owner("count", word) for word in "abcd"} > {0}
        h.leave("count", 0)
        h.leave("split", 1)
        assert (h.instances("count"), h.instances("split")) == ([1, 2], [0])
        h.send("lines", "a b c d")
        assert [h.state("count", word) for word in "abcd"] == [3] * 4
    assert testing.by_key(h.results("out")) == {w: [(w, n) for n in (1, 2, 3)] for w in "abcd"}


def test_a_new_instance_takes_the_place_of_one_that_relocates() -> None:
    with testing.harness(counting(groups=16), instances={"count": 2}) as h:
        h.send("lines", "a b c d")
        before = {word: h.owner("count", word) for word in "abcd"}
        assert h.relocate("count") == 2  # the keeper
        assert h.relocate("count", 1) == 3
        assert h.relocate("split") == 1
        assert (h.instances("count"), h.instances("split")) == ([2, 3], [1])
        assert {word: h.owner("count", word) - 2 for word in "abcd"} == before
        h.crash("count", 3)
        h.send("lines", "a b c d")
        assert [h.state("count", word) for word in "abcd"] == [2] * 4
        with pytest.raises(PipelineError, match="no instance 1: expected one of 2, 3"):
            h.relocate("count", 1)
    assert testing.by_key(h.results("out")) == {w: [(w, n) for n in (1, 2)] for w in "abcd"}


def test_an_instance_that_is_killed_goes_on_with_its_counts() -> None:
    with testing.harness(counting(), instances={"count": 2}) as h:
        for n in range(1, 4):
            h.send("lines", "a b c d")
            h.crash("count", n % 2)
            h.crash("split")
            h.crash("out")
            h.crash("lines")
            assert counted(h) == dict.fromkeys("abcd", n)
            assert [h.state("count", word) for word in "abcd"] == [n] * 4
    assert len(h.results("out")) == 12


def test_a_process_dies_at_a_chosen_tuple_and_the_tuple_counts_once() -> None:
    died = list[str]()

    def once(word: str) -> str:
        if word == "b" and not died:
            died.append(word)
            testing.crash()
        return word

    pipeline, stream = words()
    stream.map("once", once).key_by(str).fold("count", 0, lambda n, _: n + 1).sink(
        "out", Anything.sink
    )
    with testing.harness(pipeline) as h:
        h.send("lines", "a b a")
        assert sorted(h.results("out")) == [("a", 1), ("a", 2), ("b", 1)]
    assert died == ["b"]


def test_groups_of_several_owners_are_at_rest_and_move_together() -> None:
    with testing.harness(counting(), instances={"count": 4}) as h:
        h.send("lines", "a b c d e f g h")
        with h.moving("count", range(256), to=0):
            h.send("lines", "a b c d e f g h")
            assert {word for word, _ in h.news("out")[8:]} == {
                word for word in "abcdefgh" if h.owner("count", word) == 0
            }
        assert {h.owner("count", word) for word in "abcdefgh"} == {0}
        assert counted(h) == dict.fromkeys("abcdefgh", 2)


def test_wrong_orders_are_refused() -> None:
    with testing.harness(counting(), instances={"count": 2}) as h:
        with pytest.raises(
            PipelineError, match=r"'count' has no instance 2: expected one of 0, 1; for more"
        ):
            h.leave("count", 2)
        with pytest.raises(PipelineError, match="no operator 'counts'; did you mean 'count'"):
            h.join("counts")
        with pytest.raises(PipelineError, match=r"split\.0 is the only instance"):
            h.leave("split", 0)
        with pytest.raises(PipelineError, match="'count' has no instance 7"):
            h.crash("count", 7)
        with pytest.raises(PipelineError, match="'count': expected 1 or more instances, got 0"):
            h.join("count", 0)
        with pytest.raises(PipelineError, match=r"expected key groups, such as \[3\], got 3"):
            h.move("count", 3, to=0)  # type: ignore[arg-type]
        with pytest.raises(PipelineError, match=r"no such key group: 'a'; .* h\.group\(key\)"):
            h.move("count", ["a"], to=0)  # type: ignore[list-item]
        with pytest.raises(KeyError, match="operator 'count' has no state of key 'a'"):
            h.state("count", "a")


def test_a_run_that_fails_is_told_at_once() -> None:
    def unfit(n: int) -> int:
        raise SystemExit(3)

    pipeline = ab.Pipeline("failing")
    numbers = pipeline.source("n", Anything.source).map("unfit", unfit)
    numbers.sink("out", Anything.sink)
    with testing.harness(pipeline) as h:
        h.send("n", 1)
        assert [letter.tuple for letter in h.dead["unfit"]] == [1]


# -- the end ---------------------------------------------------------------------------------


def test_a_closed_harness_still_tells_what_came_and_takes_nothing() -> None:
    h = testing.harness(counting())
    h.send("lines", "a")
    h.close()
    h.close()
    assert h.results("out") == [("a", 1)]
    with pytest.raises(RuntimeError, match="the harness is closed"):
        h.send("lines", "b")


def test_a_harness_that_is_left_open_ends_its_pipeline_and_warns() -> None:
    def leave_open() -> None:
        testing.harness(counting()).send("lines", "a")
        gc.collect()

    with pytest.warns(ResourceWarning, match="was not closed, so its stream has not ended"):
        leave_open()


def test_the_objects_of_operators_are_closed() -> None:
    closed = []

    class Double:
        def __call__(self, n: int) -> int:
            return 2 * n

        def close(self) -> None:
            closed.append("double")

    class Keep:
        def on_tuple(self, key: int, state: list[int], n: int, time: KeyTime) -> list[int]:
            return [n]

        def close(self) -> None:
            closed.append("keep")

    pipeline = ab.Pipeline("close")
    numbers = pipeline.source("n", Anything.source).map("double", Double)
    numbers.key_by(lambda n: n).process("keep", Keep, state=list).sink("out", Anything.sink)
    assert testing.run(pipeline, {"n": [1]})["out"] == [2]
    assert sorted(closed) == ["double", "keep"]


def test_the_error_of_a_test_is_not_hidden_by_the_end_of_the_stream() -> None:
    class Unclosable:
        def __call__(self, n: int) -> int:
            return n

        def close(self) -> None:
            raise OSError

    pipeline = ab.Pipeline("unclosable")
    pipeline.source("n", Anything.source).map("same", Unclosable).sink("out", Anything.sink)

    def failing() -> None:
        with testing.harness(pipeline) as h:
            h.send("n", 1)
            raise ZeroDivisionError

    with pytest.raises(ab.RunFailed, match=r"close\(\) raised OSError"):
        testing.run(pipeline, {"n": [1]})

    with pytest.raises(ZeroDivisionError):
        failing()
