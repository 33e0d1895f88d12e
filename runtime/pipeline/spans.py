"""Which operators of a pipeline choose tuples by event time, when a run takes only a span of it."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.plan.spec import Span, time_text
from anabranch.runtime.values.checks import PipelineError

Operators = Mapping[OperatorName, Operator]
Moment = str | float | datetime
"""A date or a time as ISO 8601 has them, seconds, or a `datetime`. Without a zone it is UTC."""


def span_of(start: Moment, end: Moment) -> Span:
    """Raises `PipelineError`."""
    span = Span(seconds_of(start), seconds_of(end))
    if not span.start < span.end:
        raise PipelineError(
            f"a span has to begin before it ends, and this is from {time_text(span.start)} to "
            f"{time_text(span.end)}"
        )
    return span


def seconds_of(moment: Moment) -> float:
    """Since 1970. Raises `PipelineError`."""
    try:
        at = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
        if isinstance(at, datetime):
            at = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        seconds = float(at)
        time_text(seconds)  # in the years that there are
    except (TypeError, ValueError, OverflowError, OSError):
        raise PipelineError(
            f"{moment!r} is no date: expected one such as 2026-01-31, or a time such as "
            "2026-01-31T12:00, which are UTC, or 2026-01-31T12:00+02:00"
        ) from None
    return seconds


def within(operators: Operators, span: Span | None) -> dict[OperatorName, Operator]:
    """The same operators, those which are the first to read event time leave out what is not in
    the span."""
    if span is None:
        return dict(operators)
    first = _first_readers(operators)
    return {name: _choosing(o, span) if name in first else o for name, o in operators.items()}


def _choosing(operator: Operator, span: Span) -> Operator:
    assert operator.timing is not None
    return replace(operator, timing=replace(operator.timing, span=span))


def check_chosen(operators: Operators) -> None:
    """Raise `PipelineError` if tuples get to a state or to a sink, and event time was not read from
    them on the way: then it is not known whether they are in a span."""
    read = _read_behind(operators)
    for name, operator in operators.items():
        if not (operator.edges or operator.sink is not None):
            continue
        if unread := next((u for u in operator.upstream if not read[u]), None):
            source = _source_of(operators, read, unread)
            raise PipelineError(
                f"operator {name!r} gets tuples of source {source!r} whose event time is not read "
                "on the way, so it is not known which of them are in the span; call "
                f".event_time(...) on the stream before {name!r}"
            )


def check_backfill(operators: Operators, given: Container[str] = ()) -> None:
    """Raise `PipelineError` unless a backfill of this pipeline can be made. `given`: sources whose
    tuples come from elsewhere, and end."""
    check_chosen(operators)
    for name, operator in operators.items():
        source = operator.source
        if source is None or name in given or (source.bounded and source.service is None):
            continue
        raise PipelineError(
            f"source {name!r} has no end, and a backfill reads to the end of its input; say which "
            f"files have the tuples of the span: --input {name}=PATH"
        )


def _first_readers(operators: Operators) -> frozenset[OperatorName]:
    read = _read_behind(operators)
    return frozenset(
        name
        for name, operator in operators.items()
        if operator.timing is not None and not (operator.upstream and _all_read(operator, read))
    )


def _read_behind(operators: Operators) -> dict[OperatorName, bool]:
    """By operator: whether event time was read, here or before, from all that comes out of it."""
    read: dict[OperatorName, bool] = {}
    for name, operator in operators.items():
        before = bool(operator.upstream) and _all_read(operator, read)
        read[name] = before or operator.timing is not None
    return read


def _all_read(operator: Operator, read: Mapping[OperatorName, bool]) -> bool:
    return all(read[upstream] for upstream in operator.upstream)


def _source_of(
    operators: Operators, read: Mapping[OperatorName, bool], name: OperatorName
) -> OperatorName:
    """Where tuples come from that get there without a time."""
    upstream: Iterator[OperatorName] = (u for u in operators[name].upstream if not read[u])
    before = next(upstream, None)
    return name if before is None else _source_of(operators, read, before)
