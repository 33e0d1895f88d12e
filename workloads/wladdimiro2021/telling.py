"""The evaluation as Markdown: the paper beside ours, and the criteria in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import starmap
from typing import Any

from anabranch.workloads.experiments.judging import judged, plain, table
from anabranch.workloads.wladdimiro2021.evaluation import Evaluation, Row
from anabranch.workloads.wladdimiro2021.levels import LevelEvaluation
from anabranch.workloads.wladdimiro2021.levels import LevelRow as LevelRow
from anabranch.workloads.wladdimiro2021.starts import POOL, Start

READINGS = {
    "P": "whole windows, a state must hold for two",
    "R": "five samples of a window, as the authors' program does",
    "L": "the letter of Algorithm 1",
    "static": "what always suffices, unchanged",
}


def whole(evaluation: Evaluation) -> str:
    return (
        "\n".join([*_table(evaluation), "", *judged(evaluation.criteria), *_sweep(evaluation)])
        + "\n"
    )


def _table(evaluation: Evaluation) -> Iterator[str]:
    yield "Step model of one second; queues are counted, rates, times and hosts are substituted."
    yield ""
    yield "| table, metric | reading | saved | degradation | processed | latency | paper |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | --- |"
    for row in evaluation.rows:
        yield _line(row)
    yield ""
    for reading, words in READINGS.items():
        yield f"- {reading}: {words}"


def _line(row: Row) -> str:
    s, paper = row.scores, row.case.published
    theirs = "" if paper is None else "{:.3f} / {:.3f} / {:.3f} / {:g} s".format(*paper)
    return (
        f"| {row.case.name} | {row.case.by} | {s.saved:.3f} | {row.degradation:.3f} "
        f"| {s.processed:.3f} | {s.latency_s:.1f} s | {theirs} |"
    )


def _sweep(evaluation: Evaluation) -> Iterator[str]:
    if evaluation.sweep:
        told = ", ".join(f"{metric} on {n}" for metric, n in evaluation.sweep.items())
        yield f"- of 24 hosts, replicas saved are below nothing for {told} (reading P)"


def numbers(evaluation: Evaluation) -> dict[str, object]:
    return {
        "rows": [{**row, "paper": r.case.published} for row, r in _with_figures(evaluation)],
        "criteria": plain(evaluation.criteria),
        "sweep": evaluation.sweep,
    }


def rows(evaluation: Evaluation) -> list[dict[str, Any]]:
    """A table with one row per run."""
    return [row for row, _ in _with_figures(evaluation)]


def _with_figures(evaluation: Evaluation) -> Iterator[tuple[dict[str, Any], Row]]:
    for row in evaluation.rows:
        yield {"case": row.case.name, "reading": row.case.by, **asdict(row.scores)}, row


# -- other levels ----------------------------------------------------------------------------

PAPER = {
    "II, pool": "0.204 / 0.204 / 0.999 / 12.1 s",
    "II, redeployment": "0.204 / 0.403 / 0.863 / 0.9 s",
    "III, δ": "0.400 / 0.109 / 0.891 / 39.7 s",
    "III, U": "-0.893 / 0.260 / 0.740 / 23.4 s",
    "III, Q": "0.498 / 0.683 / 0.317 / 28.8 s",
}
HEADS = {
    "simulated": "The runtime in virtual time, tenfold faster, runs of each: {}. Latencies are "
    "those of the run. Table III without backpressure, as in the paper; others with it.",
    "live": "Processes of this machine, load G to a peak of 600 tuples/s, four operators of 10 ms.",
}

STARTS = (
    f"{POOL - 1} instances more, by processes", "first tuple, median", "last instance",
    "lowest throughput", "longest latency", "memory (PSS)",
)  # fmt: skip


def whole_of_level(found: LevelEvaluation) -> str:
    head = ("table, contestant", "saved", "T2", "T3", "processed", "latency", "paper")
    lines = [HEADS[found.level].format(found.seeds), "", *table(head, map(_of_level, found.rows))]
    if found.starts:
        lines += ["", *table(STARTS, starmap(_of_start, found.starts.items()))]
    return "\n".join([*lines, "", *judged(found.criteria)]) + "\n"


def _of_level(row: LevelRow) -> list[str]:
    s = row.scores
    figures = (f"{value:.3f}" for value in (s.saved, s.t2, s.t3, s.processed))
    return [row.name, *figures, f"{s.latency_s:.2f} s", PAPER.get(row.name, "")]


def _of_start(name: str, start: Start) -> list[str]:
    pss = "" if start.pss_bytes is None else f"{start.pss_bytes / 2**20:.0f} MiB"
    return [
        name, f"{start.median_s:.2f} s", f"{start.first_s[-1]:.2f} s", f"{start.lowest:.2f}",
        f"{start.waited_s:.2f} s", pss,
    ]  # fmt: skip


def rows_of_level(found: LevelEvaluation) -> list[dict[str, Any]]:
    return [{"case": row.name, **asdict(row.scores)} for row in found.rows]


def numbers_of_level(found: LevelEvaluation) -> dict[str, object]:
    return {
        "level": found.level,
        "rows": rows_of_level(found),
        "starts": {name: asdict(start) for name, start in found.starts.items()},
        "criteria": plain(found.criteria),
    }
