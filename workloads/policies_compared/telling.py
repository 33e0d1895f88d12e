"""The comparison as Markdown and as numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from anabranch.workloads.policies_compared.arena import settings_told
from anabranch.workloads.policies_compared.contestants import BOUND_MS, DEFAULT, KNOWN
from anabranch.workloads.policies_compared.evaluation import Evaluation
from anabranch.workloads.policies_compared.scores import FIGURES

TITLES = {
    "violations": "violations",
    "paid": "instance-seconds",
    "hosts": "host-seconds",
    "error": "mean \\|accuracy - 1\\|",
    "reconfigurations": "reconfigurations",
    "overshoot": "overshoot",
    "settling": "settles in",
    "messages": "messages",
}
_FORMS = {
    "violations": "{:.1%}",
    "paid": "{:,.0f}",
    "hosts": "{:,.0f}",
    "error": "{:.3f}",
    "reconfigurations": "{:.0f}",
    "overshoot": "{:.2f}",
    "settling": "{:.1f} s",
    "messages": "{:,.0f}",
}


def whole(found: Evaluation) -> str:
    lines = [
        f"{len(found.scenes)} loads, {found.seeds} seeds of each, means over all; one operator, "
        f"tuple by tuple, with the real policies and meters. Bound of the mean latency: "
        f"{BOUND_MS:g} ms.",
        "",
        *_table(found),
        "",
        *_verdict(found),
        "",
        "Violations / instance-seconds by load:",
        "",
        *_by_load(found),
        "",
        *(f"Left out: {why}" for why in found.skipped),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _table(found: Evaluation) -> Iterator[str]:
    yield "| policy | " + " | ".join(TITLES[f] for f in FIGURES) + " |"
    yield "| --- " + "| ---: " * len(FIGURES) + "|"
    for name in found.contestants:
        cells = (_cell(f, found.mean(name, f)) for f in FIGURES)
        yield f"| {name} | " + " | ".join(cells) + " |"


def _cell(figure: str, value: float) -> str:
    return "-" if math.isnan(value) else _FORMS[figure].format(value)


def _verdict(found: Evaluation) -> Iterator[str]:
    if DEFAULT in found.contestants:
        by, cheaper = found.dominating(), found.cheaper()
        yield (
            f"At least as good as the default ({DEFAULT}) in all figures, and better in one or "
            f"more: {_listed(by)}."
        )
        yield (
            "At least as good as the default in violations and instance-seconds, and better in one "
            f"or both: {_listed(cheaper)}."
        )
    best = [name for name in found.contestants if name != KNOWN and not found.cheaper(name)]
    yield (
        "No policy is better than these in violations or instance-seconds without being worse in "
        f"the other: {_listed(best)}."
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _by_load(found: Evaluation) -> Iterator[str]:
    yield "| load | " + " | ".join(found.contestants) + " |"
    yield "| --- " + "| ---: " * len(found.contestants) + "|"
    for scene in found.scenes:
        cells = (
            f"{found.mean(name, 'violations', scene):.1%} / {found.mean(name, 'paid', scene):,.0f}"
            for name in found.contestants
        )
        yield f"| {scene} | " + " | ".join(cells) + " |"


def numbers(found: Evaluation) -> dict[str, Any]:
    return {
        "bound_ms": BOUND_MS,
        "setting": settings_told(),
        "seeds": found.seeds,
        "loads": list(found.scenes),
        "default": DEFAULT,
        "dominated_by": found.dominating() if DEFAULT in found.contestants else [],
        "cheaper": found.cheaper() if DEFAULT in found.contestants else [],
        "mean": {
            name: {f: _number(found.mean(name, f)) for f in FIGURES} for name in found.contestants
        },
        "runs": rows(found),
        "skipped": found.skipped,
    }


def rows(found: Evaluation) -> list[dict[str, Any]]:
    """One per run."""
    return [
        {"policy": r.contestant, "load": r.scene, "seed": r.seed} | asdict(r.scores)
        for r in found.runs
    ]


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
