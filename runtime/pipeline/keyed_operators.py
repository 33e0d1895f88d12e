"""What `fold`, `process`, windows, joins and the like are in a plan: values of `Keyed`.

Only a pipeline with keys imports this module, since it imports what processes tuples by key.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.keyed.aggregations import (
    Aggregation,
    Collecting,
    Fold,
    Folded,
    OfResults,
    Reduce,
    Reduced,
)
from anabranch.runtime.keyed.functions import Folding, Passing, Processing, Reducing
from anabranch.runtime.keyed.handler import Handler
from anabranch.runtime.keyed.joins import Enriching, Joining
from anabranch.runtime.keyed.window_handlers import (
    CountWindows,
    Tell,
    TellAll,
    TimeWindows,
    tell_result,
)
from anabranch.runtime.keyed.windows import AnyWindow, Count, Session, Sliding, window_time
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.plan.spec import LATE_RULES, Keyed, LateRule
from anabranch.runtime.processing.stages import is_async
from anabranch.runtime.values.checks import PipelineError, no_function

TimeOf = Callable[[Any], float]
Operators = Mapping[OperatorName, Operator]
"""All those of a pipeline."""


def folding(name: str, initial: Any, fn: Callable[[Any, Any], Any]) -> Keyed:
    check_function(f"fold {name!r}", fn)
    return _by_tuple(f"fold {_called(fn)}", partial(Folding, initial, fn))


def reducing(name: str, fn: Callable[[Any, Any], Any]) -> Keyed:
    check_function(f"reduce {name!r}", fn)
    return _by_tuple(f"reduce {_called(fn)}", partial(Reducing, fn))


def enriching(name: str, fn: Callable[[Any, Any, Any], Any]) -> Keyed:
    check_function(f"enrich {name!r}", fn)
    return _by_tuple("enrich", partial(Enriching, fn))


def _by_tuple(what: str, make: Callable[[], Handler]) -> Keyed:
    return Keyed(what, make, asks_for_time=False, may_need_order=True, holds_back=False)


def processing(
    name: str, fn: Any, state: Callable[[], Any] | Mapping[str, Callable[[], Any]]
) -> Keyed:
    _check_process(name, fn)
    _check_state(name, state)
    return Keyed(f"process {_called(fn)}", partial(Processing, fn, state), may_need_order=True)


def passing() -> Keyed:
    """What a sink does with tuples by key."""
    return Keyed("sink", Passing, asks_for_time=False, holds_back=False)


def joining(
    name: str,
    fn: Callable[[Any, Any, Any], Any],
    windows: Sliding,
    times: tuple[TimeOf, TimeOf],
    lateness_s: float,
    late: LateRule,
) -> Keyed:
    """`times`: how event time is read from tuples of the left stream and of the right one."""
    check_function(f"join {name!r}", fn)
    make = partial(Joining, windows, times, lateness_s, fn)
    return Keyed(f"join {windows}", make, late=late, ends_by_time=True)


@dataclass(frozen=True)
class Windowing:
    """The tuples of `upstream` by key and window, as the user's `window` has it."""

    windows: AnyWindow
    time: TimeOf | None
    lateness_s: float
    late: LateRule
    operators: Operators
    upstream: Sequence[OperatorName]

    def aggregating(self, name: str, aggregation: Any, retries: int) -> Keyed:
        if not isinstance(aggregation, Aggregation):
            raise PipelineError(
                f"aggregate {name!r}: expected an aggregation such as ab.mean(fn), "
                f"got {aggregation!r}"
            )
        return self._keyed(name, "aggregate", aggregation, tell_result, retries)

    def applying(self, name: str, fn: Callable[..., Any], retries: int) -> Keyed:
        check_function(f"apply {name!r}", fn)
        return self._keyed(name, "apply", Collecting(list), TellAll(fn), retries)

    def folding(
        self, name: str, initial: Any, fn: Callable[[Any, Any], Any], retries: int
    ) -> Keyed:
        check_function(f"fold {name!r}", fn)
        aggregation = self._by_value(Folded(initial, fn), Fold(initial, fn))
        return self._keyed(name, "fold", aggregation, tell_result, retries)

    def reducing(self, name: str, fn: Callable[[Any, Any], Any], retries: int) -> Keyed:
        check_function(f"reduce {name!r}", fn)
        aggregation = self._by_value(Reduced(fn), Reduce(fn))
        return self._keyed(name, "reduce", aggregation, tell_result, retries)

    def _by_value(
        self, aggregation: Aggregation, finish: Callable[[list[Any]], Any]
    ) -> Aggregation:
        return Collecting(finish) if isinstance(self.windows, Session) else aggregation

    def _keyed(
        self, name: str, what: str, aggregation: Aggregation, tell: Tell, retries: int
    ) -> Keyed:
        make: Callable[[], Handler]
        if isinstance(self.windows, Count):
            make = partial(CountWindows, self.windows, aggregation, tell, retries=retries)
        else:
            time = self.time or time_of(name, self.operators, self.upstream)
            lateness_s = float(self.lateness_s)
            if len(_correcting(self.operators, self.upstream)) == 1:
                aggregation = OfResults(aggregation)
            make = partial(TimeWindows, self.windows, time, lateness_s, aggregation, tell)
        tells_results = tell is tell_result
        counts = isinstance(self.windows, Count)
        return Keyed(
            f"{what} {self.windows}",
            make,
            late=self.late,
            makes_windows=tells_results and self.late != "emit",
            corrects=tells_results and self.lateness_s > 0,
            asks_for_time=not counts,
            ends_by_time=not counts,
            needs_order=counts,
            may_need_order=what != "aggregate",
            makes_sessions=isinstance(self.windows, Session),
        )


