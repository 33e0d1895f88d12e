"""Random numbers of a forked process: different ones in each instance.

A fork has a copy of every generator, so that all instances would draw the same numbers. Python
gives its own generator a new seed after a fork, at random. All others are given one here, made of
their own next number and the name of the instance: so a generator with a seed of the user's gives
each instance numbers of its own, the same ones each time that the instance begins.

The parent of all instances asks the garbage collector for them, once: it has every generator,
whatever holds it (a default argument, a closure, a `partial`, an object in a list, a library), and
no code of the user's is run to find one. A newcomer then pays for the generators alone.
"""

from __future__ import annotations

import _random
import gc
import random
import sys
from collections.abc import Iterable
from itertools import compress
from typing import Any


def generators() -> tuple[Any, ...]:
    """All that this process has. To be called before `gc.freeze`, which hides them."""
    found = gc.get_objects()
    types, wanted = [*map(type, found)], _kinds()
    kinds = {kind for kind in set(types) if issubclass(kind, wanted)}
    return tuple(filter(_is_seeded, compress(found, map(kinds.__contains__, types))))


def reseed(instance: str, found: Iterable[Any]) -> None:
    """In the process of an instance of that name, before it calls a function of the user's."""
    for value in found:
        if isinstance(value, random.Random):
            seed = _next_number(value)
            random.Random.seed(value, f"{seed} {instance}")
        else:
            _reseed_numpy(value, instance, sys.modules["numpy.random"])


def _kinds() -> tuple[type, ...]:
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is None:
        return (random.Random,)
    return (random.Random, numpy.BitGenerator, numpy.RandomState, numpy.SeedSequence)


def _is_seeded(value: Any) -> bool:
    """Unlike what draws from the system, and what another library has made with NumPy's base."""
    if isinstance(value, random.Random):
        return not isinstance(value, random.SystemRandom)
    return _kind_of_numpy(value) is not sys.modules["numpy.random"].BitGenerator


def _kind_of_numpy(value: Any) -> Any:
    """The kind itself where the user has derived from it."""
    return next(kind for kind in type(value).__mro__ if kind.__module__.startswith("numpy."))


def _next_number(value: random.Random) -> int:
    # A class of the user's may draw in a way of its own, which is not called here.
    return _random.Random.getrandbits(value, 64)


def _reseed_numpy(value: Any, instance: str, numpy: Any) -> None:
    """A `Generator` draws from its `BitGenerator`, and makes others from its `SeedSequence`."""
    kind, name = _kind_of_numpy(value), [*instance.encode()]
    if kind is numpy.SeedSequence:
        entropy = [*value.generate_state(4).tolist(), *name]
        children = value.n_children_spawned
        kind.__init__(value, entropy, spawn_key=value.spawn_key, n_children_spawned=children)
    elif kind is numpy.RandomState:
        # Of two normal numbers that are made at once, it has kept one.
        kind.set_state(value, {**kind.get_state(value, legacy=False), "has_gauss": 0})
    else:
        seed = numpy.SeedSequence([int(kind.random_raw(value)), *name])
        kind.state.__set__(value, kind(seed).state)
