"""What a search has found, as plain values that can be printed or sent between processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import as_completed
from dataclasses import dataclass, replace

from anabranch.runtime.explorer.bulk import Bulk
from anabranch.runtime.explorer.chart import chart
from anabranch.runtime.explorer.copies import explore_copies
from anabranch.runtime.explorer.copies_state import CopyScope
from anabranch.runtime.explorer.coverage import Coverage
from anabranch.runtime.explorer.cuts import CutScope, explore_cuts
from anabranch.runtime.explorer.machine import Machine, Shipped
from anabranch.runtime.explorer.scope import Scope
from anabranch.runtime.explorer.search import Verdict, explore
from anabranch.runtime.explorer.story import rows, told
from anabranch.runtime.values.worker_pool import ctrl_c_held_back, worker_pool

Report = Callable[[str], None]
AnyScope = Scope | CutScope | CopyScope
PROGRESS_S = 2.0


@dataclass(frozen=True, slots=True)
class Summary:
    """`complete`: every state of the scope was visited. `story`, `picture`: the shortest way to
    the fault as text and as SVG, empty if there is none."""

    scope: str
    machine: str
    states: int
    transitions: int
    quiescent: int
    depth: int
    seconds: float
    complete: bool
    fault: str = ""
    steps: int = 0
    story: str = ""
    picture: str = ""
    coverage: Coverage | None = None
    """What was gone through, if that was asked for."""

    @property
    def sound(self) -> bool:
        return self.complete and not self.fault

    @property
    def rate(self) -> float:
        """States per second."""
        return self.states / max(self.seconds, 1e-3)


def summary_of(verdict: Verdict) -> Summary:
    """Also draws the chart of a fault between instances."""
    story = picture = ""
    if verdict.fault and verdict.sites is not None:
        story = told(verdict.sites, verdict.path, verdict.fault)
        title = f"{verdict.machine}: {verdict.scope}"
        picture = chart(rows(verdict.sites, verdict.path), verdict.fault, title)
    elif verdict.fault:  # of one channel, or of copies
        steps = [f"{n:4d}. {move.what}" for n, (_, move) in enumerate(verdict.path, start=1)]
        story = "\n".join([*steps, f"      => {verdict.fault}"])
    return Summary(
        str(verdict.scope),
        verdict.machine,
        verdict.states,
        verdict.transitions,
        verdict.quiescent,
        verdict.depth,
        verdict.seconds,
        verdict.complete,
        verdict.fault,
        len(verdict.path),
        story,
        picture,
    )


def survey(
    scope: Scope,
    machine: Machine | None = None,
    *,
    bulk: bool = False,
    states_max: int = 100_000_000,
    wanted: Callable[[str], bool] = bool,
    report: Report | None = None,
    covering: bool = False,
) -> Summary:
    """Search one scope. `bulk`: by levels in arrays, worth it from about 10^5 states on.

    `report` is given a line of progress every few seconds. `covering`: also report what was gone
    through.
    """
    machine = machine or Shipped()
    progress = _Progress(report) if report else None
    coverage = Coverage() if covering else None
    if bulk and not scope.room:
        search = Bulk(machine, scope, coverage=coverage)
        found = search.run(states_max=states_max, progress=progress)
    else:
        found = explore(
            machine,
            scope,
            states_max=states_max,
            wanted=wanted,
            progress=progress,
            coverage=coverage,
        )
    return replace(summary_of(found), coverage=coverage)


def survey_all(
    scopes: Iterable[AnyScope],
    *,
    bulk: bool,
    states_max: int,
    jobs: int,
    report: Report | None = None,
    covering: bool = False,
) -> Iterator[Summary]:
    """Search many scopes in `jobs` processes; yields each summary as it comes."""
    if jobs == 1:
        for scope in scopes:
            yield _one(scope, bulk, states_max, report, covering)
        return
    # Spawned, not forked: the caller may have threads, and numpy has some.
    with worker_pool(jobs, "spawn") as pool:
        with ctrl_c_held_back():
            asked = [pool.submit(_one, s, bulk, states_max, report, covering) for s in scopes]
        for done in as_completed(asked):
            yield done.result()


def _one(
    scope: AnyScope, bulk: bool, states_max: int, report: Report | None, covering: bool
) -> Summary:
    progress = _Progress(report) if report else None
    if isinstance(scope, CutScope):
        return summary_of(explore_cuts(scope, states_max=states_max, progress=progress))
    if isinstance(scope, CopyScope):
        return summary_of(explore_copies(scope, states_max=states_max, progress=progress))
    return survey(scope, bulk=bulk, states_max=states_max, report=report, covering=covering)


class _Progress:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._last = time.monotonic()

    def __call__(self, verdict: Verdict) -> None:
        now = time.monotonic()
        if now - self._last < PROGRESS_S:
            return
        self._last = now
        rate = verdict.states / max(verdict.seconds, 1e-3)
        self._report(
            f"{verdict.scope}: {verdict.states:,} states, {verdict.transitions:,} transitions, "
            f"{verdict.depth} steps deep, {rate:,.0f} states/s"
        )
