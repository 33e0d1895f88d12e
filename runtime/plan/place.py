"""Where the instances of an operator may be, as a user writes it: `ab.on(region="plant-2")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.runtime.values.checks import PipelineError


@dataclass(frozen=True, slots=True)
class Location:
    """`region`, `labels`: of hosts on which instances may be. `near`: operators to whose instances
    they are to be as near as possible. `&` joins two."""

    region: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    near: tuple[str, ...] = ()

    def __and__(self, other: object) -> Location:
        if not isinstance(other, Location):
            return NotImplemented
        regions = {r for r in (self.region, other.region) if r is not None}
        if len(regions) > 1:
            first, second = sorted(regions)
            raise PipelineError(f"place: no host is in two regions, {first!r} and {second!r}")
        labels = dict(self.labels)
        for key, value in other.labels:
            if labels.setdefault(key, value) != value:
                raise PipelineError(
                    f"place: no host has two values of the label {key!r}, {labels[key]!r} and "
                    f"{value!r}"
                )
        near = tuple(dict.fromkeys((*self.near, *other.near)))
        return Location(next(iter(regions), None), tuple(sorted(labels.items())), near)


ANYWHERE = Location()


def on(*, region: str | None = None, labels: Mapping[str, str] | None = None) -> Location:
    """Only on hosts of that region, and with all these labels."""
    if region is None and not labels:
        raise PipelineError('on: expected a region or labels, as in ab.on(region="plant-2")')
    if region is not None and (not isinstance(region, str) or not region):
        raise PipelineError(f"on: region must be the name of a region, got {region!r}")
    if labels is not None and not isinstance(labels, Mapping):
        raise PipelineError(f'on: labels must be like {{"camera": "north"}}, got {labels!r}')
    for key, value in (labels or {}).items():
        if not isinstance(key, str) or not isinstance(value, str) or not key:
            raise PipelineError(
                f"on: a label is a text with a text as its value, got {key!r}: {value!r}"
            )
    return Location(region, tuple(sorted((labels or {}).items())))


def near(operator: str) -> Location:
    """As near as possible to an instance of that operator: on its host, else on the one with the
    lowest latency."""
    if not isinstance(operator, str) or not operator:
        raise PipelineError(f"near: expected the name of an operator, got {operator!r}")
    return Location(near=(operator,))
