"""Generators of random numbers in the user's program: other numbers in each instance."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from anabranch.runtime.graph import Pipeline
from anabranch.runtime.live.reseeding import reseed
from anabranch.runtime.sinks import discard
from anabranch.runtime.sources import items


class Sampler:
    def __init__(self) -> None:
        self.rng = random.Random(7)

    def __call__(self, value: Any) -> Any:
        return self.rng.random()


@pytest.fixture
def program() -> Iterator[Callable[[], tuple[ModuleType, Pipeline]]]:
    """Makes the user's program as each fork has it."""

    def make() -> tuple[ModuleType, Pipeline]:
        module = ModuleType("program_of_a_user")
        module.__file__ = "/somewhere/program_of_a_user.py"
        held = type("Held", (), {"rng": random.Random(2), "__module__": module.__name__})
        vars(module).update(
            plain=random.Random(1),
            Held=held,
            numpy=np.random.default_rng(3),
            old=np.random.RandomState(4),
        )
        pipeline = Pipeline("p")
        pipeline.source("s", items([1])).map("m", Sampler()).sink("out", discard())
        sys.modules[module.__name__] = module
        return module, pipeline

    yield make
    sys.modules.pop("program_of_a_user", None)


def drawn(made: tuple[ModuleType, Pipeline]) -> list[float]:
    module, pipeline = made
    sampler: Any = pipeline.operators["m"].steps[0].fn  # type: ignore[index]
    generators = [module.plain, module.Held.rng, module.numpy, module.old, sampler.rng]
    return [float(rng.random()) for rng in generators]


def test_each_instance_draws_numbers_of_its_own_and_the_same_each_time(
    program: Callable[[], tuple[ModuleType, Pipeline]],
) -> None:
    found = []
    for name in ("ab:m.0 1", "ab:m.1 1", "ab:m.1 2", "ab:m.0 1"):
        made = program()
        reseed(name, made[1])
        found.append(drawn(made))
    first, second, later, again = found
    assert first == again
    for many in zip(first, second, later, strict=True):
        assert len(set(many)) == 3


def test_what_draws_from_the_system_is_left_alone(
    program: Callable[[], tuple[ModuleType, Pipeline]],
) -> None:
    module, pipeline = program()
    vars(module)["system"] = random.SystemRandom()
    reseed("ab:m.0 1", pipeline)
