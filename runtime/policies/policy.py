"""What a policy is: a frozen value with settings, and pure functions of them.

A policy of one's own is a class like those that are shipped, and is used in the same way:

    @dataclass(frozen=True)
    class ByQueue(Policy[None]):
        '''One instance more while more than `queue_s` seconds of work wait.'''

        queue_s: float = setting(1.0, "seconds of work that may wait", unit="s", above=0)

        def decide(self, reading, scale, memory, rng):
            ...
            return Resize(reading.instances + 1, "much waits"), memory
"""

from __future__ import annotations

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields, replace
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_type_hints

from anabranch.runtime.values.checks import PipelineError, check_number

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.measuring.reading import Reading
    from anabranch.runtime.policies.decision import Decision
    from anabranch.runtime.policies.scale import Scale

M = TypeVar("M")
Heritage = dict[str, float]
SHIPPED = "anabranch.runtime.policies."
_MODULES = {
    "fixed": "fixed",
    "latency-rules": "predictive.baselines",
    "multi-metric": "multi_metric.policy",
    "multi-metric-central": "multi_metric.central",
    "multi-metric-summed": "multi_metric.summed",
    "peak": "predictive.baselines",
    "predictive": "predictive.policy",
    "predictive-central": "predictive.central",
    "predictive-keeper": "predictive.keeper",
    "probabilistic": "probabilistic",
    "rules": "predictive.baselines",
}
"""Where the shipped policies are: imported when they are asked for, for replicas start fast."""
_KNOWN: dict[str, type[Policy[Any]]] = {}


@dataclass(frozen=True)
class Policy(ABC, Generic[M]):
    """Decides how many instances an operator has. Same reading, settings, memory and random state:
    same decision.

    The driver keeps a memory of type `M` for each instance, beginning with `begin`, and calls
    `decide` about ten times per second. A newcomer's memory is
    `born(heritage(memory, now_s), now_s)` of the instance that made it. A heritage is a map from
    texts to numbers, with times relative to `now_s`.

    `name`: for the command line and for reports, by default that of the class in lower case with
    dashes. `source`: where it is published. `period_s` of the scale is the time between decisions,
    to which a policy keeps by itself; of a `Resize` the driver carries out one per period.
    `in_concert`: the reading has `operator`, the sums of all instances of the operator over the
    last period, which neighbours tell each other for it. `at_keeper`: of the numbers of a `Resize`
    only that of the keeper counts, which neighbours tell its siblings; each does its part when it
    hears of it. `ascending`: names of settings, none of
    which may be less than the one before it.
    Raises `PipelineError` for a setting of the wrong type or out of its range.
    """

    name: ClassVar[str] = ""
    source: ClassVar[str] = ""
    in_concert: ClassVar[bool] = False
    at_keeper: ClassVar[bool] = False
    ascending: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()
        if _plain(cls.name) in _MODULES and not is_shipped(cls):
            raise PipelineError(
                f"policy {cls.__name__}: there is a policy named {cls.name!r} already; give it "
                "another `name`"
            )
        _KNOWN[_plain(cls.name)] = cls

    def __post_init__(self) -> None:
        if any(isinstance(value, Field) for value in vars(type(self)).values()):
            raise PipelineError(
                f"policy {self.name}: its class needs @dataclass(frozen=True) above it, by which "
                "fields become settings"
            )
        kinds = get_type_hints(type(self))
        for each in fields(self):
            _check(self.name, each, kinds[each.name], getattr(self, each.name))
        for low, high in pairwise(self.ascending):
            if getattr(self, low) > getattr(self, high):
                raise PipelineError(
                    f"policy {self.name}: expected {low} <= {high}, got {getattr(self, low)} and "
                    f"{getattr(self, high)}"
                )

    @abstractmethod
    def decide(self, reading: Reading, scale: Scale, memory: M, rng: Random) -> tuple[Decision, M]:
        """What the instance should do now, and what it has to remember."""

    def begin(self) -> M:
        """The memory of an instance that knows nothing yet; None unless a policy says otherwise."""
        return None  # type: ignore[return-value]

    def heritage(self, memory: M, now_s: float) -> Heritage:
        """What a newcomer should know; nothing unless a policy says otherwise."""
        return {}

    def born(self, heritage: Heritage, now_s: float) -> M:
        """The memory of an instance with this heritage, which is empty for those that were there
        from the beginning."""
        return self.begin()

    def at_start(self, scale: Scale) -> int:
        """With how many instances an operator begins, within the bounds of its scale; the fewest
        unless a policy says otherwise."""
        return scale.min_instances

    @property
    def settings(self) -> dict[str, Any]:
        """By name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def plain(self) -> dict[str, Any]:
        """Name and settings as plain values, for reports and other processes."""
        return {"name": self.name, **self.settings}

    @property
    def text(self) -> str:
        """Name and what differs from the defaults, for people."""
        told = [
            f"{each.name}={value}"
            for each in fields(self)
            if (value := getattr(self, each.name)) != each.default
        ]
        return f"{self.name}({', '.join(told)})" if told else self.name


def setting(
    default: Any,
    text: str,
    *,
    unit: str = "",
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    one_of: tuple[str, ...] = (),
) -> Any:
    """A setting of a policy: what it is, its unit, and which values make sense."""
    bounds = {"least": least, "above": above, "most": most, "below": below}
    return field(
        default=default,
        metadata={"text": text, "unit": unit, "one_of": one_of}
        | {name: bound for name, bound in bounds.items() if bound is not None},
    )


def range_of(each: Field[Any]) -> str:
    """Which values a setting may have, in words; empty if all of its type."""
    known = each.metadata
    if known.get("one_of"):
        return "one of " + ", ".join(map(repr, known["one_of"]))
    if "least" in known and "most" in known:
        return f"{known['least']:g} to {known['most']:g}"
    if "above" in known and "below" in known:
        return f"between {known['above']:g} and {known['below']:g}"
    words = {"least": "{:g} or more", "above": "above {:g}", "most": "at most {:g}"}
    words |= {"below": "below {:g}"}
    return " and ".join(words[b].format(known[b]) for b in words if b in known)


def is_shipped(kind: type[Policy[Any]]) -> bool:
    return kind.__module__.startswith(SHIPPED)


def known_policies() -> dict[str, type[Policy[Any]]]:
    """Those that are shipped and those of one's own that were defined so far, by name."""
    for module in _MODULES.values():
        import_module(SHIPPED + module)
    return {kind.name: kind for kind in _KNOWN.values() if not kind.__abstractmethods__}


