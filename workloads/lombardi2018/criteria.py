"""The criteria of the figures (section 3 of the specification), judged of means over seeds."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

import numpy as np

from anabranch.runtime.policies.elysium.learnt_bounds import best_share
from anabranch.workloads.experiments.judging import Criterion, rising
from anabranch.workloads.lombardi2018.courses import Course
from anabranch.workloads.lombardi2018.field import (
    JOINT,
    NETWORK,
    PROACTIVE,
    REACTIVE,
    UNCONTROLLED,
    UNCONTROLLED_SOON,
)
from anabranch.workloads.lombardi2018.results import Evaluation

EDGE_S, FALL_S, PEAK = 120.0, 360.0, 1300.0
SUSTAINED, BIN_S = 0.9, 10.0
PROFILE_ERROR = 0.03
CLOSE_SAVED = 15.0


def criteria_of(found: Evaluation) -> Iterator[Criterion]:
    yield from _thresholds(found)
    yield from _periods_and_profiles(found)
    yield from _filter(found)
    scenes = found.scenes("main")
    if "T1 step" in scenes:
        yield from _step(found)
    yield from _without_noise(found)
    yield from _figure_9(found, scenes)
    if "T1 sine" in scenes:
        latency = [found.mean("main", "T1 sine", c, "latency") for c in ("R", "joint")]
        figure = "{:.1f} s, {:.1f} s".format(*latency)
        yield Criterion("Figure 11: on the sine R's mean latency is not above joint's",
                        latency[0] <= latency[1], figure)  # fmt: skip
    yield from _steady(found)
    if "T1 square" in scenes:
        yield _proactive(found, PROACTIVE.name)
        if found.of("main", "T1 square", NETWORK.name):
            yield _proactive(found, NETWORK.name)
    for ours in (UNCONTROLLED.name, UNCONTROLLED_SOON.name):
        yield _better(found, scenes, ours)


def _thresholds(found: Evaluation) -> Iterator[Criterion]:
    for background, learnt in found.learnt.items():
        rewards = {t.share: t.reward for t in found.thresholds if t.background == background}
        best = best_share(rewards)
        yield Criterion(
            f"Figure 6a, b, {background:g} cores of background: the learner finds what the sweep "
            "finds",
            # Two that are worth the same are the same to it.
            learnt == best or rewards[best] - rewards[learnt] < 0.01,
            f"{learnt:g}, {best:g}",
        )


def knee(found: Evaluation, background: float) -> float | None:
    """The share from which on more usage is worth less; None if it never is."""
    some = [t for t in found.thresholds if t.background == background]
    best = max(some, key=lambda t: t.reward)
    return None if best is some[-1] else best.share


def _periods_and_profiles(found: Evaluation) -> Iterator[Criterion]:
    (scene,) = found.scenes("periods")
    by_period = [
        found.mean("periods", scene, c, "degradation") for c in found.contestants("periods")
    ]
    yield Criterion("Figure 6c: degradation falls as the period grows, where each ends with a "
                    "restart", rising(by_period[::-1]), _listed(by_period))  # fmt: skip
    for model in dict.fromkeys(e.model for e in found.profile_errors):
        worst = max(e.held_out for e in found.profile_errors if e.model == model)
        yield Criterion(f"Figure 7: as a {model} a profile errs by less than {PROFILE_ERROR:.0%} "
                        "of a core on records that it has not seen",
                        worst < PROFILE_ERROR, f"{worst:.2%} at most")  # fmt: skip


def _filter(found: Evaluation) -> Iterator[Criterion]:
    (scene,) = found.scenes("filter")
    static, scaled = found.contestants("filter")
    courses = {contestant: course for _, contestant, course in found.courses("filter")}
    yield _only_the_filter(courses[scaled])
    both = [found.mean("filter", scene, c, "degradation") for c in (scaled, static)]
    yield Criterion("Figure 10a: less degradation than static", both[0] < both[1], _listed(both))


def _only_the_filter(course: Course, suffix: str = "") -> Criterion:
    changed = sorted(name for name, sizes in course.sizes.items() if float(np.ptp(sizes)) > 0)
    return Criterion(f"Figure 10a: only stopWordFilter changes{suffix}",
                     changed == ["stopWordFilter"], ", ".join(changed) or "nothing")  # fmt: skip


def _without_noise(found: Evaluation) -> Iterator[Criterion]:
    for scene, _, course in found.courses("exact"):
        suffix = ", load without noise"
        yield (
            _once_for_each_edge(course, suffix)
            if "step" in scene
            else _only_the_filter(course, suffix)
        )


def sustained_s(course: Course) -> float:
    """Seconds from the edge until tweets are done as fast as they come."""
    acked, offered = course.acked.sum(axis=1), course.offered.sum(axis=1)
    begin, end = round(EDGE_S / BIN_S), round(FALL_S / BIN_S)
    for at in range(begin, end - 2):
        if (acked[at : at + 3] >= SUSTAINED * offered[at : at + 3]).all():
            return at * BIN_S - EDGE_S
    return FALL_S - EDGE_S


def _step(found: Evaluation) -> Iterator[Criterion]:
    courses = {c: course for scene, c, course in found.courses("main") if scene == "T1 step"}
    fast, slow = (sustained_s(courses[c]) for c in (REACTIVE.name, JOINT.name))
    yield Criterion("Figure 10b, c: R sustains the peak first", fast < slow,
                    f"R {fast:.0f} s, joint {slow:.0f} s after the edge, first seed")  # fmt: skip
    yield _once_for_each_edge(courses[REACTIVE.name])


def _once_for_each_edge(course: Course, suffix: str = "") -> Criterion:
    up = [at for at in course.changes if EDGE_S < at <= FALL_S]
    down = [at for at in course.changes if at > FALL_S]
    return Criterion(f"Figure 10b: R reconfigures once for each edge{suffix}",
                     len(up) == len(down) == 1,
                     f"at {', '.join(f'{at:.0f}' for at in course.changes)} s")  # fmt: skip


def _figure_9(found: Evaluation, scenes: list[str]) -> Iterator[Criterion]:
    dominated, less, more = [], [], []
    for scene in scenes:
        (td, ns), (td_joint, ns_joint) = (
            [found.mean("main", scene, c, figure) for figure in ("degradation", "saved")]
            for c in (REACTIVE.name, JOINT.name)
        )
        if td_joint <= td and ns_joint >= ns and (td_joint, ns_joint) != (td, ns):
            dominated.append(scene)
        if td < td_joint:
            less.append(scene)
        if ns > ns_joint:
            more.append(scene)
    yield Criterion("Figure 9: R is nowhere dominated by joint", not dominated,
                    ", ".join(dominated) or "nowhere")  # fmt: skip
    for what, some in (("degrades less", less), ("saves more hosts", more)):
        yield Criterion(f"Figure 9: at most loads R {what} than joint",
                        2 * len(some) > len(scenes), f"{len(some)} of {len(scenes)}")  # fmt: skip


def _steady(found: Evaluation) -> Iterator[Criterion]:
    for scene in found.scenes("steady")[::-1]:
        for contestant in found.contestants("steady"):
            runs = found.of("steady", scene, contestant)
            if runs:
                hosts = fmean(one.scores.hosts_of_first for one in runs)
                yield Criterion(f"Figure 12: T1 at 200/s always has one host ({scene}, "
                                f"{contestant})", hosts == 1.0, f"{hosts:.2f}")  # fmt: skip


def _proactive(found: Evaluation, name: str) -> Criterion:
    (td, ns), (td_r, ns_r) = (
        [found.mean("main", "T1 square", c, figure) for figure in ("degradation", "saved")]
        for c in (name, REACTIVE.name)
    )
    what = f"Figure 13: on the square {name} degrades less than R, saves within {CLOSE_SAVED:.0f} %"
    met = td < td_r and abs(ns - ns_r) <= CLOSE_SAVED
    return Criterion(what, met, f"{td:.2f} and {td_r:.2f}; {ns:.0f} and {ns_r:.0f} %")


def _better(found: Evaluation, scenes: list[str], ours: str) -> Criterion:
    worse = [
        scene
        for scene in scenes
        if found.mean("main", scene, ours, "degradation")
        >= found.mean("main", scene, REACTIVE.name, "degradation")
        or found.mean("main", scene, ours, "saved")
        < found.mean("main", scene, REACTIVE.name, "saved")
    ]
    what = f"better than R at every load: {ours} degrades less and saves at least as many hosts"
    return Criterion(what, not worse, f"not on {', '.join(worse)}" if worse else "everywhere")


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)
