"""What a user writes behind `window`, `join` and `enrich`."""

from __future__ import annotations

import math
from collections.abc import Callable
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
from anabranch.runtime.pipeline.graph import Stream
from anabranch.runtime.pipeline.streams import KeyedStream, check_function
from anabranch.runtime.plan.operator import Retry, as_retry
from anabranch.runtime.plan.spec import LATE_RULES, Keyed, LateRule
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.values.checks import PipelineError

TimeOf = Callable[[Any], float]


@dataclass(frozen=True)
class WindowedStream:
    """The tuples of each key, by windows. `time`: a tuple's event time in seconds (default: that of
    the stream's `event_time`, or of `WindowResult`s). `lateness_s`: how long a window is kept after
    its end for late tuples. `late`: what becomes of tuples that are later still: dead letters
    ("bury"), `ab.Late` among the results ("emit"), or nothing but a count ("drop").
    """

    keyed: KeyedStream
    windows: AnyWindow
    time: TimeOf | None = None
    lateness_s: float = 0.0
    late: LateRule = "bury"

    def __post_init__(self) -> None:
        if not isinstance(self.windows, Sliding | Session | Count):
            raise PipelineError(
                "window: expected ab.tumbling(...), ab.sliding(...), ab.session(...) or "
                f"ab.count(...), got {self.windows!r}"
            )
        _check_late("window", self.time, self.lateness_s, self.late)
        if isinstance(self.windows, Count) and (self.time is not None or self.lateness_s):
            raise PipelineError(
                f"window: {self.windows} counts tuples as they come, so time and lateness_s mean "
                "nothing; leave them out"
            )

    def aggregate(
        self,
        name: str,
        aggregation: Aggregation,
        *,
        scale: Scale | None = None,
        retry: Retry | int = 0,
    ) -> Stream:
        """One `ab.WindowResult` per key and window, such as of `ab.mean(value)`."""
        if not isinstance(aggregation, Aggregation):
            raise PipelineError(
                f"aggregate {name!r}: expected an aggregation such as ab.mean(fn), "
                f"got {aggregation!r}"
            )
        return self._add(name, "aggregate", aggregation, tell_result, scale, retry)

    def apply(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        scale: Scale | None = None,
        retry: Retry | int = 0,
    ) -> Stream:
        """`fn(key, window, tuples)` gives the results of a window, any number of them (None: none).
        All tuples of the window are kept until it ends, in the order in which they came."""
        check_function(f"apply {name!r}", fn)
        return self._add(name, "apply", Collecting(list), TellAll(fn), scale, retry)

    def fold(
        self,
        name: str,
        initial: Any,
        fn: Callable[[Any, Any], Any],
        *,
        scale: Scale | None = None,
        retry: Retry | int = 0,
    ) -> Stream:
        """`value = fn(value, tuple)` over the tuples of each window; an `ab.WindowResult` each.

        Only the value is kept until the window ends; of sessions, which may grow together, all
        tuples are.
        """
        check_function(f"fold {name!r}", fn)
        aggregation = self._by_value(Folded(initial, fn), Fold(initial, fn))
        return self._add(name, "fold", aggregation, tell_result, scale, retry)

    def reduce(
        self,
        name: str,
        fn: Callable[[Any, Any], Any],
        *,
        scale: Scale | None = None,
        retry: Retry | int = 0,
    ) -> Stream:
        """As `fold`, beginning with the first tuple of the window."""
        check_function(f"reduce {name!r}", fn)
        aggregation = self._by_value(Reduced(fn), Reduce(fn))
        return self._add(name, "reduce", aggregation, tell_result, scale, retry)

    def _by_value(
        self, aggregation: Aggregation, finish: Callable[[list[Any]], Any]
    ) -> Aggregation:
        return Collecting(finish) if isinstance(self.windows, Session) else aggregation

    def _add(
        self,
        name: str,
        what: str,
        aggregation: Aggregation,
        tell: Tell,
        scale: Scale | None,
        retry: Retry | int,
    ) -> Stream:
        make: Callable[[], Handler]
        if isinstance(self.windows, Count):
            retries = as_retry(retry).attempts
            make = partial(CountWindows, self.windows, aggregation, tell, retries=retries)
        else:
            time = self.time or _time_of(name, self.keyed)
            lateness_s = float(self.lateness_s)
            if len(_correcting(self.keyed)) == 1:
                aggregation = OfResults(aggregation)
            make = partial(TimeWindows, self.windows, time, lateness_s, aggregation, tell)
        tells_results = tell is tell_result
        counts = isinstance(self.windows, Count)
        keyed = Keyed(
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
        return self.keyed.operator(name, keyed, scale=scale, retry=retry)


@dataclass(frozen=True)
class JoinedStream:
    """Pairs of tuples of two streams with the same key, in the same window. `time`: event time of
    the tuples of both, or (left, right)."""

    left: KeyedStream
    right: KeyedStream
    windows: Sliding
    time: TimeOf | tuple[TimeOf, TimeOf] | None = None
    lateness_s: float = 0.0
    late: LateRule = "bury"

    def __post_init__(self) -> None:
        if not isinstance(self.windows, Sliding):
            raise PipelineError(
                "join: expected ab.tumbling(...) or ab.sliding(...) as its window, "
                f"got {self.windows!r}"
            )
        _check_keyed("join", self.right)
        times = self.time if isinstance(self.time, tuple) else (self.time, self.time)
        if len(times) != 2 or (None in times and times != (None, None)):
            raise PipelineError(
                "join: time must be a function for the tuples of both streams, or two of them, "
                f"(left, right), got {self.time!r}"
            )
        for time in times:
            _check_late("join", time, self.lateness_s, self.late)

    def apply(
        self,
        name: str,
        fn: Callable[[Any, Any, Any], Any],
        *,
        scale: Scale | None = None,
        retry: Retry | int = 0,
    ) -> Stream:
        """One result `fn(key, left, right)` for each pair, when their window ends."""
        check_function(f"join {name!r}", fn)
        given = self.time if isinstance(self.time, tuple) else (self.time, self.time)
        times = (
            given[0] or _time_of(name, self.left),
            given[1] or _time_of(name, self.right),
        )
        make = partial(Joining, self.windows, times, float(self.lateness_s), fn)
        keyed = Keyed(f"join {self.windows}", make, late=self.late, ends_by_time=True)
        return self.left.operator(name, keyed, right=self.right, scale=scale, retry=retry)


@dataclass(frozen=True)
class EnrichedStream:
    """Each tuple with the latest one of a slowly changing stream of the same key."""

    left: KeyedStream
    side: KeyedStream

    def __post_init__(self) -> None:
        _check_keyed("enrich", self.side)

    def apply(
        self,
        name: str,
        fn: Callable[[Any, Any, Any], Any],
        *,
        scale: Scale | None = None,
        retry: Retry | int = 0,
    ) -> Stream:
        """One result `fn(key, tuple, latest)` for each tuple; `latest` is None before the first."""
        check_function(f"enrich {name!r}", fn)
        keyed = Keyed(
            "enrich",
            partial(Enriching, fn),
            asks_for_time=False,
            may_need_order=True,
            holds_back=False,
        )
        return self.left.operator(name, keyed, right=self.side, scale=scale, retry=retry)


def _correcting(keyed: KeyedStream) -> set[OperatorName]:
    """The operators whose window results may come by this stream and be corrected. Results of
    several of them cannot be told apart: none is taken for a correction of another then."""
    operators = keyed.stream.pipeline.operators
    found: set[OperatorName] = set()
    seen: set[OperatorName] = set()
    above = [*keyed.stream.operators]
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


def _time_of(name: str, keyed: KeyedStream) -> TimeOf:
    """How event time is read from the tuples of a stream, if it is known; what a user has said
    of it counts more than what is known of windows."""
    operators = [keyed.stream.pipeline.operators[o] for o in keyed.stream.operators]
    known: list[TimeOf] = []
    for operator in operators:
        if operator.timing is not None:
            known.append(operator.timing.fn)
        elif operator.keyed is not None and operator.keyed.makes_windows:
            known.append(window_time)
    if len(known) == len(operators) and all(fn == known[0] for fn in known):
        return known[0]
    raise PipelineError(
        f"{name!r}: which event time have its tuples? Call .event_time(fn, ...) on the stream just "
        "before .key_by(...): fn is a function of a tuple to seconds, and windows end as it goes "
        "on. Where event time is read further up, give window(..., time=fn) here besides"
    )


def _check_keyed(what: str, other: Any) -> None:
    if not isinstance(other, KeyedStream):
        raise PipelineError(f"{what}: expected a stream with keys, .key_by(fn), got {other!r}")


def _check_late(what: str, time: Any, lateness_s: Any, late: Any) -> None:
    if time is not None:
        check_function(f"{what}: time", time)
    number = isinstance(lateness_s, int | float) and not isinstance(lateness_s, bool)
    if not number or not math.isfinite(lateness_s) or lateness_s < 0:
        raise PipelineError(f"{what}: lateness_s must be 0 or more seconds, got {lateness_s!r}")
    if late not in LATE_RULES:
        raise PipelineError(f"{what}: late must be one of {', '.join(LATE_RULES)}, got {late!r}")
