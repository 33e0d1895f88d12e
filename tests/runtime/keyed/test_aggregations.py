"""Aggregations say what the same function of all tuples would say."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.runtime.keyed.aggregations import (
    Aggregation,
    Collecting,
    Fold,
    Folded,
    Reduce,
    Reduced,
    greatest,
    least,
    mean,
    tally,
    total,
)

whole = st.integers(-1000, 1000)
real = st.floats(-1e300, 1e300)


def accumulated(aggregation: Aggregation, tuples: list[Any]) -> Any:
    accumulator = aggregation.new()
    for one in tuples:
        accumulator = aggregation.add(accumulator, one)
    return accumulator


def of(aggregation: Aggregation, tuples: list[Any]) -> Any:
    return aggregation.result(accumulated(aggregation, tuples))


def length(item: str) -> int:
    return len(item)


def appended(values: list[Any], item: Any) -> list[Any]:
    values.append(item)
    return values


def extended(values: list[Any], item: list[Any]) -> list[Any]:
    values += item
    return values


ORACLES: list[tuple[Aggregation, Callable[[list[int]], Any]]] = [
    (total(), sum),
    (tally(), len),
    (mean(), lambda numbers: sum(numbers) / len(numbers)),
    (least(), min),
    (greatest(), max),
    (Collecting(list), list),
]


@pytest.mark.parametrize(("aggregation", "oracle"), ORACLES)
@given(numbers=st.lists(whole, min_size=1))
def test_results_are_those_of_a_function_of_all_tuples(
    aggregation: Aggregation, oracle: Callable[[list[int]], Any], numbers: list[int]
) -> None:
    assert of(aggregation, numbers) == oracle(numbers)


@pytest.mark.parametrize(("aggregation", "oracle"), ORACLES)
@given(first=st.lists(whole), second=st.lists(whole, min_size=1), third=st.lists(whole))
def test_parts_that_are_merged_are_as_good_as_the_whole(
    aggregation: Aggregation,
    oracle: Callable[[list[int]], Any],
    first: list[int],
    second: list[int],
    third: list[int],
) -> None:
    one, two, three = (accumulated(aggregation, part) for part in (first, second, third))
    merged = aggregation.merge(aggregation.merge(one, two), three)
    assert aggregation.result(merged) == oracle([*first, *second, *third])


@pytest.mark.parametrize(("aggregation", "oracle"), ORACLES)
@given(numbers=st.lists(whole, min_size=1), late=whole)
def test_a_copy_stays_as_it_is_and_a_result_may_be_followed_by_more(
    aggregation: Aggregation,
    oracle: Callable[[list[int]], Any],
    numbers: list[int],
    late: int,
) -> None:
    accumulator = accumulated(aggregation, numbers)
    before = aggregation.result(accumulator)
    copy = aggregation.copy(accumulator)
    more = aggregation.add(accumulator, late)
    assert before == aggregation.result(copy) == oracle(numbers)
    assert aggregation.result(more) == oracle([*numbers, late])


@pytest.mark.parametrize(
    "aggregation", [total(length), tally(), mean(length), least(length), greatest(length)]
)
def test_aggregations_and_accumulators_travel(aggregation: Aggregation) -> None:
    accumulator = pickle.loads(pickle.dumps(accumulated(aggregation, ["a", "ccc"])))
    there = pickle.loads(pickle.dumps(aggregation))
    again = accumulated(aggregation, ["a", "ccc", "bb"])
    assert there.add(accumulator, "bb") == again


@pytest.mark.parametrize(
    ("aggregation", "value"),
    [(total(length), 6), (mean(length), 2.0), (least(length), 1), (greatest(length), 3)],
)
def test_values_are_read_from_tuples_by_a_function(aggregation: Aggregation, value: Any) -> None:
    assert of(aggregation, ["bb", "a", "ccc"]) == value


def test_tuples_need_no_value_to_be_counted() -> None:
    assert of(tally(), [None, object(), {}]) == 3


def test_a_total_of_whole_numbers_is_exact() -> None:
    assert of(total(), [2**80, 1, -(2**80)]) == 1


@pytest.mark.parametrize("aggregation", [least(lambda i: i[0]), greatest(lambda i: i[0])])
def test_of_equal_values_the_first_stays(aggregation: Aggregation) -> None:
    first, second = 1, 1.0  # equal, and told apart by their types
    assert type(of(aggregation, [(first,), (second,)])) is int
    parts = (accumulated(aggregation, [(one,)]) for one in (first, second))
    assert type(aggregation.result(aggregation.merge(*parts))) is int


def test_what_does_not_compare_fails_and_changes_nothing() -> None:
    aggregation = least()
    accumulator = accumulated(aggregation, [3])
    with pytest.raises(TypeError):
        aggregation.add(accumulator, "x")
    assert aggregation.result(accumulator) == 3


def test_functions_of_all_tuples_may_take_them_apart() -> None:
    aggregation = Collecting(lambda tuples: [tuples.pop() for _ in range(2)])
    accumulator = accumulated(aggregation, [1, 2])
    assert aggregation.result(accumulator) == aggregation.result(accumulator) == [2, 1]


# -- means -----------------------------------------------------------------------------------


@given(st.lists(real.map(lambda x: x / 1e10), min_size=1, max_size=50))
@example([1e16, 1.0, -1e16])
@example([0.1] * 50)
def test_a_mean_is_off_by_little_more_than_its_last_digit(numbers: list[float]) -> None:
    """Neumaier: the error is some last digits of the sum, and next to nothing of the summands."""
    exact = sum(map(Fraction, numbers), Fraction()) / len(numbers)
    size = sum((abs(Fraction(x)) for x in numbers), Fraction()) / len(numbers)
    bound = abs(exact) * Fraction(2, 2**52) + size * Fraction(len(numbers) ** 2, 2**104)
    assert abs(Fraction(of(mean(), numbers)) - exact) <= bound + Fraction(5e-324)


@pytest.mark.parametrize("numbers", [[1e16, 1.0, -1e16, 1.0], [1.0, 1e100, 1.0, -1e100]])
def test_small_readings_are_not_lost_among_large_ones(numbers: list[float]) -> None:
    assert of(mean(), numbers) == 0.5
    assert reduce(lambda a, b: a + b, numbers) / 4 != 0.5


def test_a_mean_of_many_parts_keeps_what_rounding_dropped() -> None:
    aggregation = mean()
    parts = [accumulated(aggregation, [x]) for x in [1e16, 1.0, -1e16, 1.0]]
    assert aggregation.result(reduce(aggregation.merge, parts)) == 0.5
    first, second = (accumulated(aggregation, part) for part in ([1.0], [1e16, 1.0, -1e16]))
    assert aggregation.result(aggregation.merge(first, second)) == 0.5
    assert aggregation.result(aggregation.merge(second, first)) == 0.5


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([1.0, math.inf], math.inf), ([-math.inf, 1.0, 2.0], -math.inf), ([math.inf] * 3, math.inf)],
)
def test_a_mean_with_something_infinite_is_infinite(numbers: list[float], expected: float) -> None:
    assert of(mean(), numbers) == expected


@pytest.mark.parametrize("numbers", [[1.0, math.nan], [math.inf, -math.inf]])
def test_a_mean_that_is_no_number_says_so(numbers: list[float]) -> None:
    assert math.isnan(of(mean(), numbers))


def test_a_mean_takes_what_is_a_number_only() -> None:
    with pytest.raises(ValueError, match="could not convert string to float: 'x'"):
        of(mean(), ["x"])
    assert of(mean(), [Fraction(1, 2), True]) == 0.75


# -- folds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("initial", [list, []])
def test_a_fold_step_by_step_is_that_of_all_tuples(initial: Any) -> None:
    for tuples in ([1], [1, 2, 3]):
        assert of(Folded(initial, appended), tuples) == Fold(initial, appended)(tuples) == tuples
    assert initial == [] or initial is list


def test_reducing_step_by_step_is_that_of_all_tuples_and_spares_the_first() -> None:
    tuples = [[1], [2], [3]]
    assert of(Reduced(extended), tuples) == Reduce(extended)(tuples) == [1, 2, 3]
    assert tuples == [[1], [2], [3]]


def test_a_value_may_be_none() -> None:
    assert of(Reduced(lambda value, item: None), [1, 2]) is None
    assert of(Reduced(lambda value, item: (value, item)), [None, 2]) == (None, 2)


@pytest.mark.parametrize("aggregation", [Folded(list, extended), Reduced(extended)])
def test_a_result_of_a_fold_and_its_copy_are_not_changed_later(aggregation: Aggregation) -> None:
    accumulator = accumulated(aggregation, [[1]])
    result = aggregation.result(aggregation.handed(accumulator))
    copy = aggregation.copy(accumulator)
    aggregation.add(accumulator, [2])
    assert result == aggregation.result(copy) == [1]


def test_values_of_a_fold_are_not_made_one() -> None:
    with pytest.raises(TypeError, match="cannot be made one; sessions keep their tuples"):
        Folded(list, appended).merge([1], [2])


# -- one's own -------------------------------------------------------------------------------


def test_one_of_its_own_needs_no_copy() -> None:
    class Distinct(Aggregation):
        def new(self) -> set[Any]:
            return set()

        def add(self, accumulator: set[Any], item: Any) -> set[Any]:
            accumulator.add(item)
            return accumulator

        def result(self, accumulator: set[Any]) -> int:
            return len(accumulator)

        def merge(self, first: set[Any], second: set[Any]) -> set[Any]:
            return first | second

    aggregation = Distinct()
    accumulator = accumulated(aggregation, "aba")  # type: ignore[arg-type]
    copy = aggregation.copy(accumulator)
    aggregation.add(accumulator, "c")
    assert (aggregation.result(accumulator), aggregation.result(copy)) == (3, 2)


def test_one_that_lacks_something_cannot_be_made() -> None:
    class Half(Aggregation):
        def new(self) -> int:
            return 0

    with pytest.raises(TypeError, match="abstract"):
        Half()  # type: ignore[abstract]


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_an_aggregation_that_has_no_result_of_no_tuples_gives_none(
    error: type[BaseException],
) -> None:
    class Latest(Aggregation):
        def new(self) -> Any:
            return []

        def add(self, accumulator: Any, item: Any) -> Any:
            return [item]

        def merge(self, first: Any, second: Any) -> Any:
            return second

        def result(self, accumulator: Any) -> Any:
            if not accumulator:
                raise error
            return accumulator[0]

    assert Latest().empty() is None
    assert Latest().result([3]) == 3