def check_windows(windows: Any, time: Any, lateness_s: Any, late: Any) -> None:
    if not isinstance(windows, Sliding | Session | Count):
        raise PipelineError(
            "window: expected ab.tumbling(...), ab.sliding(...), ab.session(...) or "
            f"ab.count(...), got {windows!r}"
        )
    _check_late("window", time, lateness_s, late)
    if isinstance(windows, Count) and (time is not None or lateness_s):
        raise PipelineError(
            f"window: {windows} counts tuples as they come, so time and lateness_s mean "
            "nothing; leave them out"
        )


def check_join(windows: Any, time: Any, lateness_s: Any, late: Any) -> None:
    if not isinstance(windows, Sliding):
        raise PipelineError(
            f"join: expected ab.tumbling(...) or ab.sliding(...) as its window, got {windows!r}"
        )
    times = time if isinstance(time, tuple) else (time, time)
    if len(times) != 2 or (None in times and times != (None, None)):
        raise PipelineError(
            "join: time must be a function for the tuples of both streams, or two of them, "
            f"(left, right), got {time!r}"
        )
    for one in times:
        _check_late("join", one, lateness_s, late)


def _correcting(operators: Operators, upstream: Sequence[OperatorName]) -> set[OperatorName]:
    """The operators whose window results may come from `upstream` and be corrected. Results of
    several of them cannot be distinguished: none is taken for a correction of another then."""
    found: set[OperatorName] = set()
    seen: set[OperatorName] = set()
    above = [*upstream]
    while above:
        operator = operators[above.pop()]
        if operator.name in seen:
            continue
        seen.add(operator.name)
        if operator.keyed is not None and operator.keyed.corrects:
            found.add(operator.name)
        else:
            above += operator.upstream
    return found


def time_of(name: str, operators: Operators, upstream: Sequence[OperatorName]) -> TimeOf:
    """How event time is read from the tuples of `upstream`, if it is known; what a user has said
    of it counts more than what is known of windows."""
    nearest = [operators[above] for above in upstream]
    known: list[TimeOf] = []
    for operator in nearest:
        if operator.timing is not None:
            known.append(operator.timing.fn)
        elif operator.keyed is not None and operator.keyed.makes_windows:
            known.append(window_time)
    if len(known) == len(nearest) and all(fn == known[0] for fn in known):
        return known[0]
    raise PipelineError(
        f"{name!r}: which event time have its tuples? Call .event_time(fn, ...) on the stream just "
        "before .key_by(...): fn is a function of a tuple to seconds, and windows end as it goes "
        "on. Where event time is read further up, give window(..., time=fn) here besides"
    )


def _check_late(what: str, time: Any, lateness_s: Any, late: Any) -> None:
    if time is not None:
        check_function(f"{what}: time", time)
    number = isinstance(lateness_s, int | float) and not isinstance(lateness_s, bool)
    if not number or not math.isfinite(lateness_s) or lateness_s < 0:
        raise PipelineError(f"{what}: lateness_s must be 0 or more seconds, got {lateness_s!r}")
    if late not in LATE_RULES:
        raise PipelineError(f"{what}: late must be one of {', '.join(LATE_RULES)}, got {late!r}")


def check_function(place: str, fn: Any) -> None:
    """Raise `PipelineError` unless `fn` can be called, and at once gives its result."""
    if not callable(fn):
        raise PipelineError(f"{place}: {no_function('a function', fn)}")
    if is_async(fn) or inspect.isasyncgenfunction(fn):
        raise PipelineError(
            f"{place}: expected a plain function; state is changed by one tuple at a time, "
            "so await things in a map before"
        )


def _check_process(name: str, fn: Any) -> None:
    if hasattr(fn, "on_tuple"):
        for method in ("on_tuple", "on_timer"):
            check_function(f"process {name!r}: {method}", getattr(fn, method, print))
        return
    if isinstance(fn, type) and not any("__call__" in vars(c) for c in fn.__mro__):
        raise PipelineError(
            f"process {name!r}: class {fn.__name__} has no on_tuple(key, state, tuple, time)"
        )
    check_function(f"process {name!r}", fn)


def _check_state(name: str, state: Any) -> None:
    if isinstance(state, Mapping):
        for key, factory in state.items():
            if not isinstance(key, str) or not key.isidentifier():
                raise PipelineError(f"process {name!r}: {key!r} cannot name a state; use a word")
            check_function(f"process {name!r}: state {key!r}", factory)
    elif not callable(state):
        raise PipelineError(
            f"process {name!r}: state must be a function that makes one, such as a class, "
            f"or several of them by name, got {state!r}"
        )


def _called(fn: Any) -> str:
    while isinstance(fn, partial):
        fn = fn.func
    return str(getattr(fn, "__name__", type(fn).__name__))
