"""Which part of a pipeline is done in which section of a Spark job: pure, without Spark.

A job is a row of **sections** with a shuffle before each but the first. A section is one Python
function over the rows of a partition, and does all operators whose tuples are there. What needs
its tuples together begins a new section: an operator with keys, whose tuples come by *bucket* (a
fixed part of its key groups), and the reading of event time, which needs the tuples of all tasks
in their order and so is done by one.

Rows for later sections pass through. So nothing is computed twice, however a stream branches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.processing.marks import marked_ways

TIME = "@time"
"""Behind the name of an operator: the reading of event time from its results."""


@dataclass(frozen=True, slots=True)
class Station:
    """Something that takes tuples: an operator, or the reading of event time from its results.

    `number`: its place in the pipeline; rows name it by that. `inputs` and `outputs`: the stations
    before and behind it. `together`: its tuples come to it by bucket, in their order; the buckets
    of one that reads event time are one. `alone`: it is such a one.
    """

    name: str
    number: int
    operator: OperatorName
    section: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    together: bool = False
    alone: bool = False
    reads_time: bool = False
    traced: bool = False
    """Whether it must be known of each result which tuple it was made of: marks or places of tuples
    are asked for behind."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All stations by name, in the order of the pipeline."""

    stations: Mapping[str, Station]
    marked: frozenset[tuple[str, str]]
    """The ways by which marks travel, between stations."""
    by_number: Mapping[int, Station] = field(default_factory=dict)

    @property
    def sections(self) -> int:
        return 1 + max(station.section for station in self.stations.values())

    def of_section(self, number: int) -> list[Station]:
        return [s for s in self.stations.values() if s.section == number]

    @property
    def keeping(self) -> list[Station]:
        """Those that keep something from one tuple to the next: state of keys, or event time."""
        return [s for s in self.stations.values() if s.together]


def mapped(operators: Mapping[OperatorName, Operator]) -> Plan:
    """Where each operator of a valid pipeline is done."""
    drafts = _drafts(operators)
    outputs: dict[str, list[str]] = {name: [] for name in drafts}
    for draft in drafts.values():
        for before in draft.inputs:
            outputs[before].append(draft.name)
    marked = _marked(operators, drafts)
    traced = _traced(drafts, outputs, marked)
    stations = {
        name: Station(
            name,
            draft.number,
            draft.operator,
            draft.section,
            draft.inputs,
            tuple(outputs[name]),
            draft.together,
            draft.alone,
            draft.reads_time,
            name in traced,
        )
        for name, draft in drafts.items()
    }
    return Plan(stations, marked, {s.number: s for s in stations.values()})


def _drafts(operators: Mapping[OperatorName, Operator]) -> dict[str, Station]:
    """The stations without what lies behind them; each comes behind those before it."""
    asked_for = {upstream for upstream, _ in marked_ways(operators)}
    drafts: dict[str, Station] = {}
    exits: dict[OperatorName, str] = {}
    for operator in operators.values():
        name, inputs = operator.name, tuple(exits[u] for u in operator.upstream)
        before = max((drafts[i].section for i in inputs), default=0)
        keyed = bool(operator.edges)
        drafts[name] = Station(name, len(drafts), name, before + keyed, inputs, together=keyed)
        exits[name] = name
        if operator.timing is not None:
            # Where no station asks for marks, times are only looked at for tuples that have none.
            alone = name in asked_for
            drafts[name + TIME] = Station(
                name + TIME,
                len(drafts),
                name,
                before + keyed + alone,
                (name,),
                together=alone,
                alone=alone,
                reads_time=True,
            )
            exits[name] = OperatorName(name + TIME)
    return drafts


def _marked(
    operators: Mapping[OperatorName, Operator], drafts: Mapping[str, Station]
) -> frozenset[tuple[str, str]]:
    ways: set[tuple[str, str]] = set()
    for upstream, operator in marked_ways(operators):
        exit_ = upstream + TIME if upstream + TIME in drafts else upstream
        ways.add((exit_, operator))
    # Marks that come to an operator which reads event time anew end there.
    return frozenset(ways)


def _traced(
    drafts: Mapping[str, Station],
    outputs: Mapping[str, list[str]],
    marked: frozenset[tuple[str, str]],
) -> set[str]:
    """Operators whose successors want marks, or places of single tuples. An operator that takes
    tuples in order, and to which several ways lead, asks for places."""
    several: set[str] = set()
    for draft in drafts.values():
        ways = [i for i in draft.inputs if i in several and not drafts[i].together]
        if len(draft.inputs) > 1 or ways:
            several.add(draft.name)
    wanting: set[str] = set()
    for name in reversed([*drafts]):
        for behind in outputs[name]:
            in_order = drafts[behind].together and behind in several
            passes_on = not drafts[behind].together and behind in wanting
            if in_order or passes_on or (name, behind) in marked:
                wanting.add(name)
    return wanting


def buckets_of(station: Station, groups: int, partitions: int) -> int:
    """How many buckets the tuples of a station have."""
    return 1 if station.alone else min(groups, partitions)


def bucket_of(group: int, buckets: int) -> int:
    return group % buckets
