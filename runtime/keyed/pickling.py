"""Key state as bytes.

States of windows are many small objects; pickle makes each of them by a general method of its
class, which takes most of the time. This module has it call their constructors.

**Unpickling runs code**: bytes may only come from a process of the same run, or from its journal.
"""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable
from typing import Any

from anabranch.runtime.keyed.joins import Met
from anabranch.runtime.keyed.panes import Pane
from anabranch.runtime.keyed.window_handlers import Tail
from anabranch.runtime.keyed.windows import Window

_Made = tuple[Callable[..., Any], tuple[Any, ...]]


def _window(window: Window) -> _Made:
    return Window, (window[0], window[1])


def _pane(pane: Pane) -> _Made:
    return Pane, pane.row()


def _tail(tail: Tail) -> _Made:
    return Tail, (tail.tuples, tail.seen, tail.since, tail.failures)


def _met(met: Met) -> _Made:
    return Met, met.row()


copyreg.pickle(Window, _window)
copyreg.pickle(Pane, _pane)
copyreg.pickle(Tail, _tail)
copyreg.pickle(Met, _met)


def pickled(value: Any) -> bytes:
    """Raises whatever pickle raises. `pickle.loads` reads it."""
    return pickle.dumps(value, 5)
