"""What a policy can decide, and why."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from numbers import Real
from operator import index
from typing import SupportsIndex

from anabranch.runtime.values.foreign import shown


class Why(Enum):
    """The rule that settled a decision; the value is its text in explanations."""

    NOT_DUE = "the period is not over"
    OWN_OPERATION = "an own operation is open"
    COOLING_DOWN = "cooling down after the number of instances changed"
    FEW_SAMPLES = "too few samples since the number of instances changed"
    FIXED = "this policy never scales"
    SOURCE = "a source that reads as fast as it can has no demand to measure"
    NO_CAPACITY = "the capacity is not known yet"
    BLOCKED = "successors hold it up, so another instance here would not help"
    DEAD_BAND = "load is within the thresholds"
    BUDGET = "its actions of this minute are used up"
    BELOW_MINIMUM = "fewer instances than the minimum"
    ABOVE_MAXIMUM = "more instances than the maximum"
    AT_MAXIMUM = "overloaded, but the maximum of instances is reached"
    AT_MINIMUM = "underloaded, but the minimum of instances is reached"
    HOST_FULL = "overloaded, but the host has no processor to spare"
    BACKING_OFF = "overloaded, but the last step did not raise the throughput"
    OVERLOADED = "overloaded"
    SLIGHTLY = "overloaded, but so far only slightly and not for long"
    JUMPED = "overloaded, but more than doubled at once, which must be seen again"
    ENOUGH_COMING = "overloaded, but enough instances are on their way"
    ANOTHERS_TURN = "overloaded, and it is a sibling's turn to duplicate"
    YOUNGER_LEAVE = "underloaded, and younger siblings leave"
    ENOUGH_LEAVING = "underloaded, but enough siblings are leaving"
    UNDERLOADED = "underloaded"
    KEEPER = "underloaded, but the keeper stays"
    NO_SURPLUS = "underloaded, but not by a whole instance"
    CONTROLLED = "its controller decides"
    SATURATED = "busy all the time, so it stays whatever the rates say"


@dataclass(frozen=True, slots=True)
class Explanation:
    """All numbers that led to a decision; None where the rule did not look at them.

    `why`: a rule, or the words of a policy of one's own, which give its numbers too. `instances`:
    as many as the operator has, 0 where that has not arrived.
    `load` is demand over capacity and `p` its distance from the target: `load / target - 1`,
    the instances that this one wishes for beside itself, `wanted` what the shared maximum leaves
    of it. `surplus` counts whole superfluous
    instances of the operator. `probability` is the chance of the step that was drawn for, `draw`
    the number drawn (the step is taken if it is below). `coming`: how many more instances, or
    fewer, siblings have under way as far as this one can compute. `wait_s`: until the rule ends.
    """

    why: Why | str
    instances: int = 0
    _: KW_ONLY
    demand_per_s: float | None = None
    capacity: float | None = None
    load: float | None = None
    p: float | None = None
    wanted: float | None = None
    surplus: int | None = None
    probability: float | None = None
    draw: float | None = None
    coming: int = 0
    wait_s: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.why, Why | str):
            raise TypeError(f"the why of an Explanation must be a text, got {shown(self.why)}")

    @property
    def text(self) -> str:
        """One line for people."""
        why = self.why.value if isinstance(self.why, Why) else self.why
        return "; ".join([why, *self._numbers()])

    def _numbers(self) -> list[str]:
        parts = []
        if self.wait_s is not None:
            parts.append(f"{self.wait_s:.1f} s to go")
        if self.load is not None:
            of = "" if self.capacity is None else f" of {self.capacity:,.4g}/s"
            parts.append(f"load {self.load:.2f} (demand {self.demand_per_s or 0:,.4g}{of})")
        if self.p is not None:
            parts.append(f"p = {self.p:+.2f}")
        if self.wanted is not None and self.wanted != self.p:
            parts.append(f"{self.wanted:.2f} of it fit below the maximum")
        if self.surplus is not None:
            parts.append(f"surplus {self.surplus}")
        if self.probability is not None:
            drew = "" if self.draw is None else f" (drew {self.draw:.2f})"
            parts.append(f"probability {self.probability:.2f}{drew}")
        if not self.instances:
            return parts
        under_way = f", {self.coming:+d} under way" if self.coming else ""
        parts.append(f"{self.instances} instance{'s' if self.instances != 1 else ''}{under_way}")
        return parts


def explained(of: str, explanation: Explanation | Why | str) -> Explanation:
    """Words become an explanation without numbers. `of`: what the explanation is for. Raises
    `TypeError`."""
    if isinstance(explanation, Explanation):
        return explanation
    if isinstance(explanation, str | Why):
        return Explanation(why=explanation)
    raise TypeError(f"{of} must say why in a text (or an Explanation), got {shown(explanation)}")


def whole(of: str, n: SupportsIndex, least: int) -> int:
    """Whole numbers of other libraries become those of Python. Raises `TypeError`, `ValueError`."""
    expected = f"{of} must be a whole number of {least} or more"
    try:
        number = index(n)
    except TypeError:
        number = None
    if number is None or isinstance(n, bool):
        raise TypeError(f"{expected}, got {shown(n)}")
    if number < least:
        raise ValueError(f"{expected}, got {number}")
    return number


def share_of(of: str, share: float) -> float:
    """Raises `ValueError`."""
    if isinstance(share, bool) or not isinstance(share, Real) or not 0 < share <= 1:
        raise ValueError(f"{of} must be a number above 0 and at most 1, got {shown(share)}")
    return float(share)


@dataclass(frozen=True, slots=True, init=False)
class Hold:
    explanation: Explanation = field(compare=False)

    def __init__(self, explanation: Explanation | str) -> None:
        object.__setattr__(self, "explanation", explained("a Hold", explanation))

    @property
    def text(self) -> str:
        return f"hold: {self.explanation.text}"


@dataclass(frozen=True, slots=True, init=False)
class Duplicate:
    """Start `n` >= 1 new instances of the operator."""

    n: int
    explanation: Explanation = field(compare=False)

    def __init__(self, n: int, explanation: Explanation | str) -> None:
        # A duplication of nothing is a Hold (erratum PE1).
        object.__setattr__(self, "n", whole("the n of a Duplicate", n, 1))
        object.__setattr__(self, "explanation", explained("a Duplicate", explanation))

    @property
    def text(self) -> str:
        return f"duplicate {self.n}: {self.explanation.text}"


@dataclass(frozen=True, slots=True, init=False)
class Leave:
    """`new_owner`: the rank of the sibling that gets its key groups; None: any."""

    explanation: Explanation = field(compare=False)
    new_owner: int | None

    def __init__(self, explanation: Explanation | str, new_owner: int | None = None) -> None:
        object.__setattr__(self, "explanation", explained("a Leave", explanation))
        known = None if new_owner is None else whole("the new owner of a Leave", new_owner, 0)
        object.__setattr__(self, "new_owner", known)

    @property
    def text(self) -> str:
        return f"leave: {self.explanation.text}"


@dataclass(frozen=True, slots=True, init=False)
class Move:
    """Give key groups with about this `share` of the own load, above 0 and at most 1, to the
    sibling with the rank `to_rank`. For operators by key; others have nothing to give."""

    share: float
    to_rank: int
    explanation: Explanation = field(compare=False)

    def __init__(self, share: float, to_rank: int, explanation: Explanation | str) -> None:
        object.__setattr__(self, "share", share_of("the share of a Move", share))
        object.__setattr__(self, "to_rank", whole("the to_rank of a Move", to_rank, 0))
        object.__setattr__(self, "explanation", explained("a Move", explanation))

    @property
    def text(self) -> str:
        told = self.explanation.text
        return f"move {self.share:.0%} of its load to the sibling of rank {self.to_rank}: {told}"


@dataclass(frozen=True, slots=True, init=False)
class Resize:
    """The operator should have `n` instances. Every instance decides it for itself, and those whose
    turn it is see to it (`concert`); bounds, budget and the core hold as ever."""

    n: int
    explanation: Explanation = field(compare=False)

    def __init__(self, n: int, explanation: Explanation | str) -> None:
        object.__setattr__(self, "n", whole("the n of a Resize", n, 0))
        object.__setattr__(self, "explanation", explained("a Resize", explanation))

    @property
    def text(self) -> str:
        return f"resize to {self.n}: {self.explanation.text}"


Decision = Hold | Duplicate | Leave | Move | Resize
Act = Hold | Duplicate | Leave | Move
"""What an instance does by itself: a `Resize` becomes one of these."""
