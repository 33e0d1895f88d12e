"""An instance with its node and all that is on its way to it, and what it may do next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.explorer.budget import Kind

Mail = tuple[tuple[int, ...], ...]
"""Non-empty channels towards an instance, sorted: the numbers of the parcels on each."""


class Site(NamedTuple):
    """`node`: its number; values are compared once, numbers ever after."""

    me: InstanceId
    node: int
    mail: Mail = ()


class Option(NamedTuple):
    """A move that may be tried: the site without what the move takes from its mail, and the event
    for the driver. `born`: the instances that it creates."""

    site: Site
    kind: Kind
    what: Any
    born: tuple[InstanceId, ...] = ()
    optional: bool = False
    parcel: int = -1
    """Number of the parcel that is delivered: a name for the event that is quick to compare."""


@dataclass(frozen=True, slots=True)
class SiteMove:
    """One transition: the site after it, what it sends, which instances it creates, and its event.

    `sends`: (number of the receiver, number of the parcel). `born`: (number, site) of each child.
    `site` is negative if the move breaks a property, which `fault` then names.
    """

    me: InstanceId
    kind: int
    site: int
    sends: tuple[tuple[int, int], ...]
    born: tuple[tuple[int, int], ...]
    optional: bool
    what: Any
    fault: str = ""
    way: int = 0
    """Number of the cells of the table that it goes through."""
