"""Broken variants of the classes that live runs consist of. Worlds must find each of them out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from anabranch.runtime.world.drawn_trial import Crashes


@dataclass(frozen=True)
class Lapse:
    """`what` is wrong. `make` gets the right `attribute` of `of`, a class or a module, and gives
    the wrong one. `scene`: in which it may show, any if empty; `crashes`: in which worlds."""

    name: str
    what: str
    of: Any
    attribute: str
    make: Callable[[Any], Any]
    scene: str = ""
    crashes: Crashes = "some"


@contextmanager
def neglected(lapse: Lapse | None) -> Iterator[None]:
    """Meanwhile the class has it, for all worlds of this process."""
    with ExitStack() as undo:
        if lapse is not None:
            right = vars(lapse.of)[lapse.attribute]
            setattr(lapse.of, lapse.attribute, lapse.make(right))
            undo.callback(setattr, lapse.of, lapse.attribute, right)
        yield
