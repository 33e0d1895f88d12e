"""Functions of users applied to batches: order, atomicity, retries, dead letters, counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.plan.operator import Retry, Step
from tests.runtime import processors as processing
from tests.runtime.processors import Run, flat, keeping, mapping, odd_fails

HERE = __file__


async def test_a_fused_chain_gives_what_a_plain_loop_gives() -> None:
    words = ["a b", "", "c", "d e f"]
    run = await Run(flat(str.split), keeping(lambda w: w != "c"), mapping(str.upper)).over(words)
    assert run.results == ["A", "B", "D", "E", "F"]


async def test_only_the_tuples_whose_function_raised_die_and_order_is_kept() -> None:
    run = await Run(mapping(odd_fails)).over([0, 1, 2, 3, 4], [5], [6])
    assert run.results == [0, 20, 40, 60]
    assert run.dead == [1, 3, 5]
    letter = run.letters[0]
    assert letter.reason == "ValueError: 1 is odd"
    assert letter.step == "m"
    assert letter.where.startswith(processing.__file__)
    assert letter.where.endswith("in odd_fails")


@given(
    st.lists(st.lists(st.integers(-20, 20), max_size=12), max_size=6),
    st.lists(st.sampled_from(["map", "flat", "filter", "batch"]), min_size=1, max_size=4),
    st.integers(1, 4),
)
def test_whatever_fails_results_and_dead_letters_are_those_of_a_plain_loop(
    batches: list[list[int]], kinds: list[str], modulus: int
) -> None:
    def raising(n: int) -> None:
        if n % modulus == 1:
            raise ValueError(n)

    def one(n: int) -> int:
        raising(n)
        return n + 1

    def many(n: int) -> Iterator[int]:
        yield n
        raising(n)
        yield n + 1

    def keep(n: int) -> bool:
        raising(n)
        return n % 3 != 0

    functions: dict[str, tuple[Step, Callable[[int], list[int]]]] = {
        "map": (mapping(one), lambda n: [one(n)]),
        "flat": (flat(many), lambda n: list(many(n))),
        "filter": (keeping(keep), lambda n: [n] if keep(n) else []),
        "batch": (mapping(lambda ns: [one(n) for n in ns], batch=True), lambda n: [one(n)]),
    }
    expected = [n for batch in batches for n in batch]
    dead: list[int] = []
    for kind in kinds:
        survivors = []
        for n in expected:
            try:
                survivors += functions[kind][1](n)
            except ValueError:
                dead.append(n)
        expected = survivors
    run = asyncio.run(Run(*(functions[k][0] for k in kinds)).over(*batches))
    assert run.results == expected
    assert sorted(run.dead) == sorted(dead)


async def test_a_generator_that_raises_midway_leaves_nothing_of_its_tuple() -> None:
    def fn(n: int) -> Iterator[int]:
        yield n
        if n == 2:
            raise RuntimeError("midway")
        yield -n

    run = await Run(flat(fn)).over([1, 2, 3])
    assert run.results == [1, -1, 3, -3]
    assert run.dead == [2]


async def test_a_tuple_that_worked_is_not_called_again_because_its_neighbour_failed() -> None:
    called: list[int] = []

    def fn(n: int) -> Any:
        called.append(n)
        return None if n == 2 else (n for _ in range(2))

    run = await Run(flat(fn), retry=Retry(2)).over([1, 2, 3])
    assert called == [1, 2, 3, 2, 2]
    assert run.results == [1, 1, 3, 3]


@pytest.mark.parametrize("result", [None, 5, 1.5])
async def test_a_flat_map_result_that_cannot_be_iterated_is_a_clear_dead_letter(
    result: Any,
) -> None:
    run = await Run(flat(lambda n: result if n == 1 else [n])).over([0, 1, 2])
    assert run.results == [0, 2]
    assert "flat_map expects a list" in run.letters[0].reason
    assert ("None" if result is None else type(result).__name__) in run.letters[0].reason


async def test_a_flat_map_result_may_be_any_iterable() -> None:
    for fn in (list, tuple, iter, lambda s: s, dict.fromkeys):
        assert (await Run(flat(fn)).over(["ab", "", "c"])).results == ["a", "b", "c"]


async def test_stop_iteration_out_of_a_function_swallows_no_tuple() -> None:
    def fn(n: int) -> int:
        if n in (1, 3):
            raise StopIteration
        return n

    for step in (mapping(fn), keeping(lambda n: fn(n) > 0), flat(lambda n: [fn(n)])):
        run = await Run(step).over([4, 1, 2, 3], [3])
        assert run.results == [4, 2]
        assert run.dead == [1, 3, 3]
        assert "StopIteration" in run.letters[0].reason


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), GeneratorExit()])
async def test_no_exception_of_a_function_ends_the_process_silently(error: BaseException) -> None:
    def fn(n: int) -> int:
        if n == 1:
            raise error
        return n

    async def later(n: int) -> int:
        return fn(n)

    functions: list[Any] = [fn] if isinstance(error, GeneratorExit) else [fn, later]
    for function in functions:
        run = await Run(mapping(function)).over([0, 1, 2])
        assert run.results == [0, 2]
        assert run.letters[0].reason.startswith(type(error).__name__)


async def test_a_keyboard_interrupt_passes() -> None:
    def fn(n: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await Run(mapping(fn)).over([1])


async def test_a_filter_result_without_truth_value_is_a_dead_letter() -> None:
    class Vague:
        def __bool__(self) -> bool:
            raise ValueError("neither")

    run = await Run(keeping(lambda n: Vague() if n == 1 else n)).over([0, 1, 2])
    assert run.results == [2]
    assert run.dead == [1]


async def test_a_failed_tuple_is_tried_again_and_keeps_its_place() -> None:
    failures = {1: 2, 3: 9}

    def fn(n: int) -> int:
        if failures.get(n, 0) > 0:
            failures[n] -= 1
            raise OSError("busy")
        return n

    run = await Run(mapping(fn), retry=Retry(2)).over([0, 1, 2, 3, 4])
    assert run.results == [0, 1, 2, 4]
    assert run.dead == [3]
    assert failures[3] == 6


async def test_pauses_between_attempts_double_and_do_not_block_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await real(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    run = await Run(mapping(odd_fails), retry=Retry(3, backoff_s=0.5)).over([0, 1, 3])
    assert [s for s in slept if s] == [0.5, 1.0, 2.0]  # once for both, which are in one slice
    assert run.dead == [1, 3]


async def test_the_pauses_of_retries_do_not_count_as_work(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)
    run = await Run(mapping(odd_fails), retry=Retry(1, 7.0), clock=lambda: now).over([1])
    assert run.parts[0].busy_s == 0.0


async def test_a_failing_batch_function_loses_only_the_guilty_tuples() -> None:
    sizes: list[int] = []

    def fn(batch: list[int]) -> list[int]:
        sizes.append(len(batch))
        return [odd_fails(n) if n in (3, 11) else n for n in batch]

    run = await Run(mapping(fn, batch=True)).over(list(range(16)))
    assert run.results == [n for n in range(16) if n not in (3, 11)]
    assert run.dead == [3, 11]
    assert len(sizes) < 20


async def test_a_batch_function_is_tried_again_as_a_whole_first() -> None:
    calls: list[int] = []

    def fn(batch: list[int]) -> list[int]:
        calls.append(len(batch))
        if len(calls) < 3:
            raise OSError("busy")
        return batch

    run = await Run(mapping(fn, batch=True), retry=Retry(2)).over([1, 2, 3, 4])
    assert calls == [4, 4, 4]
    assert run.results == [1, 2, 3, 4]


async def test_a_guilty_tuple_of_a_batch_has_all_its_attempts_when_it_is_alone() -> None:
    calls: list[list[int]] = []

    def fn(batch: list[int]) -> list[int]:
        calls.append(batch)
        if 2 in batch:
            raise ValueError("two")
        return batch

    run = await Run(mapping(fn, batch=True), retry=Retry(2)).over([1, 2])
    assert calls == [[1, 2]] * 3 + [[1]] + [[2]] * 3
    assert run.dead == [2]


@pytest.mark.parametrize(
    ("kind", "fn", "reason"),
    [
        ("map", lambda b: b[:-1], "one result per tuple"),
        ("map", lambda b: None, "got None"),
        ("map", lambda b: iter(b), "list_iterator"),
        ("filter", lambda b: b + b, "more than it got"),
        ("flat_map", lambda b: "text", "type str"),
    ],
)
async def test_what_a_batch_function_returns_is_checked(kind: Any, fn: Any, reason: str) -> None:
    run = await Run(Step(kind, fn, "b", batch=True)).over([1, 2])
    assert run.dead == [1, 2]
    assert reason in run.letters[0].reason


async def test_a_batch_function_may_empty_its_list() -> None:
    def fn(batch: list[int]) -> list[int]:
        out = [batch.pop() for _ in list(batch)]
        if 2 in out:
            raise ValueError
        return out

    run = await Run(flat(fn, batch=True)).over([1, 2, 3])
    assert run.results == [1, 3]
    assert run.dead == [2]


async def test_a_batch_filter_and_flat_map_may_change_the_number() -> None:
    run = await Run(keeping(lambda b: b[1:], batch=True), flat(lambda b: b * 2, batch=True)).over(
        [1, 2, 3]
    )
    assert run.results == [2, 3, 2, 3]


async def test_an_empty_batch_is_finished_without_calling_anything() -> None:
    run = await Run(mapping(lambda b: 1 / 0, batch=True)).over([], [])
    assert [(p.tag, p.last, p.taken) for p in run.parts] == [(0, True, 0), (1, True, 0)]

    async def fn(n: int) -> int:
        return n

    run = await Run(mapping(fn)).over([], [1])
    assert [(p.tag, p.last, p.taken) for p in run.parts] == [(0, True, 0), (1, True, 1)]


async def test_deaths_behind_a_flat_map_are_letters_but_not_dead_input() -> None:
    run = await Run(
        keeping(lambda w: odd_fails(len(w)) is not None, name="first"),
        flat(list, name="second"),
        mapping(int, name="third"),
    ).over(["12", "1", "x3", "zz"])
    assert run.results == [1, 2, 3]
    assert run.dead == ["1", "x", "z", "z"]
    assert [letter.step for letter in run.letters] == ["first", "third", "third", "third"]
    assert sum(p.dead for p in run.parts) == 1


async def test_the_deepest_line_of_the_user_is_shown_not_one_of_a_library() -> None:
    run = await Run(mapping(json.loads), mapping(lambda s: json.loads(s))).over(["{", '"{"'])
    assert "json" in run.letters[0].where
    assert run.letters[1].where.startswith(HERE)


async def test_a_builtin_that_raises_has_no_line_but_a_reason() -> None:
    run = await Run(mapping(str.upper)).over([5])
    assert run.letters[0].where == ""
    assert run.letters[0].reason.startswith("TypeError")
