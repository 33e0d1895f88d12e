"""The tables in Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from anabranch.workloads.belkhiria2019.evaluation import (
    CORRECTED,
    LETTER,
    LIMIT,
    NOISY,
    OURS,
    PUBLISHED,
    Evaluation,
    Scores,
)
from anabranch.workloads.belkhiria2019.growth import Row
from anabranch.workloads.belkhiria2019.metrics import Following

MAIN = (LETTER, PUBLISHED, CORRECTED, OURS, LIMIT)
Value = Callable[[Scores], float]


def _of(value: Callable[[Following], float]) -> Value:
    return lambda scores: value(scores.following)


ERROR = "mean \\|accuracy - 1\\|"

ROWS: tuple[tuple[str, str, Value], ...] = (
    (ERROR, ".3f", _of(lambda f: f.error)),
    ("accuracy, median", ".2f", _of(lambda f: f.accuracy_median)),
    ("accuracy, p5", ".2f", _of(lambda f: f.accuracy_p5)),
    ("accuracy, p95", ".2f", _of(lambda f: f.accuracy_p95)),
    ("accuracy, worst of a run", ".2f", _of(lambda f: f.accuracy_worst)),
    ("overshoot: most of a run", ".2f", _of(lambda f: f.overshoot)),
    ("overshoot, max of all", ".1f", _of(lambda f: f.overshoot_max)),
    ("throughput, mean", ".1%", _of(lambda f: f.throughput_mean)),
    ("throughput, p5", ".1%", _of(lambda f: f.throughput_p5)),
    ("throughput, mean of the worst 5 %", ".1%", _of(lambda f: f.throughput_worst_twentieth)),
    ("throughput, worst of a run", ".1%", _of(lambda f: f.throughput_worst)),
    ("instances per operator, mean", ".2f", _of(lambda f: f.instances)),
    ("messages per operator and step, mean", ".2f", _of(lambda f: f.messages)),
    ("messages of a step with any, p95", ".0f", _of(lambda f: f.messages_p95)),
    ("messages of a step, max", ".0f", _of(lambda f: f.messages_max)),
    ("messages of joins / formula", ".2f", _of(lambda f: f.joins_to_formula)),
    ("steps to settle after doubling, mean", ".1f", lambda s: s.settling),
    ("steps to settle after doubling, p95", ".0f", lambda s: s.settling_p95),
    ("never settled", ".0%", lambda s: s.unsettled),
    ("reversals per run at steady load", ".2f", lambda s: s.reversals),
)

SHOWN_WITH_NOISE = (
    ERROR,
    "throughput, p5",
    "messages per operator and step, mean",
    "steps to settle after doubling, mean",
    "reversals per run at steady load",
)

GAPS: tuple[tuple[str, Value], ...] = (
    (ERROR, _of(lambda f: f.error)),
    ("throughput, p5", _of(lambda f: f.throughput_p5)),
    ("throughput, mean of the worst 5 %", _of(lambda f: f.throughput_worst_twentieth)),
    ("steps to settle", lambda s: s.settling),
)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def policies_table(evaluation: Evaluation) -> str:
    return table(
        ["", *MAIN],
        [[name, *(f"{value(evaluation.scores[p]):{form}}" for p in MAIN)]
         for name, form, value in ROWS],
    )  # fmt: skip


def gaps_table(evaluation: Evaluation) -> str:
    """How much of the gap between the published policy and the reactive limit is closed."""

    def cell(value: Value, policy: str) -> str:
        closed = evaluation.closed(value, policy)
        return "no gap" if math.isnan(closed) else f"{closed:.0%}"

    return table(
        ["gap closed", CORRECTED, OURS],
        [[name, cell(value, CORRECTED), cell(value, OURS)] for name, value in GAPS],
    )


def paper_table(evaluation: Evaluation) -> str:
    shown = (PUBLISHED, OURS, LIMIT)

    def row(what: str, paper: str, value: Callable[[Scores], str]) -> list[str]:
        return [what, paper, *(value(evaluation.scores[p]) for p in shown)]

    return table(
        ["", "paper", *shown],
        [
            row("instances at the peak, five operators", "114 for 40,396", _peak),
            row("of the ideal there", f"{114 / (40396 / 350):.2f}", _peak_accuracy),
            row("overshoot", "2.5", lambda s: f"{s.following.overshoot:.2f}"),
            row("worst accuracy", "0.33", lambda s: f"{s.following.accuracy_worst:.2f}"),
            row("worst throughput", "45%", lambda s: f"{s.following.throughput_worst:.0%}"),
            row("messages of a step, p95 and max", "30 and 168", _messages),
        ],
    )


def _peak(scores: Scores) -> str:
    return f"{scores.following.peak_instances:.0f} for {scores.following.peak_load:,.0f}"


def _peak_accuracy(scores: Scores) -> str:
    return f"{scores.following.peak_instances / (scores.following.peak_load / 350):.2f}"


def _messages(scores: Scores) -> str:
    return f"{scores.following.messages_p95:.0f} and {scores.following.messages_max:.0f}"


def noise_table(evaluation: Evaluation) -> str:
    shown = [CORRECTED, *(name for (policy, _), name in NOISY.items() if policy == CORRECTED)]
    shown += [OURS, *(name for (policy, _), name in NOISY.items() if policy == OURS)]
    rows = [
        [name, *(f"{value(evaluation.scores[p]):{form}}" for p in shown)]
        for name, form, value in ROWS
        if name in SHOWN_WITH_NOISE
    ]
    return table(["", *shown], rows)


def traces_table(results: dict[str, dict[str, Following]]) -> str:
    shown = (PUBLISHED, CORRECTED, OURS, LIMIT)

    def cells(value: Callable[[Following], str]) -> Callable[[dict[str, Following]], str]:
        return lambda by: " / ".join(value(by[p]) for p in shown)

    error = cells(lambda f: f"{f.error:.2f}")
    worst = cells(lambda f: f"{f.throughput_worst_twentieth:.0%}")
    count = cells(lambda f: f"{f.instances:.1f}")
    sent = cells(lambda f: f"{f.messages:.1f}")
    head = ["published / corrected / ours / limit", ERROR,
            "worst 5 % throughput", "instances", "messages"]  # fmt: skip
    return table(
        head,
        [[name, error(by), worst(by), count(by), sent(by)] for name, by in results.items()],
    )


def whole(
    evaluation: Evaluation, traces: dict[str, dict[str, Following]], skipped: Sequence[str]
) -> str:
    """Everything, as written to results.md."""
    parts = [
        "# Belkhiria & Tedeschi 2019, section 5, again\n",
        f"{evaluation.seeds} seeds, five operators, {evaluation.setup.steps} steps. "
        "Accuracy: instances over load / (capacity x target).\n",
        policies_table(evaluation),
        "Of the gap between the published policy and the reactive limit:\n",
        gaps_table(evaluation),
        "Beside the paper's numbers. The paper shows one run of a load which it does not define, "
        "and it is not certain which steps its 30 and 168 messages belong to; 30 is what one "
        "batch of two newcomers between 7 + 7 neighbours costs, by its formula:\n",
        paper_table(evaluation),
    ]
    if set(NOISY.values()) <= evaluation.scores.keys():
        parts += [
            "Siblings that do not see the same, since each measures its load a little wrong, anew "
            "in each step (a fifth of the seeds):\n",
            noise_table(evaluation),
        ]
    if traces:
        parts += [
            "Recorded loads, 200 intervals around the highest, mean ten instances:\n",
            traces_table(traces),
        ]
    parts += [f"Skipped: {reason}\n" for reason in skipped]
    return "\n".join(parts)


def growth_table(rows: Sequence[Row]) -> str:
    return table(
        ["policy", "instances", "settles in", "newcomers", "batches", "messages to double",
         "per newcomer", "messages a step at rest", "channels to a neighbour", "computed in"],
        [
            [row.policy, f"{row.instances:,}", f"{row.settling:.0f}", f"{row.newcomers:,}",
             f"{row.batches:,}", f"{row.messages:.3g}", _per(row.messages, row.newcomers),
             f"{row.messages_steady:.3g}", f"{row.channels:.3g}", f"{row.seconds:.1f} s"]
            for row in rows
        ],
    )  # fmt: skip


def _per(messages: float, newcomers: int) -> str:
    return f"{messages / newcomers:,.0f}" if newcomers else "-"
