"""Random numbers of a forked process: different ones in each instance.

A fork has a copy of every generator, so that all instances would draw the same numbers. Python
gives its own generator a new seed after a fork. The others are given one here: NumPy's global
generator at random, and each generator in a global variable of the user's files, in a class there
or in an object that is used as a function, from its own next number and the name of the instance.
So a generator with a seed of the user's gives each instance numbers of its own, the same ones each
time that the instance begins.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from anabranch.runtime.graph import Pipeline
from anabranch.runtime.programs import user_modules


def reseed(instance: str, pipeline: Pipeline) -> None:
    """In the process of an instance of that name, before it calls a function of the user's."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    met: set[int] = set()
    for value in _values(pipeline):
        if id(value) in met:
            continue
        met.add(id(value))
        if isinstance(value, random.Random):
            if not isinstance(value, random.SystemRandom):
                value.seed(f"{value.getrandbits(64)} {instance}")
        elif numpy_random is not None:
            _reseed_numpy(value, instance, numpy_random)


def _reseed_numpy(value: Any, instance: str, numpy_random: ModuleType) -> None:
    if isinstance(value, numpy_random.Generator):
        entropy = [int(value.integers(2**63)), *instance.encode()]
        kind = type(value.bit_generator)
        value.bit_generator.state = kind(numpy_random.SeedSequence(entropy)).state
    elif isinstance(value, numpy_random.RandomState):
        entropy = [int(value.randint(2**31)), *instance.encode()]
        value.seed(numpy_random.SeedSequence(entropy).generate_state(8))


def _values(pipeline: Pipeline) -> Iterator[Any]:
    """Where generators are found."""
    for module in user_modules():
        for value in [*vars(module).values()]:
            yield value
            if isinstance(value, type) and value.__module__ == module.__name__:
                yield from [*vars(value).values()]
    for operator in pipeline.operators.values():
        for step in operator.steps:
            yield from [*getattr(step.fn, "__dict__", {}).values()]
