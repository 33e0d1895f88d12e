"""How an operator scales itself: its bounds and thresholds, and the policy that decides.

A policy is a frozen value with settings, and pure functions of them.

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

import re
from abc import ABC, abstractmethod
from dataclasses import Field, dataclass, field, fields, replace
from importlib import import_module
from itertools import pairwise
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    TypeVar,
    get_origin,
    get_type_hints,
)

from anabranch.runtime.policies.settings import check_setting
from anabranch.runtime.values.checks import PipelineError, check_number
from anabranch.runtime.values.hints import hint

if TYPE_CHECKING:
    from random import Random

    from anabranch.runtime.measuring.reading import Reading
    from anabranch.runtime.policies.decision import Decision

M = TypeVar("M")
Heritage = dict[str, float]
SHIPPED = "anabranch.runtime.policies."
_MODULES = {
    "elysium": "elysium.controller",
    "fixed": "fixed",
    "hierarchy": "hierarchical.controller",
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


PLACEMENTS = ("balanced", "flux")
WORDS = ("placement", "policy")
"""Settings that are no numbers."""
POLICY = "policy."
"""Before the name of a setting of the policy."""


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
    last period, which neighbours send each other. `at_keeper`: of the numbers of a `Resize` only
    that of the keeper counts, which neighbours send to its siblings; each does its part when it has
    it. `ascending`: names of settings, none of which may be less than the one before it. Raises
    `PipelineError` for a setting of the wrong type or out of its range."""

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
        kinds = get_type_hints(type(self))
        if missed := _no_fields(type(self), kinds):
            raise PipelineError(
                f"policy {self.name}: its class needs @dataclass(frozen=True) above it, by which "
                f"fields become settings; without it, {missed[0]!r} is none"
            )
        for each in fields(self):
            check_setting(self.name, each, kinds[each.name], getattr(self, each.name))
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
        """The first memory of an instance; None unless a policy returns another one."""
        return None  # type: ignore[return-value]

    def heritage(self, memory: M, now_s: float) -> Heritage:
        """What a newcomer gets; nothing unless a policy returns something."""
        return {}

    def born(self, heritage: Heritage, now_s: float) -> M:
        """The memory of an instance with this heritage, which is empty for those that were there
        from the beginning."""
        return self.begin()

    def at_start(self, scale: Scale) -> int:
        """With how many instances an operator begins, within the bounds of its scale; the fewest
        unless a policy returns another number."""
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


def _no_fields(kind: type[Policy[Any]], kinds: dict[str, Any]) -> list[str]:
    """What is written like a setting in a class that is no dataclass itself."""
    own = vars(kind)
    if "__dataclass_fields__" in own:
        return []
    typed = [name for name in own.get("__annotations__", ()) if not _is_of_class(kinds[name])]
    return typed + [name for name, value in own.items() if isinstance(value, Field)]


def _is_of_class(kind: Any) -> bool:
    return kind is ClassVar or get_origin(kind) is ClassVar


def _default() -> Policy[Any]:
    return policy_named("probabilistic")()


@dataclass(frozen=True, slots=True)
class Scale:
    """How an operator scales itself: bounds, thresholds, and the policy that decides.

    `target`: the share of its capacity that an instance should use. `high`, `low`: above
    and below these shares of the capacity instances duplicate or leave. `capacity`: tuples per
    second of one instance; measured while running when None. `period_s`: time between two
    decisions. `cooldown_s`: no instance leaves for so long after their number changed; where ranks
    are not told, the probabilistic policy decides nothing at all meanwhile.
    `actions_per_minute_max`: bound per instance on its own duplications and leaves.
    `placement`: which key groups a keyed operator's newcomers get (De Matteis & Mencagli 2016):
    `balanced`, an even load, or `flux`, as few as bring the load within `imbalance_max` of even.
    `policy`: which decides, with settings of its own, such as `ab.policies.Predictive(...)`;
    `ab.policies.Probabilistic()` if none is given (`anabranch policies` lists them).
    Raises `PipelineError` for values that make no sense together.
    """

    target: float = 0.7
    high: float = 0.8
    low: float = 0.6
    capacity: float | None = None
    min_instances: int = 1
    max_instances: int = 8
    period_s: float = 1.0
    cooldown_s: float = 3.0
    actions_per_minute_max: int = 20
    placement: Literal["balanced", "flux"] = "balanced"
    imbalance_max: float = 0.1
    policy: Policy[Any] = field(default_factory=_default)

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name not in WORDS and (value is not None or f.name != "capacity"):
                check_number(f"scale: {f.name}", value, whole=f.type == "int")
        if not 0 < self.low <= self.target <= self.high <= 1:
            raise PipelineError(
                "scale: expected 0 < low <= target <= high <= 1, "
                f"got low={self.low}, target={self.target}, high={self.high}"
            )
        if self.capacity is not None and self.capacity <= 0:
            raise PipelineError(f"scale: capacity must be above 0, got {self.capacity}")
        if not 1 <= self.min_instances <= self.max_instances:
            raise PipelineError(
                "scale: expected 1 <= min_instances <= max_instances, "
                f"got {self.min_instances} and {self.max_instances}"
            )
        if self.placement not in PLACEMENTS or self.imbalance_max < 0:
            raise PipelineError(
                "scale: expected placement 'balanced' or 'flux' and imbalance_max >= 0, "
                f"got {self.placement!r} and {self.imbalance_max}"
            )
        if self.period_s <= 0 or self.cooldown_s < 0 or self.actions_per_minute_max < 1:
            raise PipelineError(
                "scale: expected period_s > 0, cooldown_s >= 0 and actions_per_minute_max >= 1"
            )
        if not isinstance(self.policy, Policy):
            raise PipelineError(
                "scale: policy must be a policy with its settings, such as "
                f"ab.policies.Predictive(latency_ms=250), got {self.policy!r}"
            )

    @property
    def plain(self) -> dict[str, Any]:
        """All settings as plain values, for reports and other processes."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"policy": self.policy.plain}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Scale:
        """From what `plain` gives."""
        return cls(**plain | {"policy": policy_of(plain["policy"])})

    def with_setting(self, name: str, value: object) -> Scale:
        """A copy with one setting changed; raises `PipelineError` with a suggestion for typos.

        `policy` may be given by name, and has its default settings then unless it is the present
        one; `policy.SETTING` is a setting of the policy.
        """
        if name.startswith(POLICY):
            changed = with_setting(self.policy, name.removeprefix(POLICY), value)
            return replace(self, policy=changed)
        if name == "policy" and isinstance(value, str):
            kind = policy_named(value)
            return self if type(self.policy) is kind else replace(self, policy=kind())
        known = [f.name for f in fields(self)]
        if name not in known:
            raise PipelineError(f"scale has no setting {name!r}; {hint(name, known)}")
        changes: dict[str, Any] = {name: value}
        return replace(self, **changes)


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
    raise PipelineError(f"no scaling policy {name!r}; {hint(name, known_policies())}")


def policy_of(plain: dict[str, Any]) -> Policy[Any]:
    """From what `Policy.plain` gives."""
    settings = dict(plain)
    return policy_named(settings.pop("name"))(**settings)


def with_setting(policy: Policy[Any], name: str, value: object) -> Policy[Any]:
    """A copy with one setting changed. Raises `PipelineError`."""
    known = [each.name for each in fields(policy)]
    if name not in known:
        raise PipelineError(f"policy {policy.name} has no setting {name!r}; {hint(name, known)}")
    changes: dict[str, Any] = {name: value}
    return replace(policy, **changes)


def _plain(name: str) -> str:
    return name.replace("_", "-").lower()
