"""The bounds of an operator as a gate: whatever its instances decide, each alone and several in the
same moment, there are never more of them than `max_instances`, and none leaves where fewer than
`min_instances` would stay.

What makes processes holds the gate: it counts every instance that lives, is under way or has not
left yet, so no two can take the last place; and it has recorded which may leave already, so no two
can be the last that does. That refusals are rare is the policies' work.
"""

from __future__ import annotations

from anabranch.runtime.policies.policy import Scale


def places(wanted: int, living: int, operator: str, scale: Scale | None) -> tuple[int, str]:
    """How many of `wanted` newcomers may come beside `living` instances, and why not all.

    `living`: those under way and those that have not left yet included. There may be more than the
    bound allows, if it was lower when they came: then nothing comes. `scale`: None for an operator
    that never scales by itself; a script may scale it up to the usual bound.
    """
    most = (scale or Scale()).max_instances
    granted = max(0, min(wanted, most - living))
    return granted, "" if granted == wanted else f"at most {most} instances of {operator}"


def leaves(staying: int, operator: str, scale: Scale | None) -> tuple[bool, str]:
    """Whether an instance may leave beside which `staying` others stay, and why not.

    `staying`: those that are active and may not leave yet. Those under way are none of them, since
    they may never come. There may be fewer than the bound, if it was lower when they came: then
    none leaves.
    """
    least = (scale or Scale()).min_instances
    granted = staying >= least
    return granted, "" if granted else f"at least {least} instances of {operator}"


def is_asked(scale: Scale | None) -> bool:
    """Whether the gate has a say in leaves: the keeper of an operator stays whatever is decided,
    so one instance always does."""
    return scale is not None and scale.min_instances > 1
