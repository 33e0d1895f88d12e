"""Where results depend on the order of tuples, or on event time: what a pipeline must not do there.

Several instances of an operator mix the order of what passes through them. That is refused where
it would change results (`bound`), before anything starts; what cannot be decided from the graph is
a warning (`warnings`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.runtime.plan.place import ANYWHERE
from anabranch.runtime.policies.policy import Scale

if TYPE_CHECKING:
    from anabranch.protocol.ids import OperatorName
    from anabranch.runtime.plan.operator import Operator

    Operators = Mapping[OperatorName, Operator]


def bound(operators: Operators) -> dict[str, str]:
    """Operators that must stay at one instance, each with the reason."""
    reasons: dict[str, str] = {}
    for operator in operators.values():
        if _reads_time_in_order(operators, operator):
            for name in (operator.name, *_before(operators, operator)):
                reasons.setdefault(name, _TIME.format(operator.name))
        if operator.keyed is not None and operator.keyed.needs_order:
            for name in _before(operators, operator, by_key=False):
                reasons.setdefault(name, _ORDER.format(operator.name, operator.keyed.what, name))
    return reasons


_TIME = (
    "event time is read at {!r} with disorder_s=0, and several instances mix the order of tuples, "
    "so many would be late; call .event_time(...) further up, behind an operator with one "
    "instance, or give a disorder_s that covers how far the instances are apart"
)
_ORDER = (
    "results of {!r} ({}) depend on the order of tuples, and several instances mix it; keep it at "
    "one instance, or let it work by the same key: .key_by(fn, ordered=True).process({!r}, ...) "
    "keeps the order of each key"
)


def refusal(operators: Operators) -> str:
    """Why a pipeline cannot be run as it is; empty if it can."""
    for name, reason in bound(operators).items():
        operator = next(o for o in operators.values() if o.name == name)
        if (most := _instances_max(operator)) > 1:
            return f"operator {name!r} may have {most} instances, but {reason}"
    return ""


def warnings(
    operators: Operators, duplicated: Iterable[str] = (), *, several_hosts: bool = False
) -> list[str]:
    """What may be meant, but is often a mistake. `duplicated`: operators that a scale script gives
    several instances, whatever their own settings are. `several_hosts`: whether the run may use
    some."""
    operators = {
        name: _with_several(one) if name in duplicated else one for name, one in operators.items()
    }
    found: list[str] = []
    for operator in operators.values():
        found += _without_time(operators, operator)
        found += _with_much_disorder(operators, operator)
        found += _by_other_keys(operators, operator)
        found += _sessions_of_mixed(operators, operator)
        found += _perhaps_in_order(operators, operator)
    return found if several_hosts else found + _on_one_host(operators)


def _on_one_host(operators: Operators) -> list[str]:
    wanting = [repr(str(o.name)) for o in operators.values() if o.place != ANYWHERE]
    if not wanting:
        return []
    told = f"operator {wanting[0]}" if len(wanting) == 1 else f"operators {', '.join(wanting)}"
    return [f"{told}: place counts where agents run the pipeline (anabranch submit), not here"]


def _with_several(operator: Operator) -> Operator:
    if _instances_max(operator) > 1:
        return operator
    return replace(operator, scale=Scale(max_instances=2))


def _without_time(operators: Operators, operator: Operator) -> Iterator[str]:
    if operator.keyed is None or not operator.keyed.ends_by_time:
        return
    timeless = [
        source
        for source in (operators[name] for name in _before(operators, operator, timed=False))
        if source.source is not None and source.timing is None
    ]
    if timeless:
        sources = ", ".join(repr(str(source.name)) for source in timeless)
        endless = any(s.source is not None and not s.source.bounded for s in timeless)
        yield (
            f"operator {operator.name!r}: no windows end before the stream does, for nothing says "
            f"how far event time is in the tuples of {sources}"
            f"{', which do not end by themselves' if endless else ''}; window(..., time=fn) only "
            "says to which window a tuple belongs: call .event_time(fn, ...) on the stream, too"
        )


def _with_much_disorder(operators: Operators, operator: Operator) -> Iterator[str]:
    timing = operator.timing
    if timing is None or not timing.disorder_s or not _asks_behind(operators, operator):
        return
    for name in (operator.name, *_before(operators, operator)):
        if (most := _instances_max(operators[name])) > 1:
            yield (
                f"operator {name!r} may have {most} instances, and event time is read at "
                f"{operator.name!r}: tuples are late unless disorder_s={timing.disorder_s:g} "
                "covers how far these are apart; call .event_time(...) further up, if you can"
            )
            return


def _by_other_keys(operators: Operators, operator: Operator) -> Iterator[str]:
    if operator.keyed is None or not operator.keyed.needs_order:
        return
    before = [operators[name] for name in operator.upstream]
    for one in before:
        if one.keyed is not None and not one.keyed.ordered and _instances_max(one) > 1:
            yield (
                f"operator {operator.name!r} ({operator.keyed.what}) depends on the order of "
                f"tuples, which {one.name!r} keeps for each of its keys only: if both have the "
                "same key, say so there by .key_by(fn, ordered=True), otherwise keep it at one "
                "instance"
            )
    if len(before) > 1:
        yield (
            f"operator {operator.name!r} ({operator.keyed.what}) depends on the order of tuples, "
            "and those of several streams come as they come"
        )


def _sessions_of_mixed(operators: Operators, operator: Operator) -> Iterator[str]:
    if operator.keyed is None or not operator.keyed.makes_sessions:
        return
    for name in _before(operators, operator, timed=False):
        one = operators[name]
        keeps_order = one.keyed is not None and one.keyed.ordered
        if not keeps_order and (most := _instances_max(one)) > 1:
            yield (
                f"operator {operator.name!r} ({operator.keyed.what}): which session a tuple joins "
                "that is late by more than lateness_s depends on the order of tuples, and "
                f"{name!r} may have {most} instances, which mix it; raise disorder_s of "
                f".event_time(...) or lateness_s until no tuple is so late, or keep {name!r} at "
                "one instance"
            )
            return


def _perhaps_in_order(operators: Operators, operator: Operator) -> Iterator[str]:
    if operator.keyed is None or not operator.keyed.may_need_order or operator.keyed.needs_order:
        return
    mixed = _mixed(operators, operator)
    if mixed:
        yield (
            f"operator {operator.name!r} ({operator.keyed.what}): results may depend on the order "
            f"of each key's tuples, and {mixed}; if they do not, as those of counts and sums, say "
            "so by .key_by(fn, ordered=False)"
        )


def _mixed(operators: Operators, operator: Operator) -> str:
    """What mixes the order before an operator, and what to do about it; empty if nothing does."""
    left, seen = [operator], set[str]()
    while left:
        one = left.pop(0)
        if one.name in seen or (one is not operator and one.keyed and one.keyed.ordered):
            continue
        seen.add(one.name)
        if one is not operator and (most := _instances_max(one)) > 1:
            return (
                f"{one.name!r} may have {most} instances, which mix it: keep it at one instance, "
                "or let it work by the same key, with .key_by(fn, ordered=True) at both"
            )
        if len(one.upstream) > 1:
            streams = " and ".join(repr(str(name)) for name in one.upstream)
            return (
                f"those of {streams} come as they come: where it matters, take "
                f"{'.join(...) with a window' if one.keyed else 'one stream of both'}"
            )
        left += [operators[name] for name in one.upstream]
    return ""


def _reads_time_in_order(operators: Operators, operator: Operator) -> bool:
    timing = operator.timing
    return timing is not None and not timing.disorder_s and _asks_behind(operators, operator)


def _asks_behind(operators: Operators, operator: Operator) -> bool:
    """Whether an operator further down needs the event time that is read here."""
    for other in operators.values():
        if operator.name in other.upstream:
            if other.keyed is not None and other.keyed.asks_for_time:
                return True
            if other.timing is None and _asks_behind(operators, other):
                return True
    return False


def _before(
    operators: Operators, operator: Operator, *, by_key: bool = True, timed: bool = True
) -> list[OperatorName]:
    """All that lie before it. `by_key`, `timed`: also, and also behind, those that work by key, and
    that read event time."""
    found: dict[OperatorName, None] = {}
    left = [*operator.upstream]
    while left:
        name = left.pop()
        one = operators[name]
        if name in found or (one.keyed and not by_key) or (one.timing and not timed):
            continue
        found[name] = None
        left += one.upstream
    return [*found]


def _instances_max(operator: Operator) -> int:
    return operator.scale.max_instances if operator.scale else 1
