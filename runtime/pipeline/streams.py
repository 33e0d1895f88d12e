"""What a user writes behind `key_by`: operators that keep state for each key."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.keyed.functions import Folding, Passing, Processing, Reducing
from anabranch.runtime.pipeline.graph import Stream
from anabranch.runtime.plan.ends import Sink
from anabranch.runtime.plan.operator import Operator, Retry, as_retry
from anabranch.runtime.plan.spec import Keyed, KeyedEdge
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.processing.stages import is_async
from anabranch.runtime.values.checks import PipelineError

if TYPE_CHECKING:
    from anabranch.runtime.pipeline.window_streams import (
        EnrichedStream,
        JoinedStream,
        WindowedStream,
    )


@dataclass(frozen=True)
class KeyedStream:
    """The tuples of a stream, each with the key that `key` gives it.

    Tuples of one key are processed in the order in which they come, by one instance at a time.
    Operators keep what they know of a key; when they scale, it moves with the key.
    """

    stream: Stream
    key: Callable[[Any], Any]
    ordered: bool | None = None
    """Whether results depend on the order of each key's tuples: no operator before may have several
    instances then, unless it works by the same key. None: if they may, several are warned of."""

    def __post_init__(self) -> None:
        check_function("key_by", self.key)

    def fold(
        self,
        name: str,
        initial: Any,
        fn: Callable[[Any, Any], Any],
        *,
        scale: Scale | None = None,
        retry: Retry | int = 0,
    ) -> Stream:
        """`state = fn(state, tuple)` for each key; (key, state) goes on with every tuple.

        `initial`: the state of a new key, of which each gets a copy, or a function without
        arguments that makes one, such as `list`. If `fn` raises, the state is what it was before.
        """
        check_function(f"fold {name!r}", fn)
        keyed = Keyed(
            f"fold {_called(fn)}",
            partial(Folding, initial, fn),
            asks_for_time=False,
            may_need_order=True,
            holds_back=False,
        )
        return self.operator(name, keyed, scale=scale, retry=retry)

    def reduce(
        self,
        name: str,
        fn: Callable[[Any, Any], Any],
        *,
        scale: Scale | None = None,
        retry: Retry | int = 0,
    ) -> Stream:
        """`value = fn(value, tuple)` for each key, whose first tuple is its first value;
        (key, value) goes on with every tuple."""
        check_function(f"reduce {name!r}", fn)
        keyed = Keyed(
            f"reduce {_called(fn)}",
            partial(Reducing, fn),
            asks_for_time=False,
            may_need_order=True,
            holds_back=False,
        )
        return self.operator(name, keyed, scale=scale, retry=retry)

    def process(
        self,
        name: str,
        fn: Any,
        *,
        state: Callable[[], Any] | Mapping[str, Callable[[], Any]],
        scale: Scale | None = None,
        retry: Retry | int = 0,
    ) -> Stream:
        """`fn(key, state, tuple)`, or with a fourth argument for the time, gives any number of
        results (None: none). Or a class: of its objects `on_tuple` is called so, and
        `on_timer(key, state, timer, time)` when a timer is due that was set by
        `time.set_timer(at, name)`; one object is made per instance.

        `state` makes the state of a new key: a function without arguments, such as a dataclass,
        or several by name: `{"seen": set, "total": int}` are `state.seen` and `state.total`.
        If `fn` raises, its results do not count and the state is what it was before; one of more
        than 4 KiB only with `retry`.
        """
        _check_process(name, fn)
        _check_state(name, state)
        make = partial(Processing, fn, state)
        keyed = Keyed(f"process {_called(fn)}", make, may_need_order=True)
        return self.operator(name, keyed, scale=scale, retry=retry)

    def sink(self, name: str, sink: Sink, *, scale: Scale | None = None) -> None:
        """Where tuples go, those of one key to one instance and in their order."""
        if not isinstance(sink, Sink):
            raise PipelineError(
                f"sink {name!r}: expected a sink such as ab.jsonl('out.jsonl'), got {sink!r}"
            )
        keyed = Keyed("sink", Passing, asks_for_time=False, holds_back=False)
        self.operator(name, keyed, sink=sink, scale=scale)

    def window(self, window: Any, **options: Any) -> WindowedStream:
        """The tuples of each key by windows: `ab.tumbling(60.0)`, `ab.sliding(60.0, every=10.0)`,
        `ab.session(gap=30.0)`, `ab.count(2000, every=10)`.

        Options: `time` (a tuple's event time), `lateness_s`, `late` ("bury", "emit", "drop").
        """
        from anabranch.runtime.pipeline.window_streams import WindowedStream

        return WindowedStream(self, window, **options)

    def join(self, right: KeyedStream, window: Any, **options: Any) -> JoinedStream:
        """Pairs of tuples of the same key and window, one of each stream."""
        from anabranch.runtime.pipeline.window_streams import JoinedStream

        return JoinedStream(self, right, window, **options)

    def enrich(self, side: KeyedStream, **options: Any) -> EnrichedStream:
        """Each tuple with the latest one that `side` has had of its key."""
        from anabranch.runtime.pipeline.window_streams import EnrichedStream

        return EnrichedStream(self, side, **options)

    def operator(
        self,
        name: str,
        keyed: Keyed,
        *,
        right: KeyedStream | None = None,
        sink: Sink | None = None,
        scale: Scale | None = None,
        retry: Retry | int = 0,
    ) -> Stream:
        """Add a keyed operator behind this stream; the tuples of `right` come on side 1."""
        if self.ordered:
            keyed = replace(keyed, ordered=True, needs_order=True)
        elif self.ordered is False:
            keyed = replace(keyed, may_need_order=False)
        operator = Operator(
            OperatorName(name),
            (*self.stream.operators, *(right.stream.operators if right else ())),
            sink=sink,
            scale=scale,
            retry=as_retry(retry),
            keyed=keyed,
            edges=self._edges(name, right),
        )
        return self.stream.pipeline.add(operator)

    def _edges(self, name: str, right: KeyedStream | None) -> dict[OperatorName, KeyedEdge]:
        edges = {upstream: KeyedEdge(self.key) for upstream in self.stream.operators}
        if right is None:
            return edges
        if right.stream.pipeline is not self.stream.pipeline:
            raise PipelineError(f"{name!r}: both streams must belong to the same pipeline")
        for upstream in right.stream.operators:
            if upstream in edges:
                raise PipelineError(
                    f"{name!r}: operator {upstream!r} is on both sides; "
                    "put an operator of its own, such as a map, before one of them"
                )
            edges[upstream] = KeyedEdge(right.key, 1)
        return edges


def check_function(place: str, fn: Any) -> None:
    """Raise `PipelineError` unless `fn` can be called, and at once gives its result."""
    if not callable(fn):
        raise PipelineError(f"{place}: expected a function, got {fn!r}")
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
