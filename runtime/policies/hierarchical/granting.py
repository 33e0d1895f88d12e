"""Which proposals of its operators a pipeline's manager grants (HI16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from anabranch.runtime.values.checks import PipelineError


class GrantAnswer(Enum):
    GRANTED = "granted"
    NO_SLOT = "no free slot"
    NO_TOKEN = "no token"
    NOT_NOW = "the response time is too long"


@dataclass(frozen=True, slots=True)
class InstanceRequest:
    """Of the operator that is `operator`-th in the graph. `action`: -1 or +1; `response_s`: its
    response time; `gain`: by how much Q the action is better than nothing."""

    operator: int
    action: int
    region: str
    response_s: float = 0.0
    gain: float = 0.0


@dataclass(frozen=True, slots=True)
class Tokens:
    """A bucket of `size`, `rate` more in each slot, one for each grant. `left`: there now."""

    size: float
    rate: float
    left: float

    @classmethod
    def full(cls, size: float, rate: float) -> Tokens:
        if size < 1 or rate <= 0:
            raise PipelineError(f"tokens: expected size >= 1 and rate > 0, got {size} and {rate}")
        return cls(size, rate, size)

    def next_slot(self) -> Tokens:
        return replace(self, left=min(self.size, self.left + self.rate))


Answers = list[tuple[InstanceRequest, GrantAnswer]]


def grant(requests: Sequence[InstanceRequest], free_slots: Mapping[str, int]) -> Answers:
    """Leaves first, for they free slots, then the slowest operator; of a tie the first in the
    graph. A newcomer needs a free slot in its operator's region."""
    left = dict(free_slots)
    return [(request, _by_slots(request, left)) for request in sorted(requests, key=_order)]


def _order(request: InstanceRequest) -> tuple[bool, float, int]:
    """-1 come in the order of the graph: all of them are granted."""
    newcomer = request.action > 0
    return newcomer, -request.response_s if newcomer else 0.0, request.operator


def _by_slots(request: InstanceRequest, left: dict[str, int]) -> GrantAnswer:
    if request.action > 0 and left.get(request.region, 0) < 1:
        return GrantAnswer.NO_SLOT
    left[request.region] = left.get(request.region, 0) - request.action
    return GrantAnswer.GRANTED


def grant_by_tokens(
    requests: Sequence[InstanceRequest],
    free_slots: Mapping[str, int],
    tokens: Tokens,
    too_slow: bool,
) -> tuple[Answers, Tokens]:
    """Those that gain most first; `too_slow`, while the pipeline misses its bound: only +1. Tokens
    are those of this slot; `next_slot` gives those of the next. Ours: the paper only names them."""
    left, answers = dict(free_slots), []
    for request in sorted(requests, key=lambda r: (-r.gain, _order(r))):
        if too_slow and request.action < 0:
            answer = GrantAnswer.NOT_NOW
        elif tokens.left < 1:
            answer = GrantAnswer.NO_TOKEN
        else:
            answer = _by_slots(request, left)
        if answer is GrantAnswer.GRANTED:
            tokens = replace(tokens, left=tokens.left - 1)
        answers.append((request, answer))
    return answers, tokens
