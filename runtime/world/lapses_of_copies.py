"""What may be neglected where journals have copies on other hosts, and hosts are given up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.protocol.copies import CopyHolder
from anabranch.runtime.live.agent.moves import Moves
from anabranch.runtime.live.copies.client import JournalCopies
from anabranch.runtime.world.lapses import Lapse
from anabranch.runtime.world.lapses_of_channels import does_nothing

Method = Callable[..., Any]


def _at_once(_right: Method) -> Method:
    async def copied(_copies: JournalCopies) -> None:
        """Whatever the holders have."""

    return copied


LAPSES = (
    Lapse(
        "sends what no other host has",
        "an instance does not wait until its journal is copied",
        JournalCopies,
        "copied",
        _at_once,
        "hosts",
        crashes="all",
    ),
    Lapse(
        "listens to an incarnation that was given up",
        "a copy keeper takes what an incarnation behind a fence has written",
        CopyHolder,
        "_check",
        does_nothing,
        "hosts",
        crashes="all",
    ),
    Lapse(
        "does not say where an instance is now",
        "neighbours look for an instance where it was before its host was lost",
        Moves,
        "tell",
        does_nothing,
        "hosts",
        crashes="all",
    ),
)
