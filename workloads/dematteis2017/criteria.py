"""The criteria C1 to C6 (3.2), judged of means over runs."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.workloads.dematteis2017.contestants import PUBLISHED
from anabranch.workloads.dematteis2017.results import Results
from anabranch.workloads.experiments.judging import Criterion, listed, rising

TIE = 1.0
"""Means closer than this are equal, where a criterion allows ties."""
SWITCHING = ("Sw 1", "Sw 2", "Sw 3")


def criteria_of(found: Results, *, sizes: bool = False) -> list[Criterion]:
    """Which contestant is better than which, as far as they are there; how much better (`sizes`) is
    published for load b in the paper's own surroundings only."""
    return [*_orders(found), *(_sizes(found) if sizes else ())]


def _orders(found: Results) -> Iterator[Criterion]:
    there = [name for name in PUBLISHED if name in found.runs]
    switching = [name for name in SWITCHING if name in there]
    v, n, a, j, r, p = (
        {name: found.mean(name, figure) for name in there}
        for figure in (
            "violations", "instances", "amplitude", "jitter_ms", "reconfigurations", "p95_ms",
        )
    )  # fmt: skip
    if not {"peak", "Sw 1", "rules", "NoSw"} <= {*there}:
        return
    order = ["peak", *switching]
    yield Criterion(f"C1: violations: {' ≤ '.join(order)} < rules < NoSw",
                    rising([v[name] for name in order], TIE)
                    and v[order[-1]] < v["rules"] < v["NoSw"],
                    listed(v, (*order, "rules", "NoSw")))  # fmt: skip
    order = switching[::-1]
    yield Criterion(f"C2: instances: rules < NoSw < {' ≤ '.join(order)}",
                    n["rules"] < n["NoSw"] < n[order[0]]
                    and rising([n[name] for name in order], TIE),
                    listed(n, ("rules", "NoSw", *order)))  # fmt: skip
    yield Criterion("C3: amplitude: Sw 1 < NoSw", a["Sw 1"] < a["NoSw"],
                    listed(a, ("Sw 1", "NoSw")))  # fmt: skip
    yield Criterion("C4: jitter in ms: Sw 1 < NoSw", j["Sw 1"] < j["NoSw"],
                    listed(j, ("Sw 1", "NoSw")))  # fmt: skip
    others = [name for name in ("NoSw", "Sw 2", "Sw 3") if name in there]
    yield Criterion("C5: of the predictive ones, Sw 1 reconfigures least",
                    all(r["Sw 1"] < r[name] for name in others),
                    listed(r, ("Sw 1", *others)))  # fmt: skip
    yield Criterion("C6: p95 in ms: each Sw < NoSw", max(p[name] for name in switching) < p["NoSw"],
                    listed(p, (*switching, "NoSw")))  # fmt: skip


def _sizes(found: Results) -> Iterator[Criterion]:
    more = (found.mean("Sw 1", "violations") - found.mean("peak", "violations")) / found.steps
    yield Criterion("C1: Sw 1 violates at most 10 % of steps more than peak", more <= 0.1,
                    f"{more:.1%}")  # fmt: skip
    saved = min(found.saved(name) for name in SWITCHING)
    yield Criterion("C2: each Sw saves at least 25 % of the instances", saved >= 0.25,
                    f"{saved:.1%}")  # fmt: skip
    for what, figure, least in (
        ("C3: NoSw's amplitude is at least 3 times that of Sw 1", "amplitude", 3.0),
        ("C4: NoSw's jitter is at least twice that of Sw 1", "jitter_ms", 2.0),
    ):
        times = found.mean("NoSw", figure) / found.mean("Sw 1", figure)
        yield Criterion(what, times >= least, f"{times:.2f} times")
    most = max(found.mean(name, "p95_ms") for name in SWITCHING) / found.mean("NoSw", "p95_ms")
    yield Criterion("C6: the p95 of each Sw is at most 0.6 times NoSw's", most <= 0.6,
                    f"{most:.2f} times")  # fmt: skip
