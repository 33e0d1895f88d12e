"""A pipeline as data: its operators and settings, and the checks of them.

A mistake is reported with the operator's name before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from anabranch.protocol.copies import AGREE_MIN
from anabranch.protocol.ids import OperatorName, Topology
from anabranch.runtime.pipeline import order
from anabranch.runtime.pipeline.names import check_name
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.plan.place import ANYWHERE, Location
from anabranch.runtime.plan.spec import EventTime
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.values.checks import PipelineError, check_number, no_function
from anabranch.runtime.values.hints import hint
from anabranch.runtime.values.path_names import path_of

if TYPE_CHECKING:
    from anabranch.runtime.storage.dead_letters import DeadLetterFile

GROUPS_DEFAULT = 256
GROUPS_MAX = 32_768

Delivery = Literal["effectively-once", "at-least-once", "at-most-once"]
DELIVERIES = ("effectively-once", "at-least-once", "at-most-once")
Durable = Literal["process", "power", "hosts"]
DURABLES = ("process", "power", "hosts")
COPIES_MAX = 8
GIVE_UP_MIN_S = 5.0
"""Writers show every second that they are there."""


@dataclass
class Definition:
    """Settings and operators of a `Pipeline`, without the streams that a user builds it with."""

    name: str
    dead_letters: str | Path | None = None
    operators: dict[OperatorName, Operator] = field(default_factory=dict)
    groups: int = field(default=GROUPS_DEFAULT, kw_only=True)
    delivery: Delivery = field(default="effectively-once", kw_only=True)
    durable: Durable | Mapping[str, Durable] = field(default="process", kw_only=True)
    copies: int = field(default=1, kw_only=True)
    give_up_after_s: float | None = field(default=None, kw_only=True)
    dead_max: int | float | None = field(default=None, kw_only=True)
    requires: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    inputs: dict[OperatorName, list[str]] = field(default_factory=dict, init=False)
    """Files that sources read instead of their own (`--input`)."""

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
        check_number(f"pipeline {self.name!r}: copies", self.copies, whole=True)
        if not 1 <= self.copies <= COPIES_MAX:
            raise PipelineError(
                f"pipeline {self.name!r}: copies must be 1 to {COPIES_MAX}, got {self.copies}"
            )
        kinds = [self.durable] if isinstance(self.durable, str) else self.durable.values()
        for kind in kinds:
            if kind not in DURABLES:
                raise PipelineError(
                    f"pipeline {self.name!r}: durable must be one of {', '.join(DURABLES)}, "
                    f"got {kind!r}"
                )
        self._check_give_up("hosts" in kinds)

    def _check_give_up(self, has_copies: bool) -> None:
        after_s = self.give_up_after_s
        if after_s is None:
            return
        told = f"pipeline {self.name!r}: give_up_after_s"
        check_number(told, after_s)
        if after_s < GIVE_UP_MIN_S:
            raise PipelineError(f"{told} must be {GIVE_UP_MIN_S:g} or more, got {after_s}")
        if not has_copies or self.copies < AGREE_MIN:
            raise PipelineError(
                f'{told} needs durable="hosts" and copies={AGREE_MIN} or more: a majority of the '
                "hosts with copies gives up a host, and one host is none"
            )

    def durable_of(self, operator: str) -> Durable:
        """What the instances of an operator survive."""
        if isinstance(self.durable, str):
            return self.durable
        return self.durable.get(operator, "process")

    def copies_of(self, operator: str) -> int:
        """On how many other hosts the journal of each of its instances is, too."""
        return self.copies if self.durable_of(operator) == "hosts" else 0

    @property
    def has_copies(self) -> bool:
        return any(self.copies_of(name) for name in self.operators)

    @property
    def dead_letters_path(self) -> Path:
        if self.dead_letters is None:
            return Path(f"{self.name}.dead.jsonl")
        return path_of(self.dead_letters, "dead_letters")

    def letters_of(
        self, operator: str, instance: str, lasting_dir: Path | None, *, durable: bool
    ) -> DeadLetterFile:
        """The file of dead letters for an instance."""
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
            for other in operator.place.near:
                self._check_near(operator.name, other)
            _ = operator.instances_at_start  # its policy may raise an error
            self._check_copies(operator)
        if refused := order.refusal(self.operators):
            raise PipelineError(f"pipeline {self.name!r}: {refused}")

    def _check_copies(self, operator: Operator) -> None:
        """What a source or a sink has beside its journal is on its host only."""
        is_end = operator.source is not None or operator.sink is not None
        if self.copies_of(operator.name) and is_end and operator.place != ANYWHERE:
            kind = "source" if operator.source is not None else "sink"
            raise PipelineError(
                f"pipeline {self.name!r}: {kind} {operator.name!r} has a place, where its files or "
                'its spool would be lost with the host, so it cannot be durable="hosts"; leave out '
                "its place (then it is on the host that the pipeline is submitted to), or name the "
                'operators that are to be: durable={"OPERATOR": "hosts"}'
            )

    def with_scale(self, operator: str, setting: str, value: object) -> None:
        """Change one scale setting of one operator (`--set OPERATOR.scale.SETTING=VALUE`)."""
        name = self._known(operator)
        old = self.operators[name]
        scale = (old.scale or Scale(max_instances=1)).with_setting(setting, value)
        self.operators[name] = self.checked(replace(old, scale=scale))

    def with_input(self, source: str, patterns: Sequence[str]) -> None:
        """Let a source read these files (`--input SOURCE=PATH`). Raises `PipelineError`."""
        from anabranch.runtime.sources.other_files import read_from  # building needs no ends

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
        way = hint(operator, self.operators)
        raise PipelineError(f"pipeline {self.name!r} has no operator {operator!r}; {way}")

    def _check_near(self, operator: str, other: str) -> None:
        if other == operator:
            raise PipelineError(f"operator {operator!r}: near: it cannot be near itself")
        if other not in self.operators:
            way = hint(other, [name for name in self.operators if name != operator])
            raise PipelineError(f"operator {operator!r}: near: no operator {other!r}; {way}")

    def checked(self, operator: Operator) -> Operator:
        """The operator, if it is valid by itself. Raises `PipelineError`."""
        check_operator(operator)
        if operator.keyed and operator.scale and operator.scale.max_instances > self.groups:
            raise PipelineError(
                f"operator {operator.name!r}: {operator.scale.max_instances} instances cannot "
                f"share the keys of groups={self.groups}; lower max_instances, or raise groups"
            )
        return operator


def check_dead_max(what: str, value: object) -> None:
    """Raise `PipelineError` unless it is a whole number or a share."""
    check_number(what, value)
    assert isinstance(value, int | float)
    if value < 0 or (isinstance(value, float) and value > 1):
        raise PipelineError(
            f"{what} must be a whole number of dead letters, or a share of the tuples from 0.0 to "
            f"1.0, got {value!r}"
        )


def check_operator(operator: Operator) -> None:
    if operator.scale is not None and not isinstance(operator.scale, Scale):
        raise PipelineError(
            f"operator {operator.name!r}: scale must be ab.Scale(...), got {operator.scale!r}"
        )
    if not isinstance(operator.place, Location):
        raise PipelineError(
            f"operator {operator.name!r}: place must be ab.on(...) or ab.near(...), "
            f"got {operator.place!r}"
        )
    check_number(f"operator {operator.name!r}: in_flight", operator.in_flight, whole=True)
    if operator.in_flight < 1:
        raise PipelineError(f"operator {operator.name!r}: in_flight must be 1 or more")
    if operator.scale and operator.scale.max_instances > 1 and not operator.can_scale:
        raise PipelineError(
            f"operator {operator.name!r} cannot have several instances: "
            f"{operator.source or operator.sink!r} cannot be shared; leave out its scale"
        )


def check_timing(timing: EventTime) -> None:
    for what, fn in (("a function of a tuple", timing.fn), ("device: a function", timing.device)):
        if not callable(fn) and (fn is not None or fn is timing.fn):
            raise PipelineError(f"event_time: {no_function(what, fn)}")
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
