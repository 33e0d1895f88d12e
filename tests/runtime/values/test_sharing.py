"""Tuples share nothing that can change, whether they were in one batch or not."""

from __future__ import annotations

import datetime
import enum
import json
import random
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.protocol.limits import DEFAULT_LIMITS, Limits
from anabranch.runtime.keyed.payload import KeyedEncoder, Pairs, decode_keyed
from anabranch.runtime.processing.marks import Marked, opened
from anabranch.runtime.processing.payload import Encoder, decode
from anabranch.runtime.values.sharing import Swells, separate, share
from tests.anabranch.tested_pipelines import Anything
from tests.runtime.processors import Run, flat, mapping


@dataclass
class Plain:
    held: Any


@dataclass(slots=True)
class Slotted:
    held: Any


class Named(NamedTuple):
    held: Any


class Grown(list[Any]):
    held: Any = None

    def __repr__(self) -> str:
        return f"Grown({self.held!r})"


class Reduced:
    """Tells pickle itself what it consists of."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __reduce__(self) -> Any:
        return Reduced, (self.held,)

    def __repr__(self) -> str:
        return f"Reduced({self.held!r})"


class Colour(enum.Enum):
    RED = 1


def _grown(held: Any) -> Any:
    grown = Grown()
    grown.held = held
    return grown


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "dict": lambda held: {"in": held},
    "list": lambda held: [held],
    "tuple": lambda held: (1, held),
    "tuple of tuples": lambda held: ((held,), 2),
    "key and value": lambda held: ("key", {"deep": [held]}),
    "dataclass": Plain,
    "slots": Slotted,
    "named tuple": Named,
    "its own reduce": Reduced,
    "deque": lambda held: deque([held]),
    "defaultdict": lambda held: defaultdict(list, {"in": held}),
    "ordered": lambda held: OrderedDict({"in": held}),
    "attribute of a list": _grown,
    "itself": lambda held: held,
}
SHARED: dict[str, Callable[[], Any]] = {
    "dict": dict,
    "list": list,
    "set": set,
    "bytearray": bytearray,
    "object": lambda: Plain(0),
    "list in a tuple": lambda: ([],),
}


def _change(value: Any) -> None:
    """Whatever is in it."""
    if isinstance(value, dict):
        value["changed"] = True
    elif isinstance(value, set):
        value.add("changed")
    elif isinstance(value, list | bytearray):
        value.append(7)
    elif isinstance(value, tuple):
        _change(value[0])
    else:
        value.held = "changed"


def _found(one: Any, kind: Any) -> Any:
    """What a tuple holds, by the type of it."""
    found: Any = None
    ways = [one]
    while ways:
        value = ways.pop(0)
        if type(value) is kind and (kind is not tuple or type(value[0]) is list):
            found = value
        if hasattr(value, "held"):
            ways.append(value.held)
        if isinstance(value, dict):
            ways += value.values()
        elif isinstance(value, list | tuple | deque):
            ways += value
    return found


def _encoded(tuples: list[Any]) -> list[Any]:
    return decode(Encoder(DEFAULT_LIMITS).encode(tuples))


def _marked(tuples: list[Any]) -> list[Any]:
    data = Encoder(DEFAULT_LIMITS).encode(Marked(tuples, [1.0] * len(tuples)))
    return decode(opened(data, len(tuples)).data)


def _keyed(tuples: list[Any]) -> list[Any]:
    pairs = Pairs([object.__name__] * len(tuples), tuples)
    return decode_keyed(KeyedEncoder(DEFAULT_LIMITS).encode(pairs), len(tuples))[1]


def _listed(tuples: list[Any]) -> list[Any]:
    pairs = [("key", one) for one in tuples]
    return decode_keyed(KeyedEncoder(DEFAULT_LIMITS).encode(pairs), len(tuples))[1]


@pytest.mark.parametrize("way", [_encoded, _marked, _keyed, _listed])
@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("shared", SHARED)
def test_who_changes_a_tuple_changes_no_other_of_its_batch(
    way: Callable[[list[Any]], list[Any]], holder: str, shared: str
) -> None:
    held = SHARED[shared]()
    tuples = [HOLDERS[holder](held), (1, "foreign"), HOLDERS[holder](held)]
    first, _, last = way(tuples)
    before = repr(last)
    _change(_found(first, type(held)))
    assert repr(last) == before != repr(first)


def test_of_tuples_drawn_at_random_none_changes_with_another() -> None:
    draw = random.Random(11)
    for _ in range(200):
        pool = [draw.choice([dict, list])() for _ in range(3)]
        tuples = [
            (n, draw.choice([*HOLDERS.values()])(draw.choice([*pool, n, "text"])))
            for n in range(draw.randrange(1, 9))
        ]
        came = _encoded(tuples)
        assert repr(came) == repr(tuples)
        held = [{*map(id, _holdings(each))} for each in came]
        assert len(set().union(*held)) == sum(map(len, held))


def _holdings(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
    inner = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list | tuple | deque):
        for one in inner:
            yield from _holdings(one)
    if hasattr(value, "held"):
        yield from _holdings(value.held)


def test_within_a_tuple_what_is_the_same_stays_the_same() -> None:
    inner: list[int] = []
    first, second = _encoded([(inner, inner), (inner, inner)])
    assert first[0] is first[1]
    assert second[0] is second[1] is not first[0]


@pytest.mark.parametrize(
    "value",
    [None, 1, "text", (), (1, ("a",)), Colour.RED, datetime.date(2026, 1, 1), dict, json.dumps],
)
def test_what_cannot_change_may_be_shared(value: Any) -> None:
    assert not share([(n, value) for n in range(3)])
    tuples = [[n, value] for n in range(3)]
    assert separate(tuples) is tuples


@pytest.mark.parametrize("first", [("a", 1), (1,), ()], ids=repr)
def test_a_tuple_of_another_kind_than_the_first_is_looked_at(first: tuple[Any, ...]) -> None:
    held = ["held"]
    assert not share([first, (held, 1), ([], "a")])
    assert share([first, (held, 1), (1, held)])
    assert not share([first, (1, "a"), ("a",), first])


def test_tuples_that_nest_beyond_measure_are_not_looked_at_for_ever() -> None:
    nested: Any = (dict,)
    for _ in range(60):
        nested = (nested, nested)
    assert share([[nested], [nested]])


def test_copies_are_made_until_they_are_too_long() -> None:
    context = {"long": "x" * 1000}
    tuples = [(n, context) for n in range(10)]
    with pytest.raises(Swells) as swells:
        separate(tuples, 3500)
    assert swells.value.fitting == 3
    limits = Limits(batch_bytes_max=3500)
    encoded = Encoder(limits).encode_batches(tuples)
    assert not encoded.dead
    assert [one for batch in encoded.batches for one in decode(batch.data)] == tuples
    assert max(len(batch.data) for batch in encoded.batches) <= 3500


# -- fused steps ---------------------------------------------------------------------------------


def _adds(one: dict[str, Any]) -> dict[str, Any]:
    one["seen"].append(one["n"])
    return one


def _lists(n: int) -> list[dict[str, Any]]:
    seen: list[int] = []
    return [{"n": n, "seen": seen}, {"n": -n, "seen": seen}]


def _yields(n: int) -> Iterator[dict[str, Any]]:
    yield from _lists(n)


async def _awaits(n: int) -> list[dict[str, Any]]:
    return _lists(n)


@pytest.mark.parametrize("makes", [_lists, _yields, _awaits])
async def test_results_of_one_tuple_share_nothing_in_the_next_fused_step(
    makes: Callable[[int], Any],
) -> None:
    run = Run(flat(makes), mapping(_adds))
    await run.over(*([n] for n in range(600)))
    assert [one["seen"] for one in run.results] == [[m] for n in range(600) for m in (n, -n)]


async def test_results_that_share_what_a_function_keeps_share_nothing_in_the_next_step() -> None:
    seen: list[int] = []
    run = Run(mapping(lambda n: {"n": n, "seen": seen}), mapping(_adds))
    await run.over(*([n, n + 1] for n in range(0, 600, 2)))
    assert [one["seen"] for one in run.results] == [[n] for n in range(600)]
    assert not seen


# -- pipelines -----------------------------------------------------------------------------------


def test_operators_behind_each_other_share_nothing() -> None:
    context: dict[str, Any] = {"seen": []}
    pipeline = ab.Pipeline("shared")
    made = pipeline.source("in", Anything.source).flat_map(
        "make", lambda n: [(m, context) for m in range(n)]
    )
    told = made.key_by(lambda one: one[0] % 2).process("tell", _tells, state=dict)
    told.sink("out", Anything.sink)
    assert testing.run(pipeline, {"in": [50]})["out"] == [1] * 50


def _tells(key: Any, state: Any, one: Any) -> list[int]:
    number, context = one
    context["seen"].append(number)
    return [len(context["seen"])]