def policy_named(name: str) -> type[Policy[Any]]:
    """Raises `PipelineError` with a suggestion if there is none of that name."""
    plain = _plain(name)
    if plain in _MODULES:
        import_module(SHIPPED + _MODULES[plain])
    if plain in _KNOWN:
        return _KNOWN[plain]
    raise PipelineError(f"no scaling policy {name!r}; {_hint(name, known_policies())}")


def policy_of(plain: dict[str, Any]) -> Policy[Any]:
    """From what `Policy.plain` says."""
    settings = dict(plain)
    return policy_named(settings.pop("name"))(**settings)


def with_setting(policy: Policy[Any], name: str, value: object) -> Policy[Any]:
    """A copy with one setting changed. Raises `PipelineError`."""
    known = [each.name for each in fields(policy)]
    if name not in known:
        hint = _hint(name, known)
        raise PipelineError(f"policy {policy.name} has no setting {name!r}; {hint}")
    changes: dict[str, Any] = {name: value}
    return replace(policy, **changes)


def _plain(name: str) -> str:
    return name.replace("_", "-").lower()


def _hint(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names) or 'none'}"


def _check(policy: str, each: Field[Any], kind: Any, value: object) -> None:
    what = f"policy {policy}: {each.name}"
    if kind in (int, float):
        check_number(what, value, whole=kind is int)
    elif kind in (bool, str):
        if not isinstance(value, kind):
            raise PipelineError(f"{what} must be a {kind.__name__}, got {value!r}")
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise PipelineError(
            f"{what} must be a number, a text, True, False or None, since it travels between "
            f"processes; got {value!r}"
        )
    if value is not None and not _fits(each, value):
        raise PipelineError(f"{what} must be {range_of(each)}, got {value!r}")


def _fits(each: Field[Any], value: Any) -> bool:
    known = each.metadata
    if known.get("one_of"):
        return value in known["one_of"]
    return (
        ("least" not in known or value >= known["least"])
        and ("above" not in known or value > known["above"])
        and ("most" not in known or value <= known["most"])
        and ("below" not in known or value < known["below"])
    )
