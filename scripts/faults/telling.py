"""The report of a run of chaos for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def show(told: dict[str, Any], command: str, folder: str, console: Console) -> None:
    """`told`: the report as JSON. `command` repeats the run."""
    from rich.table import Table

    console.print(
        f"seed {told['seed']}, {told['seconds']['faults']:g} s of faults over {told['transport']} "
        f"sockets, {told['seconds']['whole']:g} s in all"
    )
    table = Table("fault", "planned", "hit", "what", box=None, pad_edge=False)
    for kind, counts in told["injected"].items():
        table.add_row(kind, str(counts["planned"]), str(counts["hit"]), counts["what"])
    console.print(table)
    console.print(
        f"{told['died']} deaths noticed, {told['resumed']} instances resumed, "
        f"{told['joined']} joined, {told['left']} left; hit just after their own decision: "
        + ", ".join(f"{n} {kind}s" for kind, n in told["hit_in_the_middle"].items())
    )
    console.print("in this order: " + "; ".join(told["in_order"]), highlight=False)
    _show_times(told["recovery_ms"], console)
    health, results = told["health"], told["results"]
    largest = max(health["instance_mib_max"].values(), default=0)
    console.print(
        f"at most {health['instances_max']} instances; agent {health['agent_mib_max']} MiB and "
        f"{health['agent_files_max']} files, instances {largest} MiB and "
        f"{health['instance_files_max']} files; journals {health['state_mib_max']} MiB"
    )
    console.print(
        f"{results['found']:,} results, {results['per_second']:,}/s: {results['lost']:,} lost, "
        f"{results['doubled']:,} doubled, {results['out_of_order']:,} out of order, "
        f"{results['wrong_keys']:,} keys with a wrong state"
    )
    for operator, tuples in results["blamed"].items():
        console.print(
            f"{operator}: {tuples} taken for the reason of kills: dead letters",
            markup=False,
        )
    for fault in told["faults"]:
        console.print(f"NOT RIGHT: {fault}", style="red", markup=False, highlight=False)
    if not told["right"]:
        console.print(f"all of it is in {folder}; again: {command}", markup=False, soft_wrap=True)
    console.print("everything is right" if told["right"] else "NOT everything is right")


def _show_times(times: dict[str, dict[str, float]], console: Console) -> None:
    from rich.table import Table

    table = Table("milliseconds from the blow", box=None, pad_edge=False)
    for name in ("p50", "p90", "p99", "max"):
        table.add_column(name, justify="right")
    words = {
        "noticed": "until the death was noticed",
        "resumed": "until it was resumed",
        "first_tuple": "until its next process had a tuple",
        "agent_gone": "until nothing was left of a run",
        "agent_resumed": "from the next agent's start until the run went on",
    }
    for what, text in words.items():
        if found := times[what]:
            table.add_row(text, *(f"{value:,.0f}" for value in found.values()))
    if table.row_count:
        console.print(table)
