"""What a user writes: a pipeline, its streams and operators, checked while it is built.

Everything here is a value. Nothing starts, opens or connects; a mistake is reported with the
operator's name before anything runs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from anabranch.protocol.ids import OperatorName, Topology
from anabranch.runtime.pipeline import order
from anabranch.runtime.plan.ends import Sink, Source
from anabranch.runtime.plan.operator import Operator, Retry, Step, StepKind, as_retry, step
from anabranch.runtime.plan.spec import EventTime
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.values.checks import PipelineError, check_number
from anabranch.runtime.values.path_names import path_of

if TYPE_CHECKING:
    from anabranch.runtime.pipeline.streams import KeyedStream
    from anabranch.runtime.storage.dead_letters import DeadLetterFile

GROUPS_DEFAULT = 256
GROUPS_MAX = 32_768

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")


def check_dead_max(what: str, value: object) -> None:
    """Raise `PipelineError` unless it is a whole number or a share."""
    check_number(what, value)
    assert isinstance(value, int | float)
    if value < 0 or (isinstance(value, float) and value > 1):
        raise PipelineError(
            f"{what} must be a whole number of dead letters, or a share of the tuples from 0.0 to "
            f"1.0, got {value!r}"
        )


Delivery = Literal["effectively-once", "at-least-once", "at-most-once"]
DELIVERIES = ("effectively-once", "at-least-once", "at-most-once")
Durable = Literal["process", "power"]
DURABLES = ("process", "power")


@dataclass
class Pipeline:
    """A graph of named operators, built by methods of its streams.

    `dead_letters`: JSON lines file for tuples that failed for good
    (default: `<name>.dead.jsonl` in the working directory; made only when needed).
    `groups`: key groups of every keyed operator, the smallest part of its state that moves, and so
    the most instances that it can use.
    `delivery`: what becomes of tuples when processes die. "effectively-once": each counts once, in
    the state of keys and at sinks that can tell. "at-least-once": none is lost, some may count
    twice. "at-most-once": what a process had in work dies with it, and none counts twice.
    `durable`: what instances outlive, for all operators or by their names. "process" (where nothing
    is said): the death of any process; journals are written. "power": also of the host; they are on
    the disk before anything leaves an instance, which costs a few milliseconds each time.
    `dead_max`: a run with more dead letters fails. A whole number: as soon as there are more. A
    share of the tuples read, below 1.0: at the end, and before it once 1,000 tuples were read. 1.0:
    never. None: only a run that delivers nothing, since all that it has read became dead letters.
    `requires`: modules that the functions import when they are called, and what to do where one is
    missing: a run says so before it starts.
    """

    name: str
    dead_letters: str | Path | None = None
    operators: dict[OperatorName, Operator] = field(default_factory=dict)
    groups: int = field(default=GROUPS_DEFAULT, kw_only=True)
    delivery: Delivery = field(default="effectively-once", kw_only=True)
    durable: Durable | Mapping[str, Durable] = field(default="process", kw_only=True)
    dead_max: int | float | None = field(default=None, kw_only=True)
    requires: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    inputs: dict[OperatorName, list[str]] = field(default_factory=dict, init=False)
    """The files that sources read instead of what they were written with."""

    def __post_init__(self) -> None:
        check_name("pipeline", self.name)
        if self.dead_letters is not None:
            path_of(self.dead_letters, f"pipeline {self.name!r}: dead_letters")
        check_requires(self.name, self.requires)
        if self.dead_max is not None:
            check_dead_max(f"pipeline {self.name!r}: dead_max", self.dead_max)
        check_number(f"pipeline {self.name!r}: groups", self.groups, whole=True)
        if not 1 <= self.groups <= GROUPS_MAX:
            raise PipelineError(
                f"pipeline {self.name!r}: groups must be 1 to {GROUPS_MAX:,}, got {self.groups}"
            )
        if self.delivery not in DELIVERIES:
            raise PipelineError(
                f"pipeline {self.name!r}: delivery must be one of {', '.join(DELIVERIES)}, "
                f"got {self.delivery!r}"
            )
        kinds = [self.durable] if isinstance(self.durable, str) else self.durable.values()
        for kind in kinds:
            if kind not in DURABLES:
                raise PipelineError(
                    f"pipeline {self.name!r}: durable must be one of {', '.join(DURABLES)}, "
                    f"got {kind!r}"
                )

    def source(self, name: str, source: Source, *, scale: Scale | None = None) -> Stream:
        """Where tuples come from. Raises `PipelineError` if `source` cannot be split to scale."""
        if not isinstance(source, Source):
            raise PipelineError(
                f"source {name!r}: expected a source such as ab.files('texts/*.txt'), "
                f"got {source!r}"
            )
        return self.add(Operator(OperatorName(name), (), source=source, scale=scale))

    def merge(self, *streams: Stream) -> Stream:
        """One stream of the tuples of all; the next operator has them all as predecessors.

        Raises `PipelineError` if two of the streams have an operator in common."""
        if len(streams) < 2:
            raise PipelineError("merge: expected two or more streams")
        for other in streams:
            if not isinstance(other, Stream):
                raise PipelineError(f"merge: expected streams, got {other!r}")
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

    def durable_of(self, operator: str) -> Durable:
        """What the instances of an operator outlive."""
        if isinstance(self.durable, str):
            return self.durable
        return self.durable.get(operator, "process")

    @property
    def dead_letters_path(self) -> Path:
        if self.dead_letters is None:
            return Path(f"{self.name}.dead.jsonl")
        return path_of(self.dead_letters, "dead_letters")

    def letters_of(
        self, operator: str, instance: str, lasting_dir: Path | None, *, durable: bool
    ) -> DeadLetterFile:
        """Where an instance buries tuples; see there."""
        from anabranch.runtime.storage.dead_letters import DeadLetterFile  # building needs no files

        return DeadLetterFile(
            self.dead_letters_path,
            pipeline=self.name,
            operator=operator,
            instance=instance,
            lasting_dir=lasting_dir,
            durable=durable,
        )

    @property
    def topology(self) -> Topology:
        return Topology(frozenset((u, o.name) for o in self.operators.values() for u in o.upstream))

    def validate(self) -> None:
        """Raise `PipelineError` unless every stream starts at a source and ends at a sink, and no
        order is lost on which results depend."""
        if not self.operators:
            raise PipelineError(f"pipeline {self.name!r} has no operators: begin with .source(...)")
        for name in () if isinstance(self.durable, str) else self.durable:
            self._known(name)
        for module, advice in self.requires.items():
            if not _is_installed(module):
                raise PipelineError(
                    f"pipeline {self.name!r} needs the module {module!r}, which is not installed: "
                    f"{advice}"
                )
        used = {u for o in self.operators.values() for u in o.upstream}
        for operator in self.operators.values():
            if operator.sink is None and operator.name not in used:
                raise PipelineError(
                    f"operator {operator.name!r} of pipeline {self.name!r} leads nowhere: "
                    "its results would be lost; end it with .sink(name, ...)"
                )
            _ = operator.instances_at_start  # raises what its policy raises
        if refused := order.refusal(self.operators):
            raise PipelineError(f"pipeline {self.name!r}: {refused}")

    def with_scale(self, operator: str, setting: str, value: object) -> None:
        """Change one scale setting of one operator (`--set OPERATOR.scale.SETTING=VALUE`)."""
        name = self._known(operator)
        old = self.operators[name]
        scale = (old.scale or Scale(max_instances=1)).with_setting(setting, value)
        self.operators[name] = self._checked(replace(old, scale=scale))

    def with_input(self, source: str, patterns: Sequence[str]) -> None:
        """Let a source read these files (`--input SOURCE=PATH`). Raises `PipelineError`."""
        from anabranch.runtime.sources.elsewhere import read_from  # building needs no ends

        name = self._known(source)
        old = self.operators[name]
        if old.source is None:
            sources = ", ".join(o.name for o in self.operators.values() if o.source is not None)
            raise PipelineError(f"{source!r} is no source; sources: {sources}")
        self.operators[name] = replace(old, source=read_from(old.source, patterns))
        self.inputs[name] = list(patterns)

    def _known(self, operator: str) -> OperatorName:
        if operator in self.operators:
            return OperatorName(operator)
        near = difflib.get_close_matches(operator, list(self.operators), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(self.operators)}"
        raise PipelineError(f"pipeline {self.name!r} has no operator {operator!r}; {hint}")

    def add(self, operator: Operator) -> Stream:
        """Take in a new operator; what comes out of it. Users call the methods of streams."""
        check_name("operator", operator.name)
        if operator.name in self.operators:
            raise PipelineError(f"operator {operator.name!r} is defined twice; names are unique")
        self.operators[operator.name] = self._checked(operator)
        return Stream(self, (operator.name,))

    def _checked(self, operator: Operator) -> Operator:
        _check(operator)
        if operator.keyed and operator.scale and operator.scale.max_instances > self.groups:
            raise PipelineError(
                f"operator {operator.name!r}: {operator.scale.max_instances} instances cannot "
                f"share the keys of groups={self.groups}; lower max_instances, or raise groups"
            )
        return operator


@dataclass(frozen=True)
class Stream:
    """The tuples that come out of one operator, or of several after `merge`."""

    pipeline: Pipeline
    operators: tuple[OperatorName, ...]

    def map(self, name: str, fn: Callable[..., Any], **options: Any) -> Stream:
        """One result per tuple. With `batch=True` `fn` gets a list and returns one as long.

        Options of all operators: `batch`, `scale` (`Scale`), `retry` (`Retry` or attempts),
        `in_flight` (open calls of an async function, default 16).
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
            retry=as_retry(retry),
            in_flight=in_flight,
        )
        return self.pipeline.add(operator)

    def sink(self, name: str, sink: Sink, *, scale: Scale | None = None) -> None:
        """Where tuples go. A stream may have several sinks: each gets every tuple."""
        if not isinstance(sink, Sink):
            raise PipelineError(
                f"sink {name!r}: expected a sink such as ab.jsonl('out.jsonl'), got {sink!r}"
            )
        self.pipeline.add(Operator(OperatorName(name), self.operators, sink=sink, scale=scale))

    def merge(self, *others: Stream) -> Stream:
        return self.pipeline.merge(self, *others)

    def key_by(self, fn: Callable[[Any], Any], *, ordered: bool | None = None) -> KeyedStream:
        """The same tuples, by key: `fn(tuple) -> key`. What is done with it keeps state per key.

        A key is None, a bool, int, float, str, bytes, or a tuple of these; equal keys are one.
        `ordered`: results depend on the order in which the tuples of each key come. Then no
        operator before may have several instances, unless it works by the same key and says so
        too. That is checked before anything starts; an order that is lost is not restored. False:
        they do not, as those of counts and sums. By default it is not known of functions (`fold`,
        `reduce`, `process`, those of windows but for `aggregate`, `enrich`), and `anabranch
        validate` and `run` warn of what mixes the order before them.
        """
        from anabranch.runtime.pipeline.streams import KeyedStream

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
        _check_timing(timing)
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
        retry: Retry | int = 0,
        in_flight: int = 16,
    ) -> Stream:
        one = step(kind, fn, name, batch)
        return self.fuse(name, one, scale=scale, retry=retry, in_flight=in_flight)


