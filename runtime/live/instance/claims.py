"""Claimed splits, and what of them stands in the journal of the instance that reads them.

A split may be large, as one of many files; a position in it is not. So the split is written once,
as a piece that counts until its end is safe, and each commit has the position alone: what of the
remainder differs from the split.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from anabranch.runtime.live.commit.commits import Commits
from anabranch.runtime.live.commit.recovery import Past
from anabranch.runtime.plan.ends import Split

SPLITS = "splits"
"""Kind of the pieces of a journal that are splits, by the numbers of their claims."""


class ClaimedSplit(NamedTuple):
    """A split, and the number of the claim that brought it; `rest`: what is left to read of it,
    None if nothing is; `progress`: how far it is read before that."""

    number: int
    split: Split
    rest: Split | None
    progress: float = 0.0


class ClaimPlace(NamedTuple):
    """A `ClaimedSplit` without its split. `same`: names of what the rest has in common with that,
    `new`: the others; both None if nothing is left."""

    number: int
    same: tuple[str, ...] | None
    new: dict[str, Any] | None
    progress: float


def place_of(claimed: ClaimedSplit) -> ClaimPlace:
    number, split, rest, progress = claimed
    if rest is None:
        return ClaimPlace(number, None, None, progress)
    same = tuple(k for k, v in rest.items() if type(v) in (str, bytes) and split.get(k) == v)
    return ClaimPlace(number, same, {k: v for k, v in rest.items() if k not in same}, progress)


def claimed_at(place: ClaimPlace, split: Split) -> ClaimedSplit:
    number, same, new, progress = place
    if same is None or new is None:
        return ClaimedSplit(number, split, None, progress)
    return ClaimedSplit(number, split, {**{k: split[k] for k in same}, **new}, progress)


def keep(commits: Commits | None, claimed: ClaimedSplit) -> None:
    """Have its split in the journal until it is `dropped`."""
    if commits is not None:
        commits.keep(SPLITS, claimed.number, msgspec.msgpack.encode(claimed.split))


def drop(commits: Commits | None, number: int) -> None:
    if commits is not None:
        commits.drop(SPLITS, number)


def restore(commits: Commits | None, place: ClaimPlace, past: Past) -> ClaimedSplit:
    """In a new incarnation: what an earlier one had claimed, which is kept on."""
    split = msgspec.msgpack.decode(past.lasting[SPLITS][place.number])
    claimed = claimed_at(place, split)
    keep(commits, claimed)
    return claimed
