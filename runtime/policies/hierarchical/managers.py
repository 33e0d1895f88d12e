"""All managers of one pipeline in one assessment, in the order of a slot (HI19).

operators: observe, learn, propose ─▶ pipeline: grant ─▶ hosts: learn, act
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.runtime.policies.elysium.evidence import Evidence
from anabranch.runtime.policies.elysium.rates import input_rates
from anabranch.runtime.policies.elysium.sampling import TakenReadings, readings_of, sample
from anabranch.runtime.policies.hierarchical.granting import (
    Answers,
    GrantAnswer,
    InstanceRequest,
    Tokens,
    grant,
    grant_by_tokens,
)
from anabranch.runtime.policies.hierarchical.inheriting import heritage_of, inherited
from anabranch.runtime.policies.hierarchical.learning import (
    Learnt,
    OperatorLearner,
    RegionLearner,
    RegionView,
)
from anabranch.runtime.policies.hierarchical.observing import ObservedOperator, observed
from anabranch.runtime.policies.hierarchical.thresholds import USE_OUT, by_idle_hosts, by_threshold
from anabranch.runtime.policies.look_and_plan import Look, Plan, PoolLook, operator_of
from anabranch.runtime.policies.policy import Heritage

ONE = "(hosts)"
"""The region: all hosts of a run. No operator has such a name."""
RATE_MOST, HOSTS_MOST = "rate_most", 50
SHARE = 0.8
"""Of the bound of the pipeline, which its operators divide among themselves (HI-G17)."""


@dataclass(frozen=True, slots=True)
class ManagedRules:
    """The settings of the controller (`Hierarchy`)."""

    operators_learn: bool
    hosts: str
    response_s: float
    w_d: float
    idle: int
    slots: int
    tokens: int
    tokens_each: float


@dataclass(frozen=True, slots=True)
class OperatorMemory:
    """`rate_most`: the highest load that its levels distinguish, from the first capacity that was
    measured. `enacted`: what was granted of its last proposal."""

    rate_most: float
    learnt: Learnt | None = None
    enacted: int = 0


@dataclass(frozen=True, slots=True)
class HierarchyMemory:
    """`before`: readings of the last assessment. `evidence`: what streams carry, from which follows
    what operators are offered. `left`: what an earlier incarnation has left, of
    which each manager takes its part when it begins. `hosts`: planned last."""

    due_s: float
    left: Mapping[str, float] = field(default_factory=dict)
    before: TakenReadings | None = None
    evidence: Evidence = field(default_factory=Evidence)
    operators: Mapping[str, OperatorMemory] = field(default_factory=dict)
    region: Learnt | None = None
    hosts: int | None = None
    tokens: Tokens | None = None


def begin(heritage: Heritage, due_s: float) -> HierarchyMemory:
    return HierarchyMemory(due_s, dict(heritage), evidence=Evidence.of(heritage))


def left_by(memory: HierarchyMemory) -> Heritage:
    """Also of managers that have not begun yet."""
    found: Heritage = dict(memory.left) | memory.evidence.heritage
    for name, each in memory.operators.items():
        found = _without(found, name) | {f"{name} {RATE_MOST}": each.rate_most}
        if each.learnt is not None:
            found |= heritage_of(name, each.learnt)
    if memory.region is not None:
        found = _without(found, ONE) | heritage_of(ONE, memory.region)
    return found


def _without(heritage: Heritage, what: str) -> Heritage:
    return {text: value for text, value in heritage.items() if not text.startswith(f"{what} ")}


def first_look(look: Look, memory: HierarchyMemory) -> HierarchyMemory:
    return replace(memory, before=readings_of(look))


@dataclass(frozen=True, slots=True)
class _Proposed:
    action: int
    gain: float
    seen: ObservedOperator


def managed(
    rules: ManagedRules, look: Look, memory: HierarchyMemory, due_s: float
) -> tuple[Plan, HierarchyMemory]:
    before = memory.before or readings_of(look)
    sampled = sample(memory.evidence, before, look)
    offered = input_rates(sampled.offered, sampled.evidence.selectivities())
    sizes = {n: look.operators[n].n + look.operators[n].coming for n in look.controlled}
    operators, proposed = dict(memory.operators), dict[str, _Proposed]()
    for name, size in sizes.items():
        seen = observed(before.readings, look.operators[name], size, offered.get(name))
        if found := _proposal(rules, look, memory, name, seen):
            operators[name], proposed[name] = found
    answers, tokens = _granted(rules, look, memory, proposed)
    words, refused, wanted = [], 0, dict(sizes)
    for request, answer in answers:
        name = look.controlled[request.operator]
        done = request.action if answer is GrantAnswer.GRANTED else 0
        wanted[name] += done
        refused += answer is GrantAnswer.NO_SLOT
        operators[name] = replace(operators[name], enacted=done)
        words.append(f"{name} {request.action:+d} {answer.value}")
    hosts, region, told = _hosts(rules, look, memory, proposed, wanted, refused)
    after = replace(
        memory, due_s=due_s, before=readings_of(look), evidence=sampled.evidence,
        operators=operators, region=region, hosts=hosts, tokens=tokens,
    )  # fmt: skip
    if not proposed:
        words = ["nothing is known yet"]
    elif not words:
        words = ["no operator asks for a change"]
    return Plan(wanted, "; ".join([*words, *told]), hosts=hosts), after


def _proposal(
    rules: ManagedRules,
    look: Look,
    memory: HierarchyMemory,
    name: str,
    seen: ObservedOperator | None,
) -> tuple[OperatorMemory, _Proposed] | None:
    """Of an operator that has processed something and can change."""
    scale = look.operators[name].scale
    known = memory.operators.get(name)
    most = known.rate_most if known else memory.left.get(f"{name} {RATE_MOST}", 0.0)
    if most <= 0 and seen is not None and seen.capacity:
        most = USE_OUT * scale.max_instances * seen.capacity
    if seen is None or most <= 0 or scale.max_instances < 2:
        return None
    if not rules.operators_learn:
        own = replace(known or OperatorMemory(most), enacted=0)
        return own, _Proposed(by_threshold(seen.uses, scale.max_instances), 0.0, seen)
    learner = OperatorLearner(
        most, SHARE * rules.response_s / len(look.controlled), scale.max_instances
    )
    learnt = known.learnt if known else None
    if learnt is None:
        learnt = inherited(name, memory.left, learner.form, learner.weights)
    here = replace(seen.view, instances=min(max(seen.view.instances, 1), scale.max_instances))
    proposal, learnt = learner.decide(here, learnt, known.enacted if known else None)
    return OperatorMemory(most, learnt), _Proposed(proposal.action, proposal.gain, seen)


def _granted(
    rules: ManagedRules, look: Look, memory: HierarchyMemory, proposed: Mapping[str, _Proposed]
) -> tuple[Answers, Tokens | None]:
    requests = [
        InstanceRequest(at, one.action, ONE, one.seen.view.response_s, one.gain)
        for at, name in enumerate(look.controlled)
        if (one := proposed.get(name)) is not None and one.action
    ]
    pool = look.pool
    free = len(requests) if pool is None else sum(_free(rules, look, pool).values())
    if not rules.tokens:
        return grant(requests, {ONE: free}), None
    tokens = memory.tokens or Tokens.full(rules.tokens, rules.tokens_each)
    too_slow = sum(one.seen.view.response_s for one in proposed.values()) > rules.response_s
    answers, tokens = grant_by_tokens(requests, {ONE: free}, tokens, too_slow)
    return answers, tokens.next_slot()


def _free(rules: ManagedRules, look: Look, pool: PoolLook) -> dict[str, int]:
    """Free slots of each host that takes instances: by default as many as it has cores. Instances
    on their way are counted at the fullest hosts. Operators that do not scale take no slots."""
    free = {
        host.name: rules.slots or max(1, int(host.cores)) for host in pool.hosts if not host.drained
    }
    for instance, host in pool.where.items():
        if host in free and operator_of(instance) in look.controlled:
            free[host] = max(0, free[host] - 1)
    coming = sum(look.operators[name].coming for name in look.controlled)
    return _taken(free, coming, pool)


def _taken(free: dict[str, int], count: int, pool: PoolLook) -> dict[str, int]:
    """Newcomers go to the fullest hosts, at last to idle ones (HI18)."""
    used, left = set(pool.where.values()), dict(free)
    for host in sorted(free, key=lambda h: (h not in used, free[h], h)):
        here = min(left[host], max(0, count))
        left[host] -= here
        count -= here
    return left


def _hosts(
    rules: ManagedRules,
    look: Look,
    memory: HierarchyMemory,
    proposed: Mapping[str, _Proposed],
    wanted: Mapping[str, int],
    refused: int,
) -> tuple[int | None, Learnt | None, Sequence[str]]:
    """After the grants (HI19). How many there should be, what was learnt, and why."""
    pool = look.pool
    if pool is None or rules.hosts == "fixed":
        return None, memory.region, ()
    grown = {n: wanted[n] - look.operators[n].n - look.operators[n].coming for n in wanted}
    before = _free(rules, look, pool)
    free = _taken(before, sum(n for n in grown.values() if n > 0), pool)
    used = set(pool.where.values()) | {host for host in free if free[host] < before[host]}
    open_ = [host.name for host in pool.hosts if not host.drained]
    most = max(1, min(pool.hosts_max, HOSTS_MOST))
    # One that was asked for is there from then on, unless it cannot be had (HI1).
    asked = len(open_) if memory.hosts is None or pool.refused else memory.hosts
    k = min(max(asked, len(open_)), most)
    idle = sum(host not in used for host in open_) + max(0, k - len(open_))
    uses = [use for one in proposed.values() for use in one.seen.uses]
    use = sum(uses) / len(uses) if uses else 0.0
    learnt, told = memory.region, f"{len(open_)} hosts, {idle} idle"
    if rules.hosts == "simple":
        action = by_idle_hosts(k, idle, most, rules.idle)
    else:
        learner = RegionLearner(most, rules.w_d)
        if learnt is None or learnt.tables.form != learner.form:
            learnt = inherited(ONE, memory.left, learner.form, learner.weights)
        view = RegionView(k, idle, sum(free.values()), use, refused)
        proposal, learnt = learner.decide(view, learnt)
        action = proposal.action
        q = ", ".join(f"{at} {q:.3f}" for at, q in zip("0-+", proposal.q, strict=True))
        told += f", used {use:.0%}, Q of {q}"
    if pool.refused:
        told += f" (refused: {pool.refused})"
    return max(1, k + action), learnt, (told,)
