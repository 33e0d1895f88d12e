"""The evaluation as Markdown: the paper beside ours, and the criteria in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from anabranch.workloads.experiments.judging import judged, plain, table
from anabranch.workloads.lombardi2018 import published
from anabranch.workloads.lombardi2018.criteria import knee
from anabranch.workloads.lombardi2018.loads import TRACES
from anabranch.workloads.lombardi2018.results import FIGURES, Evaluation, Group

HEAD = (
    "contestant", "paper: TD, nodes saved %", "TD", "nodes saved %", "latency s", "changes",
    "waiting at the end %",
)  # fmt: skip
SHOWN = ("degradation", "saved", "latency", "changes", "waiting")
GROUPS: dict[Group, str] = {
    "main": "Figures 9, 10d to k, 11 and 13",
    "cpu_min": "The baseline by its least usage of a host (EL-G10)",
    "one dimension": "Operators or hosts alone, T1 stair",
    "filter": "Figure 10a",
    "periods": "Figure 6c: a restart at the end of each period",
    "steady": "Figure 12",
    "exact": "Figure 10a to c, one run",
}
NO_TRACES = (
    f"The Twitter loads are left out: --traces FOLDER, with {' and '.join(TRACES.values())}."
)


def whole(found: Evaluation) -> str:
    lines = [
        f"Fluid model in steps of 0.1 s, {found.seeds} {'seed' if found.seeds == 1 else 'seeds'}; "
        "means. TD: degradation of throughput."
    ]
    if _skipped(found):
        lines += ["", NO_TRACES]
    for group, title in GROUPS.items():
        for scene in found.scenes(group):
            lines += ["", f"### {title}: {scene}", "", *table(HEAD, _rows(found, group, scene))]
    lines += ["", "### Table 1: the reward by the share up to which a host may be used", ""]
    lines += [*_thresholds(found), "", *_knees(found)]
    lines += ["", "### Figure 7: error of a profile, in % of a core", "", *_profiles(found)]
    if found.forecast_errors:
        lines += ["", "### Error of forecasts, in % of the mean load", "", *_forecasts(found)]
    return "\n".join([*lines, "", *judged(found.criteria)]) + "\n"


def _rows(found: Evaluation, group: Group, scene: str) -> Iterator[list[str]]:
    for contestant in found.contestants(group):
        if found.of(group, scene, contestant):
            means = [found.mean(group, scene, contestant, figure) for figure in SHOWN]
            cells = [f"{each:.{digits}f}" for each, digits in zip(means, (2, 0, 1, 1, 1),
                                                                  strict=True)]  # fmt: skip
            yield [contestant, _paper(group, scene, contestant), *cells]


def _paper(group: Group, scene: str, contestant: str) -> str:
    pair = published.of(scene, contestant) if group == "main" else None
    if group == "one dimension":
        pair = published.ONE_DIMENSION.get(contestant)
    if group == "periods":
        seconds = 60.0 * float(contestant.split()[1])
        degradation = published.FIGURE_6C.get(seconds)
        return "" if degradation is None else f"{degradation:.2f}"
    return "" if pair is None else f"{pair[0]:.2f}, {pair[1]:.0f}"


def _thresholds(found: Evaluation) -> Iterator[str]:
    backgrounds = [*found.learnt]
    head = ("share", "paper", *(f"ours, {b:g} cores of background" for b in backgrounds))
    rewards = {(t.share, t.background): t.reward for t in found.thresholds}
    yield from table(
        head,
        (
            [f"{share:.2f}", f"{paper:.2f}", *(f"{rewards[share, b]:.2f}" for b in backgrounds)]
            for share, paper in published.TABLE_1.items()
        ),
    )


def _knees(found: Evaluation) -> Iterator[str]:
    for background, learnt in found.learnt.items():
        share = knee(found, background)
        where = f"a knee at {share:.2f}" if share is not None else "no knee: the higher the better"
        yield f"- {background:g} cores of background: {where}; the learner says {learnt:.2f}"


def _profiles(found: Evaluation) -> Iterator[str]:
    models = [*dict.fromkeys(e.model for e in found.profile_errors)]
    head = ("operator", *(f"{m}: {what}" for m in models for what in ("held out", "folds")))
    by = {(e.operator, e.model): e for e in found.profile_errors}
    yield from table(
        head,
        (
            [
                name,
                *(
                    f"{100 * value:.2f}"
                    for model in models
                    for value in (by[name, model].held_out, by[name, model].folds)
                ),
            ]
            for name in dict.fromkeys(e.operator for e in found.profile_errors)
        ),
    )


def _forecasts(found: Evaluation) -> Iterator[str]:
    yield from table(
        ("load, model", *(f"minute {at}" for at in range(1, 6))),
        (
            [f"{e.load}, {e.model}", *(f"{100 * each:.0f}" for each in e.by_minute)]
            for e in found.forecast_errors
        ),
    )


def _skipped(found: Evaluation) -> bool:
    return not any(name in scene for scene in found.scenes("main") for name in TRACES)


def numbers(found: Evaluation) -> dict[str, object]:
    return {
        "seeds": found.seeds,
        "groups": {group: _numbers(found, group) for group in GROUPS},
        "thresholds": [{**asdict(t), "reward": t.reward} for t in found.thresholds],
        "learnt": {f"{b:g}": share for b, share in found.learnt.items()},
        "knees": {f"{b:g}": knee(found, b) for b in found.learnt},
        "profile_errors": [asdict(e) for e in found.profile_errors],
        "forecast_errors": [asdict(e) for e in found.forecast_errors],
        "criteria": plain(found.criteria),
        "skipped": [NO_TRACES] if _skipped(found) else [],
    }


def _numbers(found: Evaluation, group: Group) -> dict[str, object]:
    return {
        scene: {
            contestant: {
                "paper": _paper(group, scene, contestant),
                **{f: found.mean(group, scene, contestant, f) for f in FIGURES},
            }
            for contestant in found.contestants(group)
            if found.of(group, scene, contestant)
        }
        for scene in found.scenes(group)
    }


def rows(found: Evaluation) -> list[dict[str, Any]]:
    """A table with one row per run."""
    return [
        {
            "group": one.group,
            "scene": one.scene,
            "contestant": one.contestant,
            "seed": one.seed,
            "background": one.background,
            **asdict(one.scores),
        }
        for one in found.runs
    ]
