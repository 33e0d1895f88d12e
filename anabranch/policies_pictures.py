"""The comparison of policies as a picture: what each costs and holds, and how some follow loads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.panels import FAINT, OPERATORS, head, new_figure, prepare
from anabranch.workloads.policies_compared.arena import TICK_S
from anabranch.workloads.policies_compared.contestants import DEFAULT, KNOWN
from anabranch.workloads.policies_compared.evaluation import SHOWN, Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COURSES = (DEFAULT, "predictive", "multi-metric, by load", KNOWN)


def draw(evaluation: Evaluation, folder: Path) -> Path:
    """Write policies.svg. Raises `PictureUnavailable` without matplotlib."""
    shown = [s for s in (*SHOWN, *evaluation.recorded[:1]) if s in evaluation.scenes]
    title = "Which policy: violations of the bound against what is paid, means over all loads"
    figure = new_figure(10, 4.5 + 2.4 * len(shown), title)
    import matplotlib

    grid = figure.add_gridspec(1 + len(shown), 1, height_ratios=[2.2, *[1.0] * len(shown)])
    _draw_costs(figure.add_subplot(grid[0]), evaluation)
    for row, scene in enumerate(shown, 1):
        _draw_course(figure.add_subplot(grid[row]), evaluation, scene, named=row == 1)
    path = folder / "policies.svg"
    # Without salt and date the same evaluation is the same file.
    with matplotlib.rc_context({"svg.hashsalt": "anabranch"}):
        figure.savefig(path, metadata={"Date": None})
    return path


def _draw_costs(axes: Axes, evaluation: Evaluation) -> None:
    prepare(axes, 1.0)
    head(axes, "violations of the bound", "share of the seconds")
    most = 0.0
    for i, name in enumerate(evaluation.contestants):
        x, y = evaluation.mean(name, "paid"), 100 * evaluation.mean(name, "violations")
        colour = FAINT if name == KNOWN else OPERATORS[i % len(OPERATORS)]
        axes.scatter(x, y, color=colour, s=60 if name == DEFAULT else 28)
        weight = "bold" if name == DEFAULT else "normal"
        axes.annotate(
            name,
            (x, y),
            xytext=(6, 4 if i % 2 else -10),
            textcoords="offset points",
            fontsize=8.5,
            color=colour,
            fontweight=weight,
        )
        most = max(most, x)
    axes.set_xlim(0, most * 1.15)
    axes.set_ylabel("%")
    axes.set_xlabel("instance-seconds paid")


def _draw_course(axes: Axes, evaluation: Evaluation, scene: str, named: bool) -> None:
    runs = {r.contestant: r for r in evaluation.runs if r.scene == scene and r.seed == 0}
    first = next(iter(runs.values()))
    times = [i * TICK_S for i in range(len(first.load))]
    prepare(axes, times[-1])
    head(axes, f"instances, load {scene}", "dotted: what the load needs; seconds")
    axes.plot(times, first.load, color=FAINT, linewidth=1, linestyle=":")
    for colour, name in zip(OPERATORS, COURSES, strict=False):
        if name in runs:
            axes.step(times, runs[name].instances, color=colour, linewidth=1.2, label=name)
    axes.set_ylim(0, 1.1 * max(float(r.instances.max()) for n, r in runs.items() if n in COURSES))
    if named:
        axes.legend(frameon=False, fontsize=8.5, ncols=4)