def check_name(what: str, name: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PipelineError(
            f"{what} name {name!r}: expected a letter, then up to 62 letters, digits, '_' or '-'"
        )


def _check(operator: Operator) -> None:
    if operator.scale is not None and not isinstance(operator.scale, Scale):
        raise PipelineError(
            f"operator {operator.name!r}: scale must be ab.Scale(...), got {operator.scale!r}"
        )
    check_number(f"operator {operator.name!r}: in_flight", operator.in_flight, whole=True)
    if operator.in_flight < 1:
        raise PipelineError(f"operator {operator.name!r}: in_flight must be 1 or more")
    if operator.scale and operator.scale.max_instances > 1 and not operator.can_scale:
        raise PipelineError(
            f"operator {operator.name!r} cannot have several instances: "
            f"{operator.source or operator.sink!r} cannot be shared; leave out its scale"
        )


def _check_timing(timing: EventTime) -> None:
    for what, fn in (("a function of a tuple", timing.fn), ("device: a function", timing.device)):
        if not callable(fn) and (fn is not None or fn is timing.fn):
            raise PipelineError(f"event_time: expected {what}, got {fn!r}")
    for what in ("disorder_s", "idle_s", "ahead_s"):
        seconds = getattr(timing, what)
        if seconds is None and what != "disorder_s":
            continue
        check_number(f"event_time: {what}", seconds)
        if seconds < 0 or (what == "idle_s" and seconds == 0):
            least = "above 0" if what == "idle_s" else "0 or more"
            raise PipelineError(f"event_time: {what} must be {least}, got {seconds}")


def check_requires(pipeline: str, requires: object) -> None:
    if not isinstance(requires, Mapping) or not all(
        isinstance(text, str) and text for pair in requires.items() for text in pair
    ):
        raise PipelineError(
            f"pipeline {pipeline!r}: requires must be a dict of modules and what to do where one "
            f"is missing, such as {{'scipy': 'pip install scipy'}}, got {requires!r}"
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # of a package that is missing, or cannot be imported
        return False


def edges(operators: Iterable[Operator]) -> list[tuple[str, str]]:
    return [(u, o.name) for o in operators for u in o.upstream]
