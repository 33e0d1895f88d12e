"""What a user writes: a pipeline, its streams and operators, checked while it is built.

Everything here is a value. Nothing starts, opens or connects; a mistake is reported with the
operator's name before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.pipeline.definition import Definition, check_timing
from anabranch.runtime.pipeline.names import check_name, names_first
from anabranch.runtime.plan.ends import Sink, Source
from anabranch.runtime.plan.operator import Operator, Retry, Step, StepKind, as_retry, step
from anabranch.runtime.plan.place import ANYWHERE, Location
from anabranch.runtime.plan.spec import EventTime, Keyed, KeyedEdge, LateRule
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.values.checks import PipelineError

if TYPE_CHECKING:
    from anabranch.runtime.keyed.aggregations import Aggregation
    from anabranch.runtime.keyed.windows import AnyWindow, Sliding
    from anabranch.runtime.pipeline.keyed_operators import TimeOf, Windowing


@names_first
@dataclass
class Pipeline(Definition):
    """A graph of named operators, built by methods of its streams.

    `dead_letters`: JSON lines file for tuples that failed for good (default: `<name>.dead.jsonl` in
    the working directory; made only when needed).
    `groups`: key groups of every keyed operator. They are the smallest part of its state that
    moves, so an operator cannot use more instances than groups.
    `delivery`: how often a tuple counts when processes die. "effectively-once": once, in the state
    of keys and at sinks that recognise repeats. "at-least-once": none is lost, some may count
    twice. "at-most-once": a process that dies loses its tuples, and none counts twice.
    `durable`: what instances survive, for all operators or by their names. "process" (default): the
    death of any process. "power": also a loss of power; everything is on the disk before it leaves
    an instance, which costs a few milliseconds each time. "hosts": also the loss of a host for
    good: the journal of each instance is on `copies` other hosts, too, before anything leaves it.
    Only for pipelines that are submitted to agents.
    `give_up_after_s`: None (default): a host that is away is waited for until `anabranch give-up`.
    Else a host that has not been heard for so long, neither by the host of the run nor by more than
    half of those with copies, is given up. It needs `copies` of 2 or more.
    `dead_max`: a run with more dead letters fails. A whole number: as soon as there are more. A
    share of the tuples read, below 1.0: at the end, and earlier once 1,000 tuples were read. 1.0:
    never. None: only a run fails that delivers nothing since all its tuples became dead letters.
    `requires`: modules that the functions import when they are called, and what to do if one is
    missing: a run reports it before it starts.
    """

    def source(
        self, name: str, source: Source, *, scale: Scale | None = None, place: Location = ANYWHERE
    ) -> Stream:
        """Where tuples come from. Raises `PipelineError` if `source` cannot be split to scale."""
        if not isinstance(source, Source):
            raise PipelineError(
                f"source {name!r}: expected a source such as ab.files('texts/*.txt'), "
                f"got {source!r}"
            )
        return self.add(Operator(OperatorName(name), (), source=source, scale=scale, place=place))

    def merge(self, *streams: Stream) -> Stream:
        """One stream of the tuples of all; the next operator has them all as predecessors.

        Raises `PipelineError` if two of the streams have an operator in common."""
        if len(streams) < 2:
            raise PipelineError("merge: expected two or more streams")
        for other in streams:
            if not isinstance(other, Stream):
                raise PipelineError(f"merge: expected streams, as in merge(a, b), got {other!r}")
            if other.pipeline is not self:
                raise PipelineError("merge: all streams must belong to this pipeline")
        names = [n for s in streams for n in s.operators]
        for name in names:
            if names.count(name) > 1:
                raise PipelineError(
                    f"merge: operator {name!r} is in more than one of the streams, which would "
                    "give its tuples once; leave it out of the others or, if each tuple is to come "
                    "once for each stream, put an operator of its own, such as a map, before all "
                    "of them but one"
                )
        return Stream(self, tuple(names))

    def add(self, operator: Operator) -> Stream:
        """Take in a new operator; what comes out of it. Users call the methods of streams."""
        check_name("operator", operator.name)
        if operator.name in self.operators:
            raise PipelineError(f"operator {operator.name!r} is defined twice; names are unique")
        self.operators[operator.name] = self.checked(operator)
        return Stream(self, (operator.name,))


@names_first
@dataclass(frozen=True)
class Stream:
    """The tuples that come out of one operator, or of several after `merge`."""

    pipeline: Pipeline = field(repr=False)
    operators: tuple[OperatorName, ...]

    def map(self, name: str, fn: Callable[..., Any], **options: Any) -> Stream:
        """One result per tuple. With `batch=True` `fn` gets a list and returns one as long.

        Options of all operators: `batch`, `scale` (`Scale`), `place` (`ab.on`, `ab.near`), `retry`
        (`Retry` or attempts), `in_flight` (open calls of an async function, default 16).
        """
        return self._step("map", name, fn, **options)

    def flat_map(self, name: str, fn: Callable[..., Any], **options: Any) -> Stream:
        """Any number of results per tuple. With `batch=True` `fn` gets and returns a list."""
        return self._step("flat_map", name, fn, **options)

    def filter(self, name: str, fn: Callable[..., Any], **options: Any) -> Stream:
        """Keep tuples for which `fn` is true. With `batch=True` it returns the list kept."""
        return self._step("filter", name, fn, **options)

    def fuse(
        self,
        name: str,
        *steps: Step,
        scale: Scale | None = None,
        place: Location = ANYWHERE,
        retry: Retry | int = 0,
        in_flight: int = 16,
    ) -> Stream:
        """A chain run as one operator, without hops: `fuse("prep", ab.map(f), ab.filter(g))`."""
        if not steps or not all(isinstance(s, Step) for s in steps):
            raise PipelineError(
                f"fuse {name!r}: expected steps made by ab.map, ab.flat_map or ab.filter"
            )
        operator = Operator(
            OperatorName(name),
            self.operators,
            steps=steps,
            scale=scale,
            place=place,
            retry=as_retry(retry),
            in_flight=in_flight,
        )
        return self.pipeline.add(operator)

    def sink(
        self, name: str, sink: Sink, *, scale: Scale | None = None, place: Location = ANYWHERE
    ) -> None:
        """Where tuples go. A stream may have several sinks: each gets every tuple."""
        if not isinstance(sink, Sink):
            raise PipelineError(
                f"sink {name!r}: expected a sink such as ab.jsonl('out.jsonl'), got {sink!r}"
            )
        self.pipeline.add(
            Operator(OperatorName(name), self.operators, sink=sink, scale=scale, place=place)
        )

    def merge(self, *others: Stream) -> Stream:
        return self.pipeline.merge(self, *others)

    def key_by(self, fn: Callable[[Any], Any], *, ordered: bool | None = None) -> KeyedStream:
        """The same tuples, by key: `fn(tuple) -> key`. What is done with it keeps state per key.

        A key is None, a bool, int, float, str, bytes, or a tuple of these; equal keys are one.
        `ordered`: results depend on the order in which the tuples of each key come. Then no
        operator before may have several instances, unless it works by the same key and declares it
        too. That is checked before anything starts; an order that is lost is not restored. False:
        they do not, as those of counts and sums. By default it is not known of functions (`fold`,
        `reduce`, `process`, those of windows but for `aggregate`, `enrich`), and `anabranch
        validate` and `run` warn of what mixes the order before them.
        """
        return KeyedStream(self, fn, ordered)

    def event_time(
        self,
        fn: Callable[[Any], float],
        *,
        disorder_s: float = 0.0,
        device: Callable[[Any], Any] | None = None,
        idle_s: float | None = 60.0,
        ahead_s: float | None = None,
    ) -> Stream:
        """The same stream; windows behind it close as time goes on in its tuples.

        `fn(tuple)`: when it happened, in seconds. `disorder_s`: by how much a tuple may be older
        than the newest before it; older ones are late. `device(tuple)`: which device sent it, if
        each has a clock of its own: the slowest counts, unless it was silent for `idle_s`.
        `ahead_s`: times further ahead of this host's clock do not count.
        """
        timing = EventTime(fn, disorder_s, device, idle_s, ahead_s)
        check_timing(timing)
        operators = self.pipeline.operators
        for name in self.operators:
            if operators[name].timing is not None:
                raise PipelineError(f"event_time: operator {name!r} has it already; give it once")
        for name in self.operators:
            operators[name] = replace(operators[name], timing=timing)
        return self

    def _step(
        self,
        kind: StepKind,
        name: str,
        fn: Callable[..., Any],
        *,
        batch: bool = False,
        scale: Scale | None = None,
        place: Location = ANYWHERE,
        retry: Retry | int = 0,
        in_flight: int = 16,
    ) -> Stream:
        one = step(kind, fn, name, batch)
        return self.fuse(name, one, scale=scale, place=place, retry=retry, in_flight=in_flight)


@names_first
@dataclass(frozen=True)
class KeyedStream:
    """The tuples of a stream, each with the key that `key` gives it.

    Tuples of one key are processed in the order in which they come, by one instance at a time.
    Operators keep the state of a key; when they scale, it moves with the key.
    """

    stream: Stream
    key: Callable[[Any], Any]
    ordered: bool | None = None
    """Whether results depend on the order of each key's tuples: no operator before may have several
    instances then, unless it works by the same key. None: if they may, several are warned of."""

    def __post_init__(self) -> None:
        from anabranch.runtime.pipeline import keyed_operators

        keyed_operators.check_function("key_by", self.key)

    def fold(
        self,
        name: str,
        initial: Any,
        fn: Callable[[Any, Any], Any],
        *,
        scale: Scale | None = None,
        place: Location = ANYWHERE,
        retry: Retry | int = 0,
    ) -> Stream:
        """`state = fn(state, tuple)` for each key; (key, state) goes on with every tuple.

        `initial`: the state of a new key, of which each gets a copy, or a function without
        arguments that makes one, such as `list`. If `fn` raises, the state is what it was before.
        """
        from anabranch.runtime.pipeline import keyed_operators

        keyed = keyed_operators.folding(name, initial, fn)
        return self.operator(name, keyed, scale=scale, place=place, retry=retry)

    def reduce(
        self,
        name: str,
        fn: Callable[[Any, Any], Any],
        *,
        scale: Scale | None = None,
        place: Location = ANYWHERE,
        retry: Retry | int = 0,
    ) -> Stream:
        """`value = fn(value, tuple)` for each key, whose first tuple is its first value;
        (key, value) goes on with every tuple."""
        from anabranch.runtime.pipeline import keyed_operators

        keyed = keyed_operators.reducing(name, fn)
        return self.operator(name, keyed, scale=scale, place=place, retry=retry)

    def process(
        self,
        name: str,
        fn: Any,
        *,
        state: Callable[[], Any] | Mapping[str, Callable[[], Any]],
        scale: Scale | None = None,
        place: Location = ANYWHERE,
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
        from anabranch.runtime.pipeline import keyed_operators

        keyed = keyed_operators.processing(name, fn, state)
        return self.operator(name, keyed, scale=scale, place=place, retry=retry)

    def sink(
        self, name: str, sink: Sink, *, scale: Scale | None = None, place: Location = ANYWHERE
    ) -> None:
        """Where tuples go, those of one key to one instance and in their order."""
        if not isinstance(sink, Sink):
            raise PipelineError(
                f"sink {name!r}: expected a sink such as ab.jsonl('out.jsonl'), got {sink!r}"
            )
        from anabranch.runtime.pipeline import keyed_operators

        self.operator(name, keyed_operators.passing(), sink=sink, scale=scale, place=place)

    def window(self, window: Any, **options: Any) -> WindowedStream:
        """The tuples of each key by windows: `ab.tumbling(60.0)`, `ab.sliding(60.0, every=10.0)`,
        `ab.session(gap=30.0)`, `ab.count(2000, every=10)`.

        Options: `time` (a tuple's event time), `lateness_s`, `late` ("bury", "emit", "drop").
        """
        return WindowedStream(self, window, **options)

    def join(self, right: KeyedStream, window: Any, **options: Any) -> JoinedStream:
        """Pairs of tuples of the same key and window, one of each stream."""
        return JoinedStream(self, right, window, **options)

    def enrich(self, side: KeyedStream, **options: Any) -> EnrichedStream:
        """Each tuple with the latest one that `side` has had of its key."""
        return EnrichedStream(self, side, **options)

    def operator(
        self,
        name: str,
        keyed: Keyed,
        *,
        right: KeyedStream | None = None,
        sink: Sink | None = None,
        scale: Scale | None = None,
        place: Location = ANYWHERE,
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
            place=place,
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


@names_first
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
        from anabranch.runtime.pipeline import keyed_operators

        keyed_operators.check_windows(self.windows, self.time, self.lateness_s, self.late)

    def aggregate(
        self,
        name: str,
        aggregation: Aggregation,
        *,
        scale: Scale | None = None,
        place: Location = ANYWHERE,
        retry: Retry | int = 0,
    ) -> Stream:
        """One `ab.WindowResult` per key and window, such as of `ab.mean(value)`."""
        attempts = as_retry(retry).attempts
        keyed = self._windowing.aggregating(name, aggregation, attempts)
        return self.keyed.operator(name, keyed, scale=scale, place=place, retry=retry)

    def apply(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        scale: Scale | None = None,
        place: Location = ANYWHERE,
        retry: Retry | int = 0,
    ) -> Stream:
        """`fn(key, window, tuples)` gives the results of a window, any number of them (None: none).
        All tuples of the window are kept until it ends, in the order in which they came."""
        keyed = self._windowing.applying(name, fn, as_retry(retry).attempts)
        return self.keyed.operator(name, keyed, scale=scale, place=place, retry=retry)

    def fold(
        self,
        name: str,
        initial: Any,
        fn: Callable[[Any, Any], Any],
        *,
        scale: Scale | None = None,
        place: Location = ANYWHERE,
        retry: Retry | int = 0,
    ) -> Stream:
        """`value = fn(value, tuple)` over the tuples of each window; an `ab.WindowResult` each.

        Only the value is kept until the window ends; of sessions, which may grow together, all
        tuples are.
        """
        keyed = self._windowing.folding(name, initial, fn, as_retry(retry).attempts)
        return self.keyed.operator(name, keyed, scale=scale, place=place, retry=retry)

    def reduce(
        self,
        name: str,
        fn: Callable[[Any, Any], Any],
        *,
        scale: Scale | None = None,
        place: Location = ANYWHERE,
        retry: Retry | int = 0,
    ) -> Stream:
        """As `fold`, beginning with the first tuple of the window."""
        keyed = self._windowing.reducing(name, fn, as_retry(retry).attempts)
        return self.keyed.operator(name, keyed, scale=scale, place=place, retry=retry)

    @property
    def _windowing(self) -> Windowing:
        from anabranch.runtime.pipeline import keyed_operators

        stream = self.keyed.stream
        return keyed_operators.Windowing(
            self.windows,
            self.time,
            self.lateness_s,
            self.late,
            stream.pipeline.operators,
            stream.operators,
        )


@names_first
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
        from anabranch.runtime.pipeline import keyed_operators

        keyed_operators.check_join(self.windows, self.time, self.lateness_s, self.late)
        _check_keyed("join", self.right)

    def apply(
        self,
        name: str,
        fn: Callable[[Any, Any, Any], Any],
        *,
        scale: Scale | None = None,
        place: Location = ANYWHERE,
        retry: Retry | int = 0,
    ) -> Stream:
        """One result `fn(key, left, right)` for each pair, when their window ends."""
        from anabranch.runtime.pipeline import keyed_operators

        given = self.time if isinstance(self.time, tuple) else (self.time, self.time)
        operators = self.left.stream.pipeline.operators
        left, right = (
            time or keyed_operators.time_of(name, operators, side.stream.operators)
            for time, side in zip(given, (self.left, self.right), strict=True)
        )
        keyed = keyed_operators.joining(
            name, fn, self.windows, (left, right), float(self.lateness_s), self.late
        )
        return self.left.operator(
            name, keyed, right=self.right, scale=scale, place=place, retry=retry
        )


@names_first
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
        place: Location = ANYWHERE,
        retry: Retry | int = 0,
    ) -> Stream:
        """One result `fn(key, tuple, latest)` for each tuple; `latest` is None before the first."""
        from anabranch.runtime.pipeline import keyed_operators

        keyed = keyed_operators.enriching(name, fn)
        return self.left.operator(
            name, keyed, right=self.side, scale=scale, place=place, retry=retry
        )


def _check_keyed(what: str, other: Any) -> None:
    if not isinstance(other, KeyedStream):
        raise PipelineError(f"{what}: expected a stream with keys, .key_by(fn), got {other!r}")
