"""All lapses, by name."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.runtime.world import (
    lapses_of_channels,
    lapses_of_copies,
    lapses_of_ends,
    lapses_of_hosts,
    lapses_of_instances,
    lapses_of_the_agent,
    lapses_of_work,
)
from anabranch.runtime.world.lapses import Lapse

LAPSES = (
    *lapses_of_channels.LAPSES,
    *lapses_of_instances.LAPSES,
    *lapses_of_work.LAPSES,
    *lapses_of_the_agent.LAPSES,
    *lapses_of_hosts.LAPSES,
    *lapses_of_copies.LAPSES,
    *lapses_of_ends.LAPSES,
)


def lapse_named(text: str, among: Sequence[Lapse] = LAPSES) -> Lapse | None:
    """The one whose name begins with or holds `text`; None if it is none, or several."""
    exact = [lapse for lapse in among if lapse.name == text]
    found = exact or [lapse for lapse in among if text.lower() in lapse.name.lower()]
    return found[0] if len(found) == 1 else None
