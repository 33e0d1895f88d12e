"""Breadth-first search through one channel and its accidents; see `cuts`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.runtime.explorer.cuts import SOUND, CutChannel, CutScope, CutState, Habits


@dataclass(slots=True)
class CutVerdict:
    scope: CutScope
    states: int = 0
    transitions: int = 0
    quiescent: int = 0
    fault: str = ""
    story: tuple[str, ...] = ()


def explore_cuts(scope: CutScope, habits: Habits = SOUND) -> CutVerdict:
    """Search all interleavings of one channel, breadth first."""
    model, verdict = CutChannel(scope, habits), CutVerdict(scope)
    first = model.initial()
    parents: dict[CutState, tuple[CutState, str] | None] = {first: None}
    frontier = [first]
    while frontier:
        found: list[CutState] = []
        for state in frontier:
            quiet = True
            for what, after in model.successors(state):
                verdict.transitions += 1
                quiet = quiet and what.startswith("connection")
                if isinstance(after, str):
                    return _finding(verdict, parents, state, after, what)
                if after not in parents:
                    parents[after] = (state, what)
                    found.append(after)
            verdict.quiescent += quiet
            if quiet and (fault := model.unsettled(state)):
                return _finding(verdict, parents, state, fault)
        frontier = found
    verdict.states = len(parents)
    return verdict


def _finding(
    verdict: CutVerdict,
    parents: dict[CutState, tuple[CutState, str] | None],
    state: CutState,
    fault: str,
    last: str = "",
) -> CutVerdict:
    steps = [last] if last else []
    at = state
    while (parent := parents[at]) is not None:
        at, what = parent
        steps.append(what)
    return replace(verdict, states=len(parents), fault=fault, story=tuple(reversed(steps)))
