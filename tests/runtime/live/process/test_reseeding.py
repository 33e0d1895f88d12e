"""Generators of random numbers in the user's program: other numbers in each instance."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from anabranch.runtime.live.process.reseeding import generators, reseed

pytestmark = pytest.mark.usefixtures("unfrozen")

Draw = Callable[[], float]


class Sampler:
    of_class = np.random.default_rng(3)

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def draw(self) -> float:
        return self.rng.random()

    @property
    def trap(self) -> Any:
        raise AssertionError("a property of the user's was read")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} of the user's was asked for")


class Slotted:
    __slots__ = ("rng",)

    def __init__(self) -> None:
        self.rng = np.random.Generator(np.random.SFC64(8))


class Own(random.Random):
    def getrandbits(self, k: int) -> int:
        raise AssertionError("a method of the user's was called")


def closure() -> Draw:
    rng = random.Random(7)
    return lambda: rng.random()


def default(rng: random.Random = random.Random(7)) -> float:  # noqa: B008 - what users write
    return rng.random()


def keyword(*, rng: np.random.RandomState = np.random.RandomState(7)) -> float:  # noqa: B008
    return rng.rand()


def of_generator() -> Draw:
    def stream() -> Iterator[float]:
        rng = random.Random(7)
        while True:
            yield rng.random()

    numbers = stream()
    next(numbers)
    return lambda: next(numbers)


def normal(rng: np.random.RandomState) -> Draw:
    """One more is kept by then."""
    rng.randn()
    return rng.randn


def spawned(make: Callable[[], Any]) -> Draw:
    return lambda: float(np.random.default_rng(make()).random())


HELD: dict[str, Callable[[], Draw]] = {
    "closure": closure,
    "default argument": lambda: default,
    "keyword argument": lambda: keyword,
    "partial": lambda: partial(random.Random.uniform, random.Random(7), 0, 1),
    "keywords of a partial": lambda: partial(keyword, rng=np.random.RandomState(8)),
    "bound method": lambda: Sampler(random.Random(7)).draw,
    "method of the generator": lambda: random.Random(7).random,
    "attribute of a class": lambda: lambda: float(Sampler.of_class.random()),
    "slot": lambda: partial(lambda held: float(held.rng.random()), Slotted()),
    "nested containers": lambda: partial(
        lambda held: held["a"][0][1].random(), {"a": [(0, random.Random(7))]}
    ),
    "frame of a generator": of_generator,
    "class of the user's": lambda: Own(7).random,
    "Philox": lambda: np.random.Generator(np.random.Philox(7)).random,
    "RandomState of another kind": lambda: np.random.RandomState(np.random.PCG64(7)).rand,
    "normal numbers in store": lambda: normal(np.random.RandomState(7)),
    "NumPy's own": lambda: np.random.rand,
    "spawned by a Generator": lambda: spawned(
        partial(lambda rng: rng.bit_generator.seed_seq.spawn(1)[0], np.random.default_rng(7))
    ),
    "spawned by a SeedSequence": lambda: spawned(
        partial(lambda seed: seed.spawn(1)[0], np.random.SeedSequence(7))
    ),
}


def in_a_fork(name: str, found: tuple[Any, ...], draw: Draw) -> float:
    """What an instance of that name draws first; NaN if it fails."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            reseed(name, found)
            os.write(write, struct.pack("d", draw()))
        finally:
            os._exit(0)
    os.close(write)
    told = os.read(read, 8)
    os.close(read)
    os.waitpid(pid, 0)
    assert told, "the fork failed: its traceback is above"
    return float(struct.unpack("d", told)[0])


@pytest.mark.parametrize("where", HELD)
def test_each_instance_draws_numbers_of_its_own_and_the_same_each_time(where: str) -> None:
    draw = HELD[where]()
    found = generators()
    names = ("ab:m.0 1", "ab:m.1 1", "ab:m.1 2", "ab:m.0 1")
    first, second, later, again = (in_a_fork(name, found, draw) for name in names)
    assert first == again
    assert len({first, second, later}) == 3


def test_what_draws_from_the_system_is_left_alone() -> None:
    system = random.SystemRandom()
    assert not any(value is system for value in generators())
