"""The evaluation as Markdown: the paper beside ours, and the criteria in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from anabranch.workloads.experiments.judging import judged, plain, table
from anabranch.workloads.russorusso2018.evaluation import (
    FIGURES,
    LEARNT_FROM,
    Evaluation,
    Results,
)
from anabranch.workloads.russorusso2018.loads import DAY, RECORDING, SLOTS
from anabranch.workloads.russorusso2018.rows import Figures

TITLES = {
    "1": "Table 1: regions, operators",
    "2": "Table 2: regions that learn, by the weight of a refusal",
    "ours": "Beyond the paper",
}
HEAD = (
    "violations %, changes %, instances, hosts", "paper", "earlier model, paper's trace",
    "earlier model, this load", "ours", "ours from day 6 on",
)  # fmt: skip
OF_ROW = ("violations", "changes", "instances", "hosts")
SYNTHETIC = (
    f"The load is synthetic, the same every day: the recording {RECORDING} is missing (--traces "
    "FOLDER). The earlier model's figures on this load are of the recording."
)


def whole(found: Evaluation) -> str:
    lines = [*_head(found)]
    for title, words in TITLES.items():
        some = [results for results in found.results.values() if results.row.table == title]
        lines += ["", f"### {words}", "", *table(HEAD, map(_line, some))]
    lines += ["", *judged(found.criteria), _fewest(found)]
    return "\n".join(lines) + "\n"


def _head(found: Evaluation) -> Iterator[str]:
    yield (
        f"Step model of a minute, {found.slots:,} slots, {found.seeds} "
        f"{'seed' if found.seeds == 1 else 'seeds'}; means. The earlier model is "
        "an independent one of the same rules, one seed."
    )
    if found.slots < SLOTS:
        yield ""
        yield (
            "A short run: learning takes days of it, so its criteria say less than those of "
            f"{SLOTS:,} slots. What counts as later begins after "
            f"{min(LEARNT_FROM, found.slots // 2) / DAY:.1f} days."
        )
    if not found.recorded:
        yield ""
        yield SYNTHETIC


def _fewest(found: Evaluation) -> str:
    return (
        "- with the load known and changes for nothing, {:.2f} instances and {:.2f} hosts suffice; "
        "{:.2f} and {:.2f} with the bound of each operator".format(
            *found.fewest, *found.fewest_of_operators
        )
    )


def _line(results: Results) -> list[str]:
    row = results.row
    ours = tuple(map(results.mean, OF_ROW))
    later = tuple(results.mean(f"later_{figure}") for figure in OF_ROW)
    return [row.name, *map(_cell, (row.paper, row.first, row.target, ours, later))]


def _cell(figures: Figures | tuple[float, ...] | None) -> str:
    return "" if figures is None else " ".join(f"{value:.2f}" for value in figures)


def numbers(found: Evaluation) -> dict[str, object]:
    return {
        "seeds": found.seeds,
        "slots": found.slots,
        "recorded": found.recorded,
        "rows": [_numbers(results) for results in found.results.values()],
        "criteria": plain(found.criteria),
        "fewest": found.fewest,
        "fewest_of_operators": found.fewest_of_operators,
        "skipped": [] if found.recorded else [SYNTHETIC],
    }


def _numbers(results: Results) -> dict[str, object]:
    row = results.row
    return {
        "row": row.name,
        "table": row.table,
        "paper": row.paper,
        "model_on_the_papers_trace": row.first,
        "model_one_seed": row.target,
        "mean": {figure: results.mean(figure) for figure in FIGURES},
        "deviation": {figure: results.deviation(figure) for figure in FIGURES},
        "cost_by_day": results.by_day("day_costs").tolist(),
        "violations_by_day": results.by_day("day_violations").tolist(),
    }


def rows(found: Evaluation) -> list[dict[str, Any]]:
    """A table with one row per run."""
    return [
        {"row": name, "seed": run.seed, **asdict(run.scores)}
        for name, results in found.results.items()
        for run in results.runs
    ]
